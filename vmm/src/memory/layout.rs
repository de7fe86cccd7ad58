//! Where guest RAM lies in the guest's physical address space.

use vm_memory::GuestAddress;

/// First address of the hole below 4 GiB that holds no RAM: local APIC
/// (0xFEE0_0000), I/O APIC (0xFEC0_0000) and virtio-mmio windows live there.
///
/// A multiple of 1 GiB, so that regions on both sides of the hole consist of
/// whole backing pages of every size.
pub const MMIO_HOLE_START: u64 = 0xC000_0000;

/// First address past the hole: 4 GiB.
pub const MMIO_HOLE_END: u64 = 1 << 32;

/// The regions of `size` bytes of RAM as (first address, length in bytes), in
/// ascending order: what fits below [`MMIO_HOLE_START`], the rest from
/// [`MMIO_HOLE_END`] up. No region is empty; a size of 0 has none.
#[must_use]
pub fn ram_regions(size: u64) -> Vec<(GuestAddress, u64)> {
    let below = size.min(MMIO_HOLE_START);
    [(0, below), (MMIO_HOLE_END, size - below)]
        .into_iter()
        .filter(|&(_, len)| len > 0)
        .map(|(start, len)| (GuestAddress(start), len))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ram_ends_at_the_hole_and_goes_on_at_4_gib() {
        for (size, expected) in [
            (0, vec![]),
            (512 << 20, vec![(0, 512 << 20)]),
            (3 << 30, vec![(0, 3 << 30)]),
            (
                (3 << 30) + (2 << 20),
                vec![(0, 3 << 30), (4 << 30, 2 << 20)],
            ),
            (6 << 30, vec![(0, 3 << 30), (4 << 30, 3 << 30)]),
        ] {
            let got: Vec<_> = ram_regions(size)
                .into_iter()
                .map(|(start, len)| (start.0, len))
                .collect();
            assert_eq!(got, expected, "size {size:#x}");
        }
    }

    proptest! {
        #[test]
        fn regions_hold_every_byte_once_outside_the_hole(
            page_shift in prop_oneof![Just(12u32), Just(21), Just(30)],
            pages in 1u64..=1 << 16,
        ) {
            let page = 1u64 << page_shift;
            let size = pages * page;
            let regions = ram_regions(size);
            prop_assert_eq!(regions.iter().map(|&(_, len)| len).sum::<u64>(), size);
            let mut previous_end = 0;
            for (start, len) in regions {
                prop_assert!(len > 0);
                prop_assert!(start.0 >= previous_end, "ascending and disjoint");
                prop_assert_eq!(start.0 % page, 0, "whole backing pages");
                prop_assert_eq!(len % page, 0, "whole backing pages");
                let end = start.0 + len;
                prop_assert!(end <= MMIO_HOLE_START || start.0 >= MMIO_HOLE_END);
                previous_end = end;
            }
        }
    }
}
