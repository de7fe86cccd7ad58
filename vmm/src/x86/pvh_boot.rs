//! What a kernel finds when it is entered through PVH: the start info.

use linux_loader::configurator::pvh::PvhBootConfigurator;
use linux_loader::configurator::{self, BootConfigurator, BootParams};
use linux_loader::loader::elf::start_info::{
    XEN_HVM_START_MAGIC_VALUE, hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::address_map::Area;
use super::initrd::LoadedInitrd;
use super::layout::{
    ACPI_START, CMDLINE_START, PVH_INFO_START, PVH_MEMORY_MAP_START, PVH_MODULES_START,
};

/// The version that added the memory map.
const VERSION_WITH_MEMORY_MAP: u32 = 1;

/// Writes the start info, the memory map, and the initrd as the first module.
///
/// # Errors
/// The loader's error if they do not fit into guest RAM.
pub fn write(
    memory: &GuestMemoryMmap,
    initrd: Option<LoadedInitrd>,
    map: &[Area],
) -> Result<(), configurator::Error> {
    let map: Vec<_> = map
        .iter()
        .map(|area| hvm_memmap_table_entry {
            addr: area.start,
            size: area.len,
            type_: area.kind as u32,
            reserved: 0,
        })
        .collect();
    let info = hvm_start_info {
        magic: XEN_HVM_START_MAGIC_VALUE,
        version: VERSION_WITH_MEMORY_MAP,
        nr_modules: u32::from(initrd.is_some()),
        modlist_paddr: initrd.map_or(0, |_| PVH_MODULES_START),
        cmdline_paddr: CMDLINE_START,
        rsdp_paddr: ACPI_START,
        memmap_paddr: PVH_MEMORY_MAP_START,
        memmap_entries: u32::try_from(map.len()).unwrap_or(u32::MAX),
        ..Default::default()
    };
    let mut params = BootParams::new(&info, GuestAddress(PVH_INFO_START));
    params.set_sections(&map, GuestAddress(PVH_MEMORY_MAP_START));
    if let Some(initrd) = initrd {
        let module = hvm_modlist_entry {
            paddr: initrd.start,
            size: initrd.len,
            ..Default::default()
        };
        params.set_modules(&[module], GuestAddress(PVH_MODULES_START));
    }
    PvhBootConfigurator::write_bootparams(&params, memory)
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::super::address_map;
    use super::*;

    #[test]
    fn everything_the_start_info_points_to_is_there() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 8 << 20)]).unwrap();
        let initrd = LoadedInitrd {
            start: 0x70_0000,
            len: 0x1234,
        };
        let map = address_map::of(&memory);
        write(&memory, Some(initrd), &map).unwrap();

        let info: hvm_start_info = memory.read_obj(GuestAddress(0x6000)).unwrap();
        assert_eq!((info.magic, info.version), (0x336e_c578, 1));
        assert_eq!(info.rsdp_paddr, 0xe_0000);
        assert_eq!(info.cmdline_paddr, 0x2_0000);
        assert_eq!(info.nr_modules, 1);
        let module: hvm_modlist_entry = memory.read_obj(GuestAddress(info.modlist_paddr)).unwrap();
        assert_eq!((module.paddr, module.size), (0x70_0000, 0x1234));
        assert_eq!(info.memmap_entries, 3);
        let third = GuestAddress(info.memmap_paddr + 2 * 24);
        let third: hvm_memmap_table_entry = memory.read_obj(third).unwrap();
        assert_eq!(
            (third.addr, third.size, third.type_),
            (0x10_0000, 7 << 20, 1)
        );
    }
}
