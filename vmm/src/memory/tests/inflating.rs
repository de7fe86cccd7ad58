//! The balloon on real memory: the host's pool grows exactly when the last 4 KiB
//! of a huge page are inflated, and what was promised reads zero.

use std::collections::BTreeSet;

use devices::balloon::device::Reclaim;
use proptest::prelude::*;

use super::ballooned::{Ballooned, CANARY};
use super::guest::*;

/// Guest RAM: one page for the driver, three for the balloon.
const SIZE: u64 = 8 * MIB;
const PAGE: u64 = 4 * KIB;
const HUGE: u64 = 2 * MIB;
/// What Linux names in one request.
const AT_A_TIME: usize = 256;

/// The pages of a huge page in an order without neighbours: a step that has no
/// divisor in common with 512.
fn shuffled(start: u64) -> Vec<u64> {
    (0..512).map(|i| start + i * 77 % 512 * PAGE).collect()
}

#[test]
fn i04_i05_i06_n10_the_pool_grows_when_the_last_piece_arrives() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        for told in [false, true] {
            let Some(held) = backed.hold(SIZE) else {
                return;
            };
            let pool = held.pool.as_ref().unwrap();
            let mut guest = Ballooned::start(backed, SIZE, Reclaim::Discard, told);
            dirty(&guest.ram, HUGE, 3 * HUGE);
            assert_eq!(pool.free(), 0, "all of it is the guest's");
            let what = format!("{backed:?}, told: {told}");

            // All in one request; then two by turns, in requests as Linux makes.
            let by_turns = shuffled(2 * HUGE).into_iter().zip(shuffled(3 * HUGE));
            let by_turns: Vec<u64> = by_turns.flat_map(|(a, b)| [a, b]).collect();
            let one = shuffled(HUGE);
            let requests = [&one[..]].into_iter().chain(by_turns.chunks(AT_A_TIME));
            // Free pages after each request: both come with the last one.
            for (pages, free) in requests.zip([1, 1, 1, 1, 3]) {
                let room = pages.len() / 8;
                let (used, bitmap) = guest.inflate(pages, u32::try_from(room).unwrap());
                assert_eq!(pool.free(), free, "{what}");
                let expected = if told { (room, 0xff) } else { (0, CANARY) };
                assert_eq!(usize::try_from(used).unwrap(), expected.0, "{what}");
                assert_eq!(bitmap, vec![expected.1; room], "{what}");
            }
            assert!(guest.holds(HUGE, 3 * HUGE, 0), "{what}");
            let counters = guest.balloon.counters();
            assert_eq!(counters.inflate_released_bytes, 3 * HUGE, "{what}");
            let zeroed = if told { 3 * HUGE } else { 0 };
            assert_eq!(counters.inflate_zeroed_bytes, zeroed, "{what}");
            assert_eq!(counters.inflated_pages, 3 * 512);
        }
    }
}

#[test]
fn i07_i08_a_missing_piece_keeps_the_huge_page_and_its_data() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        for told in [false, true] {
            let Some(held) = backed.hold(SIZE) else {
                return;
            };
            let pool = held.pool.as_ref().unwrap();
            let mut guest = Ballooned::start(backed, SIZE, Reclaim::Discard, told);
            dirty(&guest.ram, HUGE, 3 * HUGE);
            let what = format!("{backed:?}, told: {told}");

            let mut pages = shuffled(HUGE);
            let (taken, missing) = (pages[3], pages[300]);
            pages[300] = pages[301];
            guest.inflate(&pages, 64);
            assert_eq!(pool.free(), 0, "{what}: one twice is not two");
            guest.deflate(&[taken]);
            dirty(&guest.ram, taken, PAGE);
            guest.inflate(&[missing], 1);
            assert_eq!(pool.free(), 0, "{what}: one was taken out");
            assert!(guest.holds(taken, PAGE, DIRT), "{what}: and is in use");
            let contents = if told { 0 } else { DIRT };
            assert!(guest.holds(missing, PAGE, contents), "{what}");

            for _ in 0..2 {
                guest.inflate(&[taken], 1);
                assert_eq!(pool.free(), 1, "{what}: whole again");
                guest.deflate(&[taken]);
                dirty(&guest.ram, taken, PAGE);
                assert_eq!(pool.free(), 0, "{what}: it came back when touched");
            }
        }
    }
}

#[test]
fn small_pages_go_back_with_their_own_request() {
    for backed in &ALL_BUT_1G[2..] {
        for told in [false, true] {
            let Some(_held) = backed.hold(SIZE) else {
                return;
            };
            let mut guest = Ballooned::start(*backed, SIZE, Reclaim::Discard, told);
            dirty(&guest.ram, HUGE, 3 * HUGE);
            let before = guest.ram.resident_bytes();
            let pages: Vec<u64> = [1, 5, 3, 2, 700].map(|i| HUGE + i * PAGE).into();
            let expected = if told { (1, 0b1_1111) } else { (0, CANARY) };
            let what = format!("{backed:?}, told: {told}");
            let answer = guest.inflate(&pages, 1);
            assert_eq!(answer, (expected.0, vec![expected.1]), "{what}");
            assert_eq!(before - guest.ram.resident_bytes(), 5 * PAGE, "{what}");
            let counters = guest.balloon.counters();
            assert_eq!(counters.inflate_released_bytes, 5 * PAGE, "{what}");
            assert!(guest.holds(HUGE, PAGE, DIRT), "{what}: a neighbour");
            assert!(pages.iter().all(|page| guest.holds(*page, PAGE, 0)));
        }
    }
}

#[test]
fn zeroing_in_place_releases_nothing_and_promises_everything() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED, PAGES] {
        let Some(held) = backed.hold(SIZE) else {
            return;
        };
        let mut guest = Ballooned::start(backed, SIZE, Reclaim::Zero, true);
        dirty(&guest.ram, HUGE, 3 * HUGE);
        let resident = guest.ram.resident_bytes();
        let answer = guest.inflate(&shuffled(2 * HUGE), 64);
        assert_eq!(answer, (64, vec![0xff; 64]), "{backed:?}");
        assert_eq!(guest.ram.resident_bytes(), resident, "{backed:?}");
        assert!(held.pool.is_none_or(|pool| pool.free() == 0), "{backed:?}");
        assert!(guest.holds(2 * HUGE, HUGE, 0), "{backed:?}");
        assert!(guest.holds(HUGE, HUGE, DIRT), "{backed:?}");
    }
}

#[test]
fn i15_a_1g_page_goes_back_with_the_last_of_its_262144_pages() {
    const GUEST: u64 = 2 * GIB;
    for backed in [HUGETLB_1G, HUGETLB_1G_SHARED] {
        let Some(held) = backed.hold(GUEST) else {
            return;
        };
        let pool = held.pool.as_ref().unwrap();
        let mut guest = Ballooned::start(backed, GUEST, Reclaim::Discard, true);
        dirty(&guest.ram, 2 * GIB - MIB, MIB);
        assert_eq!(pool.free(), 0);
        // Not in the order of their addresses: stretches from both ends.
        let pages: Vec<u64> = (GIB..2 * GIB).step_by(4096).collect();
        let (low, high) = pages.split_at(pages.len() / 2);
        let requests = low.chunks(40_000).zip(high.rchunks(40_000));
        let requests: Vec<_> = requests.flat_map(|(a, b)| [a, b]).collect();
        for (n, pages) in (1..).zip(&requests) {
            let room = u32::try_from(pages.len().div_ceil(8)).unwrap();
            let (used, bitmap) = guest.inflate(pages, room);
            assert_eq!(used, room);
            let ones: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(usize::try_from(ones).unwrap(), pages.len(), "{backed:?}");
            let whole = u64::from(n == requests.len());
            assert_eq!(pool.free(), whole, "{backed:?}: request {n}");
        }
        assert_eq!(guest.balloon.counters().inflate_released_bytes, GIB);
        assert!(guest.holds(2 * GIB - MIB, MIB, 0), "{backed:?}");
    }
}

/// Stretches of pages put in and taken out, in any order. What was promised
/// reads zero, and the guest's own pages keep what is in them.
#[test]
fn n03_n11_every_promise_is_true_until_its_page_is_deflated() {
    for backed in ALL_BUT_1G {
        let Some(_held) = backed.hold(SIZE) else {
            return;
        };
        let step = (any::<bool>(), 0..1536_u64, 1..900_u64);
        let steps = prop::collection::vec(step, 1..8);
        proptest!(ProptestConfig::with_cases(12), |(steps in steps, writing: bool)| {
            let on_inflate = if writing { Reclaim::Zero } else { Reclaim::Discard };
            let mut guest = Ballooned::start(backed, SIZE, on_inflate, true);
            dirty(&guest.ram, HUGE, 3 * HUGE);
            let mut inside = BTreeSet::new();
            for (inflate, start, len) in steps {
                let pages: Vec<u64> = (0..len)
                    .map(|i| HUGE + (start + i * 77) % 1536 * PAGE)
                    .collect();
                if inflate {
                    let room = u32::try_from(pages.len().div_ceil(8)).unwrap();
                    let (used, bitmap) = guest.inflate(&pages, room);
                    prop_assert_eq!(used, room);
                    let ones: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
                    prop_assert_eq!(usize::try_from(ones).unwrap(), pages.len());
                    inside.extend(pages);
                } else {
                    guest.deflate(&pages);
                    for page in pages.into_iter().filter(|page| inside.remove(page)) {
                        prop_assert!(guest.holds(page, PAGE, 0), "{:?} {:#x}", backed, page);
                        dirty(&guest.ram, page, PAGE);
                    }
                }
                for page in (HUGE..SIZE).step_by(4096) {
                    let value = if inside.contains(&page) { 0 } else { DIRT };
                    prop_assert!(guest.holds(page, PAGE, value), "{:?} {:#x}", backed, page);
                }
            }
        });
    }
}
