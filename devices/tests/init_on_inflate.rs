//! Checklist, section the new bits: what belongs to DEVICE_INIT_ON_INFLATE (N03
//! to N13). Each case runs with the bit and, as its baseline, without it.

use devices::balloon::device::{Balloon, BalloonSpec, Reclaim};
use devices::balloon::host_zeroes::ZeroBy;
use vm_memory::{Bytes, GuestAddress};

use crate::fake_guest::driver::KNOWN;
use crate::fake_guest::host::Call;
use crate::fake_guest::machine::range;
use crate::fake_guest::{
    BITMAP, Buf, DEVICE_INIT_ON_INFLATE, Driver, FREE, HUGE, LOW, MUST_TELL_HOST, Machine,
    Numbering, PAGE, Queue, SCRATCH, readable, reporting_spec, writable,
};

/// Page numbers of one huge page.
const FIRST: u32 = (FREE / PAGE) as u32;
const PER_HUGE: u32 = (HUGE / PAGE) as u32;
/// What a bitmap holds before the request.
const CANARY: u8 = 0xcc;
const BIT_7: u64 = DEVICE_INIT_ON_INFLATE;

fn spec(on_inflate: Reclaim) -> BalloonSpec {
    BalloonSpec {
        must_tell_host: true,
        device_init_on_inflate: true,
        on_inflate,
        ..reporting_spec()
    }
}

/// All of guest RAM that tests inflate is dirty.
fn machine(on_inflate: Reclaim) -> Machine {
    let machine = Machine::new(spec(on_inflate));
    machine.fill(FREE..FREE + 4 * HUGE, 0xaa);
    machine
}

fn start(machine: &Machine) -> Driver<'_> {
    let features = KNOWN | MUST_TELL_HOST | BIT_7;
    Driver::with(machine, features, Numbering::Dense, 64)
}

/// Same, without bit 7.
fn baseline(machine: &Machine) -> Driver<'_> {
    Driver::with(machine, KNOWN | MUST_TELL_HOST, Numbering::Dense, 64)
}

fn page(pfn: u32) -> std::ops::Range<u64> {
    let start = u64::from(pfn) * PAGE;
    start..start + PAGE
}

fn fail(machine: &Machine, pfns: &[u32]) {
    for pfn in pfns {
        machine.ram.fail(range(u64::from(*pfn) * PAGE, PAGE));
    }
}

/// The page numbers of a huge page in an order without neighbours.
fn shuffled(first: u32) -> Vec<u32> {
    (0..PER_HUGE).map(|i| first + i * 77 % PER_HUGE).collect()
}

fn promised(machine: &Machine, driver: &mut Driver<'_>) -> u64 {
    driver.settle();
    machine.balloon.counters().inflate_promised_pages
}

#[test]
fn n06_bit_n_is_the_nth_page_number_of_the_request() {
    for on_inflate in [Reclaim::Discard, Reclaim::Zero] {
        let machine = machine(on_inflate);
        let mut driver = start(&machine);
        fail(&machine, &[FIRST, FIRST + 1, FIRST + 3]);
        let pfns = [FIRST + 3, FIRST, FIRST + 2, FIRST + 1];
        let answer = driver.inflate_for_bitmap(&pfns, 1);
        assert_eq!(answer, (1, vec![0b0100]), "{on_inflate:?}");
        assert!(machine.holds(page(FIRST + 2), 0));
        assert_eq!(promised(&machine, &mut driver), 1);
        let counters = machine.balloon.counters();
        assert_eq!(counters.inflate_zeroed_bytes, PAGE);
        assert_eq!(counters.zero_failures, 3);
    }
}

#[test]
fn n07_the_used_length_is_what_was_needed_and_given() {
    let pfns: Vec<u32> = (FIRST..FIRST + 20).collect();
    for (room, used) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5000, 3)] {
        let machine = machine(Reclaim::Discard);
        let mut driver = start(&machine);
        let (len, bitmap) = driver.inflate_for_bitmap(&pfns, room);
        assert_eq!(len, used, "{room} bytes given");
        let (written, beyond) = bitmap.split_at(used as usize);
        assert_eq!(written, &[0xff, 0xff, 0x0f][..used as usize]);
        assert!(beyond.iter().all(|byte| *byte == CANARY), "beyond it");
        let expected = u64::from(8 * used).min(20);
        assert_eq!(promised(&machine, &mut driver), expected);
    }
}

#[test]
fn n08_a_request_without_a_bitmap_works_and_promises_nothing() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    assert_eq!(driver.name_pages(Queue::Inflate, &shuffled(FIRST)), 0);
    assert_eq!(promised(&machine, &mut driver), 0);
    let counters = machine.balloon.counters();
    assert_eq!(counters.inflated_pages, 512);
    assert_eq!(counters.inflate_released_bytes, HUGE);
    assert_eq!(
        driver.submit(Queue::Inflate, &[]),
        0,
        "nor one without pages"
    );
    assert_eq!(driver.submit(Queue::Inflate, &[writable(BITMAP, 8)]), 0);
}

#[test]
fn n09_page_numbers_and_bitmap_may_be_cut_anywhere() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let pfns: Vec<u32> = (FIRST..FIRST + 12).collect();
    machine.put_pfns(SCRATCH, &pfns);
    fail(&machine, &[FIRST + 1, FIRST + 11]);
    machine.fill(BITMAP..BITMAP + 0x3000, CANARY);
    // In memory the parts are no neighbours, and the numbers are cut inside.
    let bytes = machine.bytes(SCRATCH..SCRATCH + 48);
    let mut chain: Vec<Buf> = Vec::new();
    for (i, part) in (1..).zip([&bytes[..3], &bytes[3..29], &[], &bytes[29..]]) {
        let at = SCRATCH + 0x1000 * i + 1;
        machine.memory.write_slice(part, GuestAddress(at)).unwrap();
        chain.push(readable(at, part.len() as u32));
    }
    chain.extend([
        writable(BITMAP + 1, 1),
        writable(BITMAP + 0x1000, 0),
        writable(BITMAP + 0x2003, 1),
        writable(BITMAP + 0x2fff, 1),
    ]);
    assert_eq!(driver.submit(Queue::Inflate, &chain), 2);
    let written = [BITMAP + 1, BITMAP + 0x2003];
    for (at, expected) in written.into_iter().zip([0b1111_1101, 0b0111]) {
        assert!(machine.holds(at..at + 1, expected), "{at:#x}");
    }
    let canaries = machine.bytes(BITMAP..BITMAP + 0x3000);
    let changed = canaries.iter().filter(|byte| **byte != CANARY).count();
    assert_eq!(changed, 2, "and nothing else was written");
}

#[test]
fn n10_a_huge_page_in_any_order_has_all_its_bits_and_is_released_once() {
    let reversed: Vec<u32> = (FIRST..FIRST + PER_HUGE).rev().collect();
    let mut with_twins = shuffled(FIRST);
    with_twins.insert(7, with_twins[200]);
    with_twins.push(with_twins[0]);
    for pfns in [reversed, shuffled(FIRST), with_twins] {
        let machine = machine(Reclaim::Discard);
        let mut driver = start(&machine);
        let room = pfns.len().div_ceil(8) as u32;
        let (used, bitmap) = driver.inflate_for_bitmap(&pfns, room);
        assert_eq!(used, room);
        let ones: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones as usize, pfns.len());
        let call = Call::Zero(range(FREE, HUGE), ZeroBy::Discarding);
        assert_eq!(machine.ram.calls(), [call], "one call for all of it");
        let counters = machine.balloon.counters();
        assert_eq!(counters.inflate_released_bytes, HUGE);
        assert_eq!(counters.inflate_zeroed_bytes, HUGE);
        assert_eq!(counters.inflated_pages, 512);
    }
}

#[test]
fn n10_a_huge_page_over_two_requests_is_promised_in_each_for_its_own_pages() {
    for agreed in [false, true] {
        let machine = machine(Reclaim::Discard);
        let features = KNOWN | BIT_7 | if agreed { MUST_TELL_HOST } else { 0 };
        let mut driver = Driver::with(&machine, features, Numbering::Dense, 64);
        let pfns = shuffled(FIRST);
        for part in pfns.chunks(256) {
            let answer = driver.inflate_for_bitmap(part, 32);
            assert_eq!(answer, (32, vec![0xff; 32]));
        }
        assert!(machine.holds(FREE..FREE + HUGE, 0));
        let counters = machine.balloon.counters();
        let released = if agreed { HUGE } else { 0 };
        assert_eq!(counters.inflate_released_bytes, released, "{agreed}");
        assert_eq!(counters.inflate_zeroed_bytes, HUGE);
        assert_eq!(promised(&machine, &mut driver), 512);
    }
}

#[test]
fn n11_what_was_promised_reads_zero_until_it_is_deflated() {
    for on_inflate in [Reclaim::Discard, Reclaim::Zero] {
        let machine = machine(on_inflate);
        let mut driver = start(&machine);
        let pfns = shuffled(FIRST);
        let (_, bitmap) = driver.inflate_for_bitmap(&pfns[..8], 1);
        assert_eq!(bitmap, [0xff]);
        // Whatever goes on around it: failures, a discard of the whole page,
        // and pages that come twice.
        machine.ram.fail(range(FREE, HUGE));
        let (_, bitmap) = driver.inflate_for_bitmap(&pfns[..16], 2);
        assert_eq!(bitmap, [0, 0], "the last word counts");
        for part in pfns[16..].chunks(100) {
            driver.name_pages(Queue::Inflate, part);
        }
        driver.submit(Queue::Reporting, &[writable(FREE, HUGE as u32)]);
        for pfn in &pfns[..8] {
            assert!(machine.holds(page(*pfn), 0), "{on_inflate:?} {pfn:#x}");
        }
        driver.name_pages(Queue::Deflate, &pfns[..8]);
        for pfn in &pfns[..8] {
            assert!(machine.holds(page(*pfn), 0), "a deflate touches nothing");
        }
    }
}

#[test]
fn n12_without_the_bit_a_bitmap_is_left_alone_and_nothing_is_zeroed_for_it() {
    let machine = machine(Reclaim::Discard);
    let pfns = [FIRST, FIRST + 5, FIRST + 9];
    let mut driver = baseline(&machine);
    let answer = driver.inflate_for_bitmap(&pfns, 2);
    assert_eq!(answer, (0, vec![CANARY; 2]));
    assert!(pfns.iter().all(|pfn| machine.holds(page(*pfn), 0xaa)));
    assert!(machine.ram.calls().is_empty());
    let counters = machine.balloon.counters();
    assert_eq!(counters.inflate_zeroed_bytes, 0);
    assert_eq!(counters.inflate_promised_pages, 0);
    // The same with the bit.
    let mut driver = start(&machine);
    let answer = driver.inflate_for_bitmap(&pfns, 2);
    assert_eq!(answer, (1, vec![0b111, CANARY]));
    assert!(pfns.iter().all(|pfn| machine.holds(page(*pfn), 0)));
}

#[test]
fn n13_unused_bits_of_the_last_byte_are_0() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let pfns: Vec<u32> = (FIRST..FIRST + 9).collect();
    let answer = driver.inflate_for_bitmap(&pfns, 3);
    assert_eq!(answer, (2, vec![0xff, 0x01, CANARY]));
}

#[test]
fn n05_a_page_the_host_cannot_zero_has_no_bit_and_takes_no_other_along() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let pfns: Vec<u32> = (FIRST..FIRST + PER_HUGE).collect();
    // The discard of the whole page fails, and so does one of its pages.
    fail(&machine, &[FIRST + 10]);
    let (used, bitmap) = driver.inflate_for_bitmap(&pfns, 64);
    assert_eq!(used, 64);
    let mut expected = [0xff; 64];
    expected[1] = 0b1111_1011;
    assert_eq!(bitmap, expected);
    let others = pfns.iter().filter(|pfn| **pfn != FIRST + 10);
    assert!(others.copied().all(|pfn| machine.holds(page(pfn), 0)));
    let counters = machine.balloon.counters();
    assert_eq!(counters.inflate_zeroed_bytes, HUGE - PAGE);
    assert_eq!(counters.inflate_released_bytes, 0);
}

#[test]
fn i09_page_numbers_that_are_not_ram_have_no_bit() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let hole = (LOW.end / PAGE) as u32;
    let pfns = [u32::MAX, FIRST, hole, hole - 1, FIRST + 1, 0xfee00];
    let answer = driver.inflate_for_bitmap(&pfns, 1);
    assert_eq!(answer, (1, vec![0b01_1010]));
    assert_eq!(machine.balloon.counters().not_ram, 3);
}

#[test]
fn n03_neighbours_are_joined_whatever_their_order() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let pfns = [4, 1, 3, 2, 9, 8].map(|i| FIRST + i);
    driver.inflate_for_bitmap(&pfns, 1);
    let writing = |i, pages| {
        let range = range(FREE + i * PAGE, pages * PAGE);
        Call::Zero(range, ZeroBy::Writing)
    };
    assert_eq!(machine.ram.calls(), [writing(1, 4), writing(8, 2)]);
}

#[test]
fn b07_after_a_reset_a_promise_is_made_afresh() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let (_, bitmap) = driver.inflate_for_bitmap(&[FIRST], 1);
    assert_eq!(bitmap, [1]);
    driver = baseline(&machine);
    assert_eq!(driver.inflate_for_bitmap(&[FIRST], 1), (0, vec![CANARY]));
    machine.fill(page(FIRST), 0xaa);
    driver = start(&machine);
    let (_, bitmap) = driver.inflate_for_bitmap(&[FIRST], 1);
    assert_eq!(bitmap, [1]);
    assert!(machine.holds(page(FIRST), 0));
}

#[test]
fn bit_7_is_offered_when_asked_for_and_refused_where_nothing_is_zeroed() {
    let names = |machine: &Machine| machine.balloon.features().offered.join(" ");
    let with = machine(Reclaim::Discard);
    assert!(names(&with).contains("DEVICE_INIT_ON_INFLATE"));
    let without = Machine::new(BalloonSpec {
        device_init_on_inflate: false,
        ..spec(Reclaim::Discard)
    });
    assert!(!names(&without).contains("DEVICE_INIT_ON_INFLATE"));
    let (memory, ram, line) = (with.memory.clone(), with.ram.clone(), with.line.clone());
    let refused = Balloon::new(spec(Reclaim::Keep), memory, ram, line).err();
    let refused = refused.expect("refused").to_string();
    assert!(refused.contains("keep"), "{refused}");
}
