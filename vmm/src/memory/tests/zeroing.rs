//! Every byte of a range reads zero afterwards, no byte beside it changed, and
//! what is called released is what the host got back.

use devices::balloon::host_zeroes::{ZeroBy, ZeroError};
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::guest::*;
use crate::memory::GuestRam;
use crate::memory::layout::{MMIO_HOLE_END, MMIO_HOLE_START};

/// (what, start, length) in a window of 12 MiB.
const RANGES: [(&str, u64, u64); 11] = [
    ("one byte", 5 * MIB + 7, 1),
    ("less than a line", 5 * MIB + 3, 50),
    ("a line", 4 * MIB + 64, 64),
    (
        "one small page at the start of a huge one",
        4 * MIB,
        4 * KIB,
    ),
    (
        "one small page inside a huge one",
        4 * MIB + 12 * KIB,
        4 * KIB,
    ),
    ("half a huge page", 4 * MIB, MIB),
    ("a huge page", 4 * MIB, 2 * MIB),
    ("two huge pages", 4 * MIB, 4 * MIB),
    ("a huge page and a tail", 4 * MIB, 2 * MIB + 4 * KIB),
    (
        "a huge page with two edges, aligned to nothing",
        4 * MIB - 100,
        2 * MIB + 777,
    ),
    ("two halves of huge pages and none whole", 5 * MIB, 2 * MIB),
];

/// Bytes of whole pages of `page` bytes inside the range.
fn whole_pages(start: u64, len: u64, page: u64) -> u64 {
    let (first, end) = (start.next_multiple_of(page), (start + len) / page * page);
    end.saturating_sub(first)
}

#[test]
fn a_range_reads_zero_and_nothing_beside_it_changes() {
    const WINDOW: u64 = 12 * MIB;
    for backed in ALL_BUT_1G {
        let Some(held) = backed.hold(WINDOW) else {
            return;
        };
        let pool = &held.pool;
        let ram = GuestRam::create(&backed.config(WINDOW)).unwrap();
        for by in [ZeroBy::Discarding, ZeroBy::Writing] {
            for (name, start, len) in RANGES {
                let what = format!("{backed:?}, {by:?}, {name}");
                dirty(&ram, 0, WINDOW);
                let (resident, free) = (ram.resident_bytes(), pool.as_ref().map(|p| p.free()));
                assert_eq!(resident, WINDOW, "{what}: all of it is there before");

                let zeroed = ram.zeroer().zero(range(start, len), by).unwrap();

                assert_eq!(zeroed.range(), range(start, len), "{what}");
                let expected = match by {
                    ZeroBy::Discarding => whole_pages(start, len, ram.page_bytes()),
                    ZeroBy::Writing => 0,
                };
                assert_eq!(zeroed.released(), expected, "{what}: released");
                assert_eq!(zeroed.written(), len - expected, "{what}: written");
                assert_eq!(
                    resident - ram.resident_bytes(),
                    expected,
                    "{what}: what is gone from the page table"
                );
                if let (Some(pool), Some(free)) = (pool, free) {
                    assert_eq!(
                        (pool.free() - free) * ram.page_bytes(),
                        expected,
                        "{what}: what the pool got back"
                    );
                }
                assert_only_zero(&ram, 0..WINDOW, start..start + len, &what);
            }
        }
    }
}

#[test]
fn a_part_of_a_1g_page_is_zeroed_in_place() {
    for backed in [HUGETLB_1G, HUGETLB_1G_SHARED] {
        let Some(held) = backed.hold(GIB) else {
            return;
        };
        let pool = held.pool.as_ref().unwrap();
        let ram = GuestRam::create(&backed.config(GIB)).unwrap();
        for by in [ZeroBy::Discarding, ZeroBy::Writing] {
            let (start, len) = (64 * MIB - 5, 4 * MIB + 9);
            let window = 62 * MIB..70 * MIB;
            dirty(&ram, window.start, 8 * MIB);
            let zeroed = ram.zeroer().zero(range(start, len), by).unwrap();
            assert_eq!(zeroed.released(), 0, "no 1 GiB page lies inside");
            assert_eq!(pool.free(), 0, "the page is still the guest's");
            let inside = start - window.start..start + len - window.start;
            assert_only_zero(&ram, window, inside, &format!("{backed:?}, {by:?}"));
        }
    }
}

#[test]
fn a_whole_1g_page_is_discarded() {
    for backed in [HUGETLB_1G, HUGETLB_1G_SHARED] {
        let Some(held) = backed.hold(GIB) else {
            return;
        };
        let pool = held.pool.as_ref().unwrap();
        let ram = GuestRam::create(&backed.config(GIB)).unwrap();
        dirty(&ram, GIB - MIB, MIB);
        let zeroed = ram
            .zeroer()
            .zero(range(0, GIB), ZeroBy::Discarding)
            .unwrap();
        assert_eq!(zeroed.released(), GIB, "{backed:?}");
        assert_eq!(pool.free(), 1, "{backed:?}");
        assert_eq!(
            pool.available(),
            0,
            "{backed:?}: it is still promised to the guest"
        );
        assert_only_zero(&ram, GIB - MIB..GIB, 0..MIB, &format!("{backed:?}"));
    }
}

/// A guest above 3 GiB has two regions. They do not touch, so a range can hold
/// the end of one and the start of the other only together with the hole.
#[test]
fn each_region_is_zeroed_and_the_hole_between_them_is_not_ram() {
    let backed = ALL_BUT_1G[4];
    let ram = GuestRam::create(&backed.config((3 << 30) + 8 * MIB)).unwrap();
    let last = MMIO_HOLE_START - 2 * MIB;
    for by in [ZeroBy::Discarding, ZeroBy::Writing] {
        for start in [last, MMIO_HOLE_END, MMIO_HOLE_END + 6 * MIB] {
            dirty(&ram, start, 2 * MIB);
            let zeroed = ram.zeroer().zero(range(start, 2 * MIB), by).unwrap();
            assert_eq!(zeroed.range(), range(start, 2 * MIB));
            let what = format!("{by:?} at {start:#x}");
            assert_only_zero(&ram, start..start + 2 * MIB, 0..2 * MIB, &what);
        }

        dirty(&ram, last, 2 * MIB);
        dirty(&ram, MMIO_HOLE_END, 2 * MIB);
        let end = MMIO_HOLE_END + 8 * MIB;
        for (what, start, len) in [
            ("across the hole", last, MMIO_HOLE_END + 2 * MIB - last),
            ("one byte into the hole", last, 2 * MIB + 1),
            ("from the hole", MMIO_HOLE_END - 1, 2 * MIB),
            ("the hole", MMIO_HOLE_START, 4 * KIB),
            ("past the end", end, 4 * KIB),
            ("one byte past the end", end - 4 * KIB, 4 * KIB + 1),
            (
                "up to the last address",
                MMIO_HOLE_END,
                u64::MAX - MMIO_HOLE_END,
            ),
        ] {
            let asked = range(start, len);
            assert_eq!(
                ram.zeroer().zero(asked, by),
                Err(ZeroError::NotRam(asked)),
                "{what}"
            );
            assert_eq!(
                ram.zeroer().release(asked),
                Err(ZeroError::NotRam(asked)),
                "{what}"
            );
        }
        assert_only_zero(&ram, last..MMIO_HOLE_START, 0..0, "nothing was done");
        assert_only_zero(
            &ram,
            MMIO_HOLE_END..MMIO_HOLE_END + 2 * MIB,
            0..0,
            "nothing was done",
        );
    }
}

/// Where neighbouring regions touch, a range may lie in both.
#[test]
fn a_range_may_span_regions() {
    use devices::balloon::host_zeroes::ZeroGuestRange;
    use vm_memory::{GuestMemoryMmap, GuestRegionMmap};

    use crate::memory::mapping::Backing;
    use crate::memory::self_test;

    for backed in &ALL_BUT_1G[2..] {
        let Some(_held) = backed.hold(4 * MIB) else {
            return;
        };
        let backing = Backing::of(&backed.config(4 * MIB)).unwrap();
        let region = |start| {
            let mapping = backing.map(2 << 20).unwrap();
            GuestRegionMmap::new(mapping, GuestAddress(start)).unwrap()
        };
        let memory = GuestMemoryMmap::from_regions(vec![region(0), region(2 * MIB)]).unwrap();
        let mut zeroer = zeroer(memory.clone(), backing);
        self_test::run(&mut zeroer).unwrap();
        for by in [ZeroBy::Discarding, ZeroBy::Writing] {
            memory
                .write_slice(&vec![DIRT; 4 << 20], GuestAddress(0))
                .unwrap();
            let zeroed = zeroer.zero(range(MIB, 2 * MIB), by).unwrap();
            let expected = if by == ZeroBy::Discarding { 2 * MIB } else { 0 };
            assert_eq!(zeroed.released(), expected, "{backed:?}");
            let mut bytes = vec![1; 4 << 20];
            memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
            assert!(
                bytes[..1 << 20].iter().all(|&byte| byte == DIRT),
                "{backed:?}"
            );
            assert!(
                bytes[1 << 20..3 << 20].iter().all(|&byte| byte == 0),
                "{backed:?}"
            );
            assert!(
                bytes[3 << 20..].iter().all(|&byte| byte == DIRT),
                "{backed:?}"
            );
        }
    }
}

/// Memory of which some is there and some is not, zeroed at any place.
#[test]
fn any_range_of_any_mixture_of_absent_and_dirty_pages_reads_zero() {
    const WINDOW: u64 = 8 * MIB;
    const BLOCK: u64 = 256 * KIB;
    for backed in ALL_BUT_1G {
        let Some(_held) = backed.hold(WINDOW) else {
            return;
        };
        let ram = GuestRam::create(&backed.config(WINDOW)).unwrap();
        proptest!(ProptestConfig::with_cases(24), |(
            dirty_blocks in any::<u32>(),
            start in 0..WINDOW,
            len in 1..WINDOW,
            writing in any::<bool>(),
        )| {
            let by = if writing { ZeroBy::Writing } else { ZeroBy::Discarding };
            let len = len.min(WINDOW - start);
            ram.zeroer().release(range(0, WINDOW)).unwrap();
            for block in 0..WINDOW / BLOCK {
                if dirty_blocks & (1 << block) != 0 {
                    dirty(&ram, block * BLOCK, BLOCK);
                }
            }
            let resident = ram.resident_bytes();

            let zeroed = ram.zeroer().zero(range(start, len), by).unwrap();

            prop_assert_eq!(resident - ram.resident_bytes(), zeroed.released());
            prop_assert!(zeroed.released() <= len);
            let mut bytes = vec![1; usize::try_from(WINDOW).unwrap()];
            ram.guest_memory().read_slice(&mut bytes, GuestAddress(0)).unwrap();
            for (at, &byte) in (0u64..).zip(&bytes) {
                let was_dirty = dirty_blocks & (1 << (at / BLOCK)) != 0;
                let kept = was_dirty && (at < start || at >= start + len);
                if byte != if kept { DIRT } else { 0 } {
                    prop_assert!(false, "{backed:?} {by:?} at {at:#x}: {byte:#x}");
                }
            }
        });
    }
}
