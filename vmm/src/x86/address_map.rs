//! The map of physical addresses a guest is given at boot.

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::layout::{HIGH_RAM_START, LOW_RAM_END};

/// What a guest may do with an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaKind {
    /// Use it. Type 1 of the e820 map, and of the PVH map alike.
    Ram = 1,
    /// Leave it alone. Type 2.
    Reserved = 2,
}

/// One area of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// What it is.
    pub kind: AreaKind,
}

/// The map for guest RAM `memory`: all of it is RAM, except for the end of the
/// first MiB, where a PC has its BIOS and we have the ACPI tables.
#[must_use]
pub fn of(memory: &GuestMemoryMmap) -> Vec<Area> {
    of_regions(memory.iter().map(|r| (r.start_addr().0, r.len())))
}

fn of_regions(regions: impl Iterator<Item = (u64, u64)>) -> Vec<Area> {
    let mut map = Vec::with_capacity(4);
    let mut add = |start: u64, end: u64, kind| {
        if let Some(len) = end.checked_sub(start).filter(|len| *len > 0) {
            map.push(Area { start, len, kind });
        }
    };
    for (start, len) in regions {
        let end = start.saturating_add(len);
        if start < HIGH_RAM_START {
            add(start, end.min(LOW_RAM_END), AreaKind::Ram);
            add(LOW_RAM_END, end.min(HIGH_RAM_START), AreaKind::Reserved);
        }
        add(start.max(HIGH_RAM_START), end, AreaKind::Ram);
    }
    map
}

/// First address past the RAM that begins at 0, which is what a kernel, an
/// initrd and all that is needed at boot must lie below.
#[must_use]
pub fn low_ram_end(memory: &GuestMemoryMmap) -> u64 {
    memory
        .iter()
        .find(|region| region.start_addr().0 == 0)
        .map_or(0, GuestMemoryRegion::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ram(start: u64, len: u64) -> Area {
        let kind = AreaKind::Ram;
        Area { start, len, kind }
    }
    const BIOS: Area = Area {
        start: 0x9_fc00,
        len: 0x6_0400,
        kind: AreaKind::Reserved,
    };

    #[test]
    fn all_but_the_bios_area_is_ram() {
        let low = ram(0, 0x9_fc00);
        let map = of_regions([(0, 512 << 20)].into_iter());
        assert_eq!(map, [low, BIOS, ram(0x10_0000, (512 << 20) - 0x10_0000)]);
    }

    #[test]
    fn ram_above_the_hole_is_an_area_of_its_own() {
        let map = of_regions([(0, 3 << 30), (4 << 30, 3 << 30)].into_iter());
        assert_eq!(map.last(), Some(&ram(4 << 30, 3 << 30)));
        assert_eq!(map.len(), 4);
    }

    #[test]
    fn areas_never_overlap_and_add_up_to_the_ram_whatever_its_size() {
        for size in [
            1,
            0x9_fc00,
            0x9_fc01,
            0x10_0000,
            0x10_0001,
            1 << 21,
            1 << 32,
        ] {
            let map = of_regions([(0, size)].into_iter());
            assert_eq!(map.iter().map(|area| area.len).sum::<u64>(), size);
            for pair in map.windows(2) {
                assert_eq!(pair[0].start + pair[0].len, pair[1].start, "size {size:#x}");
            }
        }
    }
}
