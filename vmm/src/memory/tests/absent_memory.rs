//! Memory that was never populated is promised without being populated.

use devices::balloon::host_zeroes::ZeroBy;
use vm_memory::{Bytes, GuestAddress};

use super::guest::*;
use super::pool_guard::PoolGuard;
use crate::config;
use crate::memory::GuestRam;

#[test]
fn absent_memory_stays_absent() {
    const SIZE: u64 = 12 * MIB;
    for backed in ALL_BUT_1G {
        let Some(held) = backed.hold(SIZE) else {
            return;
        };
        let pool = &held.pool;
        let ram = GuestRam::create(&backed.config(SIZE)).unwrap();
        assert_eq!(
            ram.resident_bytes(),
            0,
            "{backed:?}: creating populates nothing"
        );
        for by in [ZeroBy::Discarding, ZeroBy::Writing] {
            for (start, len) in [
                (0, SIZE),
                (2 * MIB, 2 * MIB),
                (5 * MIB, 12 * KIB),
                (3 * MIB + 1, 4 * MIB),
            ] {
                let zeroed = ram.zeroer().zero(range(start, len), by).unwrap();
                assert_eq!(zeroed.range(), range(start, len), "all of it is promised");
                assert_eq!(zeroed.released(), 0, "there was nothing to give back");
                assert_eq!(zeroed.written(), 0, "and nothing to clear");
                assert_eq!(
                    ram.resident_bytes(),
                    0,
                    "{backed:?}, {by:?}, {start:#x}+{len:#x}"
                );
            }
        }
        assert_eq!(ram.zeroer().release(range(0, SIZE)), Ok(0));
        if let Some(pool) = pool {
            assert_eq!(
                pool.free(),
                SIZE / ram.page_bytes(),
                "{backed:?}: nothing was taken"
            );
            assert_eq!(
                pool.available(),
                0,
                "{backed:?}: all of it is still reserved"
            );
        }
        assert_only_zero(&ram, 0..SIZE, 0..SIZE, "reads zero");
    }
}

#[test]
fn beside_a_dirty_page_the_absent_ones_stay_absent() {
    for backed in ALL_BUT_1G {
        let Some(_held) = backed.hold(8 * MIB) else {
            return;
        };
        let ram = GuestRam::create(&backed.config(8 * MIB)).unwrap();
        dirty(&ram, 2 * MIB, 2 * MIB);
        let zeroed = ram
            .zeroer()
            .zero(range(MIB, 6 * MIB), ZeroBy::Writing)
            .unwrap();
        assert_eq!(zeroed.released(), 0);
        assert_eq!(
            ram.resident_bytes(),
            2 * MIB,
            "{backed:?}: neither more nor less"
        );
        assert_only_zero(&ram, 2 * MIB..4 * MIB, 0..2 * MIB, "and it reads zero");
    }
}

/// A page that was only read maps the zero page: nothing to clear, nothing to
/// release, and no reason to give it memory.
#[test]
fn the_zero_page_is_not_memory() {
    let backed = ALL_BUT_1G[4];
    assert_eq!(backed.kind, config::Backing::Pages);
    let ram = GuestRam::create(&backed.config(4 * MIB)).unwrap();
    let mut bytes = [1; 4096];
    ram.guest_memory()
        .read_slice(&mut bytes, GuestAddress(MIB))
        .unwrap();
    assert_eq!(bytes, [0; 4096]);
    for by in [ZeroBy::Writing, ZeroBy::Discarding] {
        let zeroed = ram.zeroer().zero(range(0, 4 * MIB), by).unwrap();
        assert_eq!(zeroed.released(), 0, "{by:?}");
        assert_eq!(ram.resident_bytes(), 0, "{by:?}");
    }
}

/// With an exhausted pool a store to an absent page raises SIGBUS, which would
/// end this very process.
#[test]
fn absent_memory_of_an_exhausted_pool_is_promised_and_not_touched() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let Some(pool) = PoolGuard::with_available(2 * MIB, 2) else {
            return;
        };
        let config = config::Memory {
            overcommit: true,
            ..backed.config(64 * MIB)
        };
        let ram = GuestRam::create(&config).unwrap();
        dirty(&ram, 0, 4 * MIB);
        assert_eq!(pool.free(), 0, "the pool is exhausted");
        for by in [ZeroBy::Writing, ZeroBy::Discarding] {
            for (start, len) in [
                (8 * MIB, 8 * MIB),
                (9 * MIB, 4 * KIB),
                (11 * MIB, 2 * MIB),
                (62 * MIB + 3, 50),
            ] {
                let zeroed = ram.zeroer().zero(range(start, len), by).unwrap();
                assert_eq!(zeroed.range(), range(start, len), "{backed:?}, {by:?}");
                assert_eq!(zeroed.released(), 0, "{backed:?}, {by:?}");
            }
        }
        assert_only_zero(&ram, 0..4 * MIB, 0..0, "the rest is as the guest left it");
    }
}

#[test]
fn a_guest_that_outgrows_its_pool_while_it_is_loaded_is_told_so() {
    let Some(pool) = PoolGuard::with_available(2 * MIB, 1) else {
        return;
    };
    let config = config::Memory {
        overcommit: true,
        ..HUGETLB_2M.config(64 * MIB)
    };
    let ram = GuestRam::create(&config).unwrap();
    assert!(ram.shortage().is_none(), "one page is left");
    ram.make_present_below(MIB).unwrap();
    assert_eq!((pool.free(), ram.resident_bytes()), (0, 2 * MIB));
    let refused = ram.make_present_below(3 * MIB).unwrap_err().to_string();
    assert!(
        refused.contains("stopped at 2M of 64M: the pool"),
        "{refused}"
    );
    assert_eq!(ram.shortage().unwrap().to_string(), refused);

    let reserved = GuestRam::create(&HUGETLB_2M.config(64 * MIB));
    assert!(reserved.is_err(), "a reserved guest fails before");
}

#[test]
fn a_pool_that_is_all_reserved_for_a_guest_is_not_short() {
    let Some(pool) = PoolGuard::with_available(2 * MIB, 4) else {
        return;
    };
    let ram = GuestRam::create(&HUGETLB_2M.config(8 * MIB)).unwrap();
    ram.make_present_below(MIB).unwrap();
    assert_eq!((pool.free(), ram.resident_bytes()), (3, 2 * MIB));
    assert!(ram.shortage().is_none(), "three are left, and its own");
}
