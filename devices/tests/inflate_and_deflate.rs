//! Checklist, section inflate / deflate: I01 to I17. Whole backing pages go back
//! whenever their last page comes, if the driver agreed to MUST_TELL_HOST; the
//! baseline is one that did not.

use std::time::{Duration, Instant};

use devices::balloon::device::{BalloonSpec, Reclaim};
use devices::balloon::host_zeroes::ZeroBy;
use vm_memory::GuestAddress;

use crate::fake_guest::driver::{KNOWN, NEEDS_RESET, reg, ring_base};
use crate::fake_guest::host::Call;
use crate::fake_guest::machine::{range, wait_until};
use crate::fake_guest::{
    Driver, FREE, HIGH, HUGE, LOW, MUST_TELL_HOST, Machine, Numbering, PAGE, Queue, SCRATCH,
    readable, reporting_spec,
};

/// Page numbers of one huge page, and those after it.
const FIRST: u32 = (FREE / PAGE) as u32;
const PER_HUGE: u32 = (HUGE / PAGE) as u32;

fn spec(on_inflate: Reclaim) -> BalloonSpec {
    BalloonSpec {
        must_tell_host: true,
        on_inflate,
        ..reporting_spec()
    }
}

fn machine() -> Machine {
    Machine::new(spec(Reclaim::Discard))
}

/// A driver that agrees to MUST_TELL_HOST.
fn start(machine: &Machine) -> Driver<'_> {
    Driver::with(machine, KNOWN | MUST_TELL_HOST, Numbering::Dense, 64)
}

fn releases(machine: &Machine) -> Vec<(u64, u64)> {
    let calls = machine.ram.calls().into_iter();
    calls
        .map(|call| match call {
            Call::Release(range) => (range.start(), range.len()),
            Call::Zero(..) => panic!("inflating does not zero: {call:?}"),
        })
        .collect()
}

fn released(machine: &Machine) -> u64 {
    machine.balloon.counters().inflate_released_bytes
}

/// The page numbers of a huge page in an order without neighbours: a step that
/// has no divisor in common with 512.
fn shuffled(first: u32) -> Vec<u32> {
    (0..PER_HUGE).map(|i| first + i * 77 % PER_HUGE).collect()
}

#[test]
fn i01_a_page_number_counts_4_kib() {
    let region = (GuestAddress(0), 4 << 20);
    let machine = Machine::with_pages(spec(Reclaim::Discard), &[region], PAGE);
    let mut driver = start(&machine);
    machine.fill(FREE..FREE + 3 * PAGE, 0xaa);
    driver.name_pages(Queue::Inflate, &[FIRST + 1]);
    assert_eq!(releases(&machine), [(FREE + 4096, 4096)]);
    assert!(machine.holds(FREE..FREE + PAGE, 0xaa));
    assert!(machine.holds(FREE + PAGE..FREE + 2 * PAGE, 0));
    assert!(machine.holds(FREE + 2 * PAGE..FREE + 3 * PAGE, 0xaa));
}

#[test]
fn i02_i03_memory_changes_before_the_ack_and_not_after() {
    let machine = machine();
    let mut driver = start(&machine);
    machine.fill(FREE..FREE + HUGE, 0xaa);
    driver.name_pages(Queue::Inflate, &shuffled(FIRST));
    assert!(machine.holds(FREE..FREE + HUGE, 0), "released at the ack");
    machine.fill(FREE..FREE + HUGE, 0xbb);
    driver.settle();
    std::thread::sleep(Duration::from_millis(50));
    assert!(machine.holds(FREE..FREE + HUGE, 0xbb), "untouched after it");
}

#[test]
fn i04_a_huge_page_in_any_order_in_one_request_is_released_once() {
    let machine = machine();
    let mut driver = start(&machine);
    driver.name_pages(Queue::Inflate, &shuffled(FIRST));
    assert_eq!(releases(&machine), [(FREE, HUGE)], "merged into one call");
    let counters = machine.balloon.counters();
    assert_eq!(counters.inflated_pages, 512);
    assert_eq!(counters.inflate_released_bytes, HUGE);
    assert_eq!(counters.reported_bytes, 0, "another queue's counter");
}

#[test]
fn i05_a_huge_page_over_several_requests_is_released_with_the_last() {
    for parts in [2, 3, 512] {
        let machine = machine();
        let mut driver = start(&machine);
        machine.fill(FREE..FREE + HUGE, 0xaa);
        let pfns = shuffled(FIRST);
        let requests: Vec<_> = pfns.chunks(pfns.len().div_ceil(parts)).collect();
        let (last, earlier) = requests.split_last().unwrap();
        for pfns in earlier {
            driver.name_pages(Queue::Inflate, pfns);
        }
        assert!(machine.ram.calls().is_empty(), "{parts}: not whole yet");
        assert!(machine.holds(FREE..FREE + HUGE, 0xaa));
        driver.name_pages(Queue::Inflate, last);
        assert_eq!(releases(&machine), [(FREE, HUGE)], "{parts}");
        assert!(machine.holds(FREE..FREE + HUGE, 0), "before the ack");
        assert_eq!(machine.balloon.counters().inflated_pages, 512);
    }
}

/// Such a driver may be using a page again whose deflate request has not been
/// seen yet (O-dr8), so nothing is done to pages of earlier requests (O-dv1).
#[test]
fn i02_i05_without_must_tell_host_pages_never_change_after_their_ack() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    machine.fill(FREE..FREE + HUGE, 0xaa);
    let pfns = shuffled(FIRST);
    driver.name_pages(Queue::Inflate, &pfns[..256]);
    driver.name_pages(Queue::Inflate, &pfns[256..]);
    assert!(machine.ram.calls().is_empty());
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa));
    // All in one request is all of it not acked yet.
    driver.name_pages(Queue::Inflate, &pfns);
    assert_eq!(releases(&machine), [(FREE, HUGE)]);
}

#[test]
fn i06_two_huge_pages_by_turns_are_both_released() {
    let other = FIRST + 2 * PER_HUGE;
    let pairs = shuffled(FIRST).into_iter().zip(shuffled(other));
    let pfns: Vec<u32> = pairs.flat_map(|(a, b)| [a, b]).collect();
    for size in [1024, 256, 7] {
        let machine = machine();
        let mut driver = start(&machine);
        for pfns in pfns.chunks(size) {
            driver.name_pages(Queue::Inflate, pfns);
        }
        assert_eq!(released(&machine), 2 * HUGE, "{size} in a request");
        let mut calls = releases(&machine);
        calls.sort_unstable();
        assert_eq!(calls, [(FREE, HUGE), (FREE + 2 * HUGE, HUGE)]);
    }
}

#[test]
fn i07_a_page_taken_out_is_missing_until_it_comes_again() {
    let machine = machine();
    let mut driver = start(&machine);
    machine.fill(FREE..FREE + HUGE, 0xaa);
    let pfns = shuffled(FIRST);
    let (last, others) = pfns.split_last().unwrap();
    let taken = others[300];
    driver.name_pages(Queue::Inflate, others);
    driver.name_pages(Queue::Deflate, &[taken]);
    driver.name_pages(Queue::Inflate, &[*last]);
    assert!(machine.ram.calls().is_empty(), "one page is the guest's");
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa), "with its contents");
    for round in 1..=3 {
        driver.name_pages(Queue::Inflate, &[taken]);
        assert_eq!(released(&machine), round * HUGE, "whole again");
        driver.name_pages(Queue::Deflate, &[taken]);
    }
}

#[test]
fn i08_a_page_named_twice_does_not_count_twice() {
    let machine = machine();
    let mut driver = start(&machine);
    let mut pfns = shuffled(FIRST);
    let (missing, twice) = (pfns[100], pfns[101]);
    pfns[100] = twice;
    driver.name_pages(Queue::Inflate, &pfns);
    driver.name_pages(Queue::Inflate, &pfns[..200]);
    let counters = machine.balloon.counters();
    assert_eq!(counters.inflated_pages, 511 + 199, "once for a request");
    assert_eq!(released(&machine), 0, "one page is missing");
    driver.name_pages(Queue::Inflate, &[missing, missing]);
    assert_eq!(released(&machine), HUGE);
    driver.name_pages(Queue::Inflate, &pfns[..200]);
    assert_eq!(released(&machine), HUGE, "they were all in it already");
}

#[test]
fn b07_after_a_reset_nothing_is_in_the_balloon() {
    for reset in [false, true] {
        let machine = machine();
        let pfns = shuffled(FIRST);
        let mut driver = start(&machine);
        driver.name_pages(Queue::Inflate, &pfns[..511]);
        if reset {
            driver = start(&machine);
        }
        driver.name_pages(Queue::Inflate, &pfns[511..]);
        let expected = if reset { 0 } else { HUGE };
        assert_eq!(released(&machine), expected, "reset: {reset}");
        driver.name_pages(Queue::Inflate, &pfns);
        assert_eq!(released(&machine), HUGE + expected, "reset: {reset}");
    }
}

#[test]
fn what_the_policy_says_is_done_without_bit_7() {
    // Policy, contents after it, bytes zeroed and released, calls.
    let writing = Call::Zero(range(FREE, HUGE), ZeroBy::Writing);
    let table = [
        (
            Reclaim::Discard,
            0,
            (0, HUGE),
            vec![Call::Release(range(FREE, HUGE))],
        ),
        (Reclaim::Zero, 0, (HUGE, 0), vec![writing]),
        (Reclaim::Keep, 0xaa, (0, 0), vec![]),
    ];
    for (on_inflate, contents, done, calls) in table {
        let machine = Machine::new(spec(on_inflate));
        let mut driver = start(&machine);
        machine.fill(FREE..FREE + 2 * HUGE, 0xaa);
        assert_eq!(driver.name_pages(Queue::Inflate, &shuffled(FIRST)), 0);
        assert_eq!(machine.ram.calls(), calls, "{on_inflate:?}");
        assert!(machine.holds(FREE..FREE + HUGE, contents));
        assert!(machine.holds(FREE + HUGE..FREE + 2 * HUGE, 0xaa));
        let counters = machine.balloon.counters();
        let counted = (
            counters.inflate_zeroed_bytes,
            counters.inflate_released_bytes,
        );
        assert_eq!(counted, done, "{on_inflate:?}");
        assert_eq!(counters.inflate_promised_pages, 0);
        assert_eq!(counters.inflated_pages, 512);
    }
}

#[test]
fn i09_pages_that_are_not_ram_are_skipped_and_counted() {
    let machine = machine();
    let mut driver = start(&machine);
    let hole = (LOW.end / PAGE) as u32;
    let after = (HIGH.end / PAGE) as u32;
    let pfns = [u32::MAX, hole, hole - 1, 0xfee00, after, after - 1, FIRST];
    driver.name_pages(Queue::Inflate, &pfns);
    let counters = machine.balloon.counters();
    assert_eq!((counters.inflated_pages, counters.not_ram), (3, 4));
    driver.name_pages(Queue::Deflate, &pfns);
    let counters = machine.balloon.counters();
    assert_eq!((counters.deflated_pages, counters.not_ram), (3, 8));
}

#[test]
fn i10_a_gigantic_request_is_completed_in_bounded_time() {
    let machine = machine();
    let mut driver = start(&machine);
    let gib = 1 << 30;
    for queue in [Queue::Inflate, Queue::Deflate] {
        let start = Instant::now();
        // All of it cannot be read; no more than guest RAM has pages is.
        driver.submit(queue, &[readable(SCRATCH, gib)]);
        driver.submit(queue, &[readable(HIGH.end - 4, gib)]);
        driver.submit(queue, &[readable(SCRATCH, gib); 3]);
        let took = start.elapsed();
        assert!(took < Duration::from_millis(500), "{queue:?}: {took:?}");
    }
    driver.settle();
    assert_eq!(machine.balloon.counters().malformed_chains, 6);
}

#[test]
fn i11_a_tail_that_is_no_whole_number_is_ignored() {
    let machine = machine();
    let mut driver = start(&machine);
    machine.put_pfns(SCRATCH, &[FIRST, FIRST + 1, FIRST + 2]);
    for (len, pages) in [(10, 2), (3, 2), (11, 4), (12, 7)] {
        driver.submit(Queue::Inflate, &[readable(SCRATCH, len)]);
        let counters = machine.balloon.counters();
        assert_eq!(counters.inflated_pages, pages, "after {len} bytes more");
    }
}

#[test]
fn i12_a_guest_that_gives_its_own_rings_away_hurts_only_itself() {
    let machine = machine();
    // The rings lie in the first huge page.
    let pfns: Vec<u32> = (0..PER_HUGE).collect();
    assert!(ring_base(4) < HUGE);
    let mut driver = start(&machine);
    let len = machine.put_pfns(FREE, &pfns);
    driver[Queue::Inflate].write_chain(0, &[readable(FREE, len)]);
    driver[Queue::Inflate].make_available(0);
    driver.kick(Queue::Inflate);
    wait_until("release", || {
        machine.balloon.counters().inflate_released_bytes == HUGE
    });
    // A reset waits for the worker, and starts over.
    machine.write(reg::STATUS, 0);
    let mut driver = start(&machine);
    assert_eq!(driver.name_pages(Queue::Deflate, &pfns), 0);
    assert_eq!(driver.status() & NEEDS_RESET, 0);
}

#[test]
fn i13_i14_deflate_is_always_acknowledged() {
    let machine = machine();
    let mut driver = start(&machine);
    machine.balloon.set_target_pages(4096).unwrap();
    machine.fill(FREE..FREE + HUGE, 0xaa);
    // Never inflated, and with a target that asks for more.
    assert_eq!(driver.name_pages(Queue::Deflate, &[FIRST, FIRST + 1]), 0);
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa));
    assert_eq!(machine.balloon.counters().deflated_pages, 2);
}

#[test]
fn i16_actual_is_for_display_only() {
    let machine = machine();
    machine.write(reg::CONFIG + 4, u32::MAX);
    let pages = (LOW.end + HIGH.end - HIGH.start) / PAGE;
    assert_eq!(
        machine.balloon.actual_pages(),
        pages,
        "clamped to guest RAM"
    );
    assert_eq!(
        machine.read(reg::CONFIG + 4),
        u32::MAX,
        "the guest's own word"
    );
}

#[test]
fn i17_a_target_larger_than_ram_is_refused_by_numbers() {
    let machine = machine();
    machine.balloon.set_target_pages(8192).unwrap();
    let error = machine.balloon.set_target_pages(8193).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("8193") && message.contains("8192"),
        "{message}"
    );
    assert_eq!(machine.read(reg::CONFIG), 8192, "the old target stays");
}

#[test]
fn page_numbers_that_are_not_in_ram_make_a_request_malformed_as_a_whole() {
    let machine = machine();
    let mut driver = start(&machine);
    machine.put_pfns(SCRATCH, &[FIRST]);
    let chain = [readable(SCRATCH, 4), readable(20 << 20, 4)];
    assert_eq!(driver.submit(Queue::Inflate, &chain), 0);
    driver.settle();
    let counters = machine.balloon.counters();
    assert_eq!((counters.malformed_chains, counters.inflated_pages), (1, 0));
    assert!(machine.ram.calls().is_empty());
}

#[test]
fn a_host_that_refuses_a_page_does_not_stop_the_others() {
    let machine = machine();
    let mut driver = start(&machine);
    machine.ram.fail(range(FREE, HUGE));
    let mut pfns = shuffled(FIRST);
    pfns.extend(shuffled(FIRST + 2 * PER_HUGE));
    driver.name_pages(Queue::Inflate, &pfns);
    let counters = machine.balloon.counters();
    assert_eq!(counters.zero_failures, 1);
    assert_eq!(counters.inflate_released_bytes, HUGE);
    assert_eq!(counters.inflated_pages, 1024);
}

#[test]
fn more_page_numbers_than_are_read_at_a_time_are_all_handled() {
    // 65,536 numbers are read at a time; this guest has 131,072 pages, which
    // are mapped and never touched.
    let size = 512 << 20;
    let machine = Machine::with_memory(spec(Reclaim::Discard), &[(GuestAddress(0), size)]);
    let mut driver = start(&machine);
    let pfns: Vec<u32> = (1024..1024 + 70_000).collect();
    let len = machine.put_pfns(FREE, &pfns);
    driver.submit(Queue::Deflate, &[readable(FREE, len)]);
    assert_eq!(machine.balloon.counters().deflated_pages, 70_000);
}
