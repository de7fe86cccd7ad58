//! Inflate requests with bit 7 whose page numbers and bitmap lie anywhere, cut
//! anyhow, also in the pages they give away. Whatever comes: completed once,
//! nothing written but where the guest asked for it, and no bit that lies.

use std::ops::Range;

use devices::balloon::device::{BalloonSpec, Reclaim};
use proptest::prelude::*;
use vm_memory::GuestAddress;

use crate::fake_guest::driver::{KNOWN, NEEDS_RESET};
use crate::fake_guest::machine::range;
use crate::fake_guest::{
    Buf, DEVICE_INIT_ON_INFLATE, Driver, HUGE, MUST_TELL_HOST, Machine, Numbering, PAGE, Queue,
    SCRATCH, readable, reporting_spec, writable,
};

/// Guest RAM of these tests, and a hole in it.
const LOW: Range<u64> = 0..6 << 20;
const HIGH: Range<u64> = 8 << 20..10 << 20;
/// What is given away: no rings are there.
const DATA: Range<u64> = HUGE..6 << 20;
/// The rings of all queues.
const RINGS: Range<u64> = 0x1_0000..0x1_c000;

fn machine(on_inflate: Reclaim) -> Machine {
    let spec = BalloonSpec {
        must_tell_host: true,
        device_init_on_inflate: true,
        on_inflate,
        ..reporting_spec()
    };
    let regions = [LOW, HIGH].map(|r| (GuestAddress(r.start), (r.end - r.start) as usize));
    let machine = Machine::with_memory(spec, &regions);
    machine.fill(DATA, 0xaa);
    machine.fill(HIGH, 0xaa);
    machine
}

/// Pages of [`DATA`], of the hole, of anywhere: by ones and by whole huge pages.
fn pfns() -> impl Strategy<Value = Vec<u32>> {
    let first = (DATA.start / PAGE) as u32;
    let one = prop_oneof![20 => first..first + 1024, 2 => 1536..2100_u32, 1 => any::<u32>()];
    let some = prop::collection::vec(one, 0..300);
    let whole = (0..2_u32, 0..=512_u32);
    (some, prop::option::of(whole)).prop_map(move |(mut some, whole)| {
        // Also the pages of rings are RAM; those tests are elsewhere.
        some.retain(|pfn| u64::from(*pfn) * PAGE >= DATA.start);
        if let Some((page, len)) = whole {
            some.extend((0..len).map(|i| first + 512 * page + i * 77 % 512));
        }
        some
    })
}

/// Where page numbers are read: at first where they are, then anywhere.
fn numbers() -> impl Strategy<Value = Vec<Buf>> {
    let part = (SCRATCH..SCRATCH + 600, 0..1500_u32);
    let part = prop_oneof![4 => part, 1 => (DATA, 0..5000_u32)];
    prop::collection::vec(part, 0..4)
        .prop_map(|parts| parts.iter().map(|(a, l)| readable(*a, *l)).collect())
}

/// Where a bitmap goes: in data, over the page numbers, around the hole.
fn bitmap() -> impl Strategy<Value = Vec<Buf>> {
    let place = prop_oneof![
        6 => DATA,
        2 => SCRATCH..SCRATCH + 600,
        1 => LOW.end - 60..HIGH.start + 60,
        1 => Just(u64::MAX - 3),
    ];
    let len = prop_oneof![4 => 0..30_u32, 1 => 0..10_000_u32];
    prop::collection::vec((place, len), 0..4)
        .prop_map(|parts| parts.iter().map(|(a, l)| writable(*a, *l)).collect())
}

fn page(pfn: u32) -> Range<u64> {
    let start = u64::from(pfn) * PAGE;
    start..start + PAGE
}

fn is_ram(range: &Range<u64>) -> bool {
    [LOW, HIGH]
        .iter()
        .any(|ram| ram.start <= range.start && range.end <= ram.end)
}

/// The first `needed` bytes of `buffers`, up to one that is not RAM.
fn places(buffers: &[Buf], needed: u64) -> Vec<Range<u64>> {
    let mut left = needed;
    let mut places = Vec::new();
    for buffer in buffers {
        let len = left.min(buffer.len.into());
        let place = buffer.addr..buffer.addr.saturating_add(len);
        if len > 0 && !is_ram(&place) {
            break;
        }
        left -= len;
        places.push(place);
    }
    places
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn total(places: &[Range<u64>]) -> u64 {
    places.iter().map(|place| place.end - place.start).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn v02_v05_n03_n07_any_inflate_request_is_completed_once_and_tells_the_truth(
        zeroing: bool,
        pfns in pfns(),
        failing in prop::option::of((DATA.start / PAGE..DATA.end / PAGE, 1..100_u64)),
        requests in prop::collection::vec((numbers(), bitmap()), 1..4),
    ) {
        let machine = machine(if zeroing { Reclaim::Zero } else { Reclaim::Discard });
        let features = KNOWN | MUST_TELL_HOST | DEVICE_INIT_ON_INFLATE;
        let mut driver = Driver::with(&machine, features, Numbering::Dense, 16);
        let failing = failing.map(|(page, pages)| page * PAGE..(page + pages) * PAGE);
        if let Some(failing) = &failing {
            machine.ram.fail(range(failing.start, failing.end - failing.start));
        }
        machine.put_pfns(SCRATCH, &pfns);
        let mut given: Vec<Range<u64>> = Vec::new();
        for (count, (numbers, bitmap)) in (1..).zip(requests) {
            let limit = (LOW.end + HIGH.end - HIGH.start) / PAGE;
            let numbers_at = places(&numbers, limit * 4);
            let readable_all = numbers_at.len() == numbers.len();
            let bytes: Vec<u8> = numbers_at.into_iter().flat_map(|r| machine.bytes(r)).collect();
            let words = bytes.chunks_exact(4);
            let pfns: Vec<u32> =
                words.map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
            let written = places(&bitmap, pfns.len().div_ceil(8) as u64);
            let before = machine.bytes(LOW);

            let chain: Vec<Buf> = numbers.into_iter().chain(bitmap).collect();
            // Numbers may be what was written there: a ring would be the end.
            if chain.is_empty() || pfns.iter().any(|pfn| overlap(&page(*pfn), &RINGS)) {
                continue;
            }
            let used = driver.submit(Queue::Inflate, &chain);

            prop_assert_eq!(driver[Queue::Inflate].used_index(), driver[Queue::Inflate].seen);
            prop_assert_eq!(driver.status() & NEEDS_RESET, 0);
            let expected = if readable_all { total(&written) } else { 0 };
            prop_assert_eq!(u64::from(used), expected, "request {}", count);
            given.extend(pfns.iter().copied().map(page));

            // A bitmap over itself is of no use to its driver.
            let alone = |(i, a): (usize, &Range<u64>)| written[..i].iter().all(|b| !overlap(a, b));
            if readable_all && written.iter().enumerate().all(alone) {
                let bits: Vec<u8> = written.iter().cloned().flat_map(|r| machine.bytes(r)).collect();
                for (n, pfn) in pfns.iter().enumerate() {
                    if bits.get(n / 8).is_none_or(|byte| byte & (1 << (n % 8)) == 0) {
                        continue;
                    }
                    let page = page(*pfn);
                    prop_assert!(is_ram(&page), "{:#x} is promised", pfn);
                    prop_assert!(machine.holds(page.clone(), 0), "{:#x} is promised", pfn);
                    let bad = failing.as_ref().is_some_and(|bad| overlap(bad, &page));
                    prop_assert!(!bad, "{:#x} could not be zeroed", pfn);
                }
            }
            let asked_for: Vec<_> = given.iter().chain(&written).collect();
            let after = machine.bytes(LOW);
            let pages = before.chunks(PAGE as usize).zip(after.chunks(PAGE as usize));
            for (start, _) in (0..).step_by(PAGE as usize).zip(pages).filter(|(_, (b, a))| b != a) {
                let page = start..start + PAGE;
                if overlap(&page, &RINGS) {
                    continue;
                }
                let at = |addr: u64| (before[addr as usize], after[addr as usize]);
                for addr in page.clone().filter(|addr| at(*addr).0 != at(*addr).1) {
                    let asked = asked_for.iter().any(|r| r.contains(&addr));
                    prop_assert!(asked, "{:#x} was written to", addr);
                }
            }
        }
    }
}
