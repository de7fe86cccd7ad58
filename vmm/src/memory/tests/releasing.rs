//! Giving memory back, and what is promised of getting it again.

use devices::balloon::host_zeroes::ZeroBy;
use vm_memory::{Bytes, GuestAddress};

use super::guest::*;
use crate::memory::GuestRam;

#[test]
fn only_whole_backing_pages_are_released() {
    for backed in ALL_BUT_1G {
        let Some(held) = backed.hold(8 * MIB) else {
            return;
        };
        let pool = &held.pool;
        let ram = GuestRam::create(&backed.config(8 * MIB)).unwrap();
        let page = ram.page_bytes();
        for (start, len, expected) in [
            (2 * MIB, 2 * MIB, 2 * MIB),
            (2 * MIB + page / 2, page, 0),
            (2 * MIB + page / 2, 2 * page, page),
            (0, 8 * MIB, 8 * MIB),
            (100, 50, 0),
        ] {
            dirty(&ram, 0, 8 * MIB);
            let free = pool.as_ref().map(|pool| pool.free());
            let released = ram.zeroer().release(range(start, len));
            assert_eq!(released, Ok(expected), "{backed:?}: {start:#x}+{len:#x}");
            assert_eq!(ram.resident_bytes(), 8 * MIB - expected, "{backed:?}");
            if let (Some(pool), Some(free)) = (pool, free) {
                assert_eq!((pool.free() - free) * page, expected, "{backed:?}");
            }
        }
    }
}

/// The reservation comes back with the page, so the guest's next access to what
/// it reported cannot find the pool empty.
#[test]
fn released_huge_pages_stay_promised_to_the_guest() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let Some(held) = backed.hold(8 * MIB) else {
            return;
        };
        let pool = held.pool.as_ref().unwrap();
        let ram = GuestRam::create(&backed.config(8 * MIB)).unwrap();
        assert_eq!(
            (pool.free(), pool.reserved()),
            (4, 4),
            "{backed:?}: created"
        );
        dirty(&ram, 0, 8 * MIB);
        assert_eq!((pool.free(), pool.reserved()), (0, 0), "{backed:?}: dirty");
        let zeroed = ram
            .zeroer()
            .zero(range(2 * MIB, 4 * MIB), ZeroBy::Discarding)
            .unwrap();
        assert_eq!(zeroed.released(), 4 * MIB);
        assert_eq!(
            (pool.free(), pool.reserved()),
            (2, 2),
            "{backed:?}: discarded"
        );
        assert!(
            GuestRam::create(&HUGETLB_2M.config(2 * MIB)).is_err(),
            "{backed:?}: nobody else gets them"
        );
        dirty(&ram, 0, 8 * MIB);
        assert_eq!(
            (pool.free(), pool.reserved()),
            (0, 0),
            "{backed:?}: dirty again"
        );
    }
}

#[test]
fn everything_goes_back_when_the_last_user_is_gone() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let Some(held) = backed.hold(8 * MIB) else {
            return;
        };
        let pool = held.pool.as_ref().unwrap();
        let ram = GuestRam::create(&backed.config(8 * MIB)).unwrap();
        let (memory, zeroer) = (ram.guest_memory().clone(), ram.zeroer());
        dirty(&ram, 0, 8 * MIB);
        drop(ram);
        assert_eq!(
            memory.read_obj::<u8>(GuestAddress(8 * MIB - 1)).unwrap(),
            DIRT,
            "a clone keeps the mapping"
        );
        drop(memory);
        assert_eq!(pool.free(), 0, "{backed:?}: so does the zeroer");
        drop(zeroer);
        assert_eq!((pool.free(), pool.reserved()), (4, 0), "{backed:?}");
    }
}
