//! What a bzImage finds when it is entered: the zero page.

use linux_loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use linux_loader::configurator::linux::LinuxBootConfigurator;
use linux_loader::configurator::{self, BootConfigurator, BootParams};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::address_map::Area;
use super::initrd::LoadedInitrd;
use super::layout::{ACPI_START, CMDLINE_START, ZERO_PAGE_START};

/// A boot loader without an assigned number (Documentation/arch/x86/boot.rst,
/// `type_of_loader`).
const LOADER_UNDEFINED: u8 = 0xff;

/// Writes the zero page: `header` as the image had it, completed by what a boot
/// loader fills in.
///
/// # Errors
/// The loader's error if it does not fit into guest RAM.
pub fn write(
    memory: &GuestMemoryMmap,
    header: setup_header,
    initrd: Option<LoadedInitrd>,
    map: &[Area],
) -> Result<(), configurator::Error> {
    let params = params(header, initrd, map);
    let params = BootParams::new(&params, GuestAddress(ZERO_PAGE_START));
    LinuxBootConfigurator::write_bootparams(&params, memory)
}

fn params(header: setup_header, initrd: Option<LoadedInitrd>, map: &[Area]) -> boot_params {
    let mut params = boot_params {
        hdr: header,
        acpi_rsdp_addr: ACPI_START,
        ..Default::default()
    };
    params.hdr.type_of_loader = LOADER_UNDEFINED;
    params.hdr.cmd_line_ptr = low32(CMDLINE_START);
    if let Some(initrd) = initrd {
        params.hdr.ramdisk_image = low32(initrd.start);
        params.hdr.ramdisk_size = low32(initrd.len);
    }
    // The map has four areas at most; the table, 128 entries.
    let mut table = params.e820_table;
    for (entry, area) in table.iter_mut().zip(map) {
        *entry = boot_e820_entry {
            addr: area.start,
            size: area.len,
            r#type: area.kind as u32,
        };
        params.e820_entries += 1;
    }
    params.e820_table = table;
    params
}

/// All that is passed lies below 4 GiB: the RAM that begins at 0 ends there.
fn low32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::address_map::AreaKind;
    use super::*;

    #[test]
    fn the_header_is_kept_and_what_the_loader_fills_in_is_right() {
        let header = setup_header {
            header: 0x5372_6448,
            version: 0x020f,
            init_size: 0x123_4000,
            ..Default::default()
        };
        let area = Area {
            start: 0x10_0000,
            len: 0x700_0000,
            kind: AreaKind::Reserved,
        };
        let initrd = LoadedInitrd {
            start: 0x600_0000,
            len: 0x1234,
        };
        let params = params(header, Some(initrd), &[area]);
        let hdr = params.hdr;
        assert_eq!({ hdr.init_size }, 0x123_4000);
        assert_eq!({ hdr.type_of_loader }, 0xff);
        assert_eq!({ hdr.cmd_line_ptr }, 0x2_0000);
        assert_eq!(
            ({ hdr.ramdisk_image }, { hdr.ramdisk_size }),
            (0x600_0000, 0x1234)
        );
        assert_eq!({ params.acpi_rsdp_addr }, 0xe_0000);
        assert_eq!(params.e820_entries, 1);
        let entry = params.e820_table[0];
        assert_eq!(
            ({ entry.addr }, { entry.size }, { entry.r#type }),
            (0x10_0000, 0x700_0000, 2)
        );
    }

    #[test]
    fn without_an_initrd_none_is_passed() {
        let hdr = params(setup_header::default(), None, &[]).hdr;
        assert_eq!(({ hdr.ramdisk_image }, { hdr.ramdisk_size }), (0, 0));
    }
}
