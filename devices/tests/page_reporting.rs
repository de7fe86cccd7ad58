//! Checklist, section free page reporting: R01 to R10.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use devices::balloon::device::{BalloonSpec, Reclaim};
use devices::balloon::host_zeroes::ZeroBy;
use vm_memory::GuestAddress;

use crate::fake_guest::driver::{KNOWN, reg};
use crate::fake_guest::host::Call;
use crate::fake_guest::machine::{range, wait_until};
use crate::fake_guest::{
    Buf, DEVICE_INIT_REPORTED, Driver, FREE, HIGH, HUGE, LOW, Machine, Numbering, Queue, readable,
    reporting_spec, writable,
};

const H: u32 = HUGE as u32;

fn machine(on_report: Reclaim) -> Machine {
    Machine::new(BalloonSpec {
        on_report,
        device_init_reported: on_report != Reclaim::Keep,
        ..reporting_spec()
    })
}

/// With bit 6 where the device offers it.
fn start(machine: &Machine) -> Driver<'_> {
    let offered = machine.balloon.features().offered;
    let told = offered.iter().any(|name| name == "DEVICE_INIT_REPORTED");
    let bit_6 = if told { 0 } else { DEVICE_INIT_REPORTED };
    Driver::with(machine, KNOWN & !bit_6, Numbering::Dense, 64)
}

/// Same, without bit 6.
fn baseline(machine: &Machine) -> Driver<'_> {
    Driver::with(machine, KNOWN & !DEVICE_INIT_REPORTED, Numbering::Dense, 64)
}

#[test]
fn r01_a_chain_of_32_entries_is_processed_whole_and_acked_once() {
    let size = 128 << 20;
    let machine = Machine::with_memory(reporting_spec(), &[(GuestAddress(0), size)]);
    let mut driver = start(&machine);
    // Every other huge page: nothing to merge.
    let entries: Vec<Buf> = (0..31)
        .map(|i| writable(FREE + 2 * i * HUGE, H))
        .chain([writable(FREE + HUGE, H)])
        .collect();
    let len = driver.submit(Queue::Reporting, &entries);
    assert_eq!(len, 32 * H);
    assert_eq!(driver[Queue::Reporting].used_index(), 1);
    driver.settle();
    let counters = machine.balloon.counters();
    assert_eq!(counters.reports, 1);
    assert_eq!(counters.reported_bytes, 32 * HUGE);
    assert_eq!(counters.zeroed_bytes, 32 * HUGE);
    assert_eq!(counters.released_bytes, 32 * HUGE);
    assert_eq!(counters.promised_bytes, 32 * HUGE);
}

#[test]
fn r01_neighbours_in_one_chain_are_one_call_in_any_order() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let order = [2, 0, 1];
    let entries = order.map(|i| writable(FREE + i * HUGE, H));
    assert_eq!(driver.submit(Queue::Reporting, &entries), 3 * H);
    let merged = range(FREE, 3 * HUGE);
    assert_eq!(
        machine.ram.calls(),
        [Call::Zero(merged, ZeroBy::Discarding)]
    );
}

#[test]
fn r02_memory_changes_before_the_ack_and_not_after() {
    for on_report in [Reclaim::Discard, Reclaim::Zero] {
        let machine = machine(on_report);
        let mut driver = start(&machine);
        machine.fill(FREE..FREE + HUGE, 0xaa);
        driver.submit(Queue::Reporting, &[writable(FREE, H)]);
        assert!(machine.holds(FREE..FREE + HUGE, 0), "{on_report:?}");
        machine.fill(FREE..FREE + HUGE, 0xbb);
        driver.settle();
        assert!(machine.holds(FREE..FREE + HUGE, 0xbb), "{on_report:?}");
    }
}

#[test]
fn r03_without_bit_6_nothing_is_promised_even_on_success() {
    let table = [
        (Reclaim::Discard, HUGE, HUGE),
        (Reclaim::Zero, 0, HUGE),
        (Reclaim::Keep, 0, 0),
    ];
    for (on_report, released, zeroed) in table {
        let machine = machine(on_report);
        let mut driver = baseline(&machine);
        let len = driver.submit(Queue::Reporting, &[writable(FREE, H)]);
        assert_eq!(len, 0, "{on_report:?}");
        driver.settle();
        let counters = machine.balloon.counters();
        assert_eq!(counters.reported_bytes, HUGE);
        assert_eq!(counters.released_bytes, released, "{on_report:?}");
        assert_eq!(counters.zeroed_bytes, zeroed, "{on_report:?}");
        assert_eq!(counters.promised_bytes, 0);
        assert_eq!(counters.reports, 1);
    }
}

#[test]
fn r03_kept_reports_are_counted_and_left_alone() {
    let machine = machine(Reclaim::Keep);
    let mut driver = start(&machine);
    machine.fill(FREE..FREE + HUGE, 0xaa);
    assert_eq!(driver.submit(Queue::Reporting, &[writable(FREE, H)]), 0);
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa));
    assert!(machine.ram.calls().is_empty());
    assert_eq!(machine.balloon.counters().reported_bytes, HUGE);
}

#[test]
fn r04_an_entry_that_reaches_out_of_ram_is_skipped_not_cut() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let outside = [
        writable(LOW.end - HUGE, 2 * H),
        writable(HIGH.start - HUGE, 2 * H),
        writable(HIGH.end - 4096, 8192),
        writable(20 << 20, H),
        writable(u64::MAX - 4096, 4096),
        writable(u64::MAX, 4096),
    ];
    machine.fill(LOW.end - HUGE..LOW.end, 0xaa);
    for (count, entry) in (1..).zip(outside) {
        let chain = [entry, writable(FREE, H)];
        assert_eq!(driver.submit(Queue::Reporting, &chain), 0, "{entry:x?}");
        let counters = machine.balloon.counters();
        assert_eq!(counters.not_ram, count);
        assert_eq!(counters.reported_bytes, count * HUGE, "the good entry only");
    }
    assert!(machine.holds(LOW.end - HUGE..LOW.end, 0xaa));
    let chain = [writable(FREE, H), outside[0], writable(FREE + HUGE, H)];
    assert_eq!(
        driver.submit(Queue::Reporting, &chain),
        H,
        "up to the bad one"
    );
}

#[test]
fn r05_r06_edges_and_small_entries_are_zeroed_and_not_released() {
    let table = [
        // Start beyond a huge page, length, whole pages inside.
        (1 << 20, 3 << 20, HUGE),
        (0, 4096, 0),
        (4096, HUGE - 4096, 0),
        (1, 1, 0),
        (HUGE - 1, HUGE + 2, HUGE),
    ];
    for (start_at, len, released) in table {
        let machine = machine(Reclaim::Discard);
        let mut driver = start(&machine);
        machine.fill(FREE..FREE + 3 * HUGE, 0xaa);
        let entry = FREE + start_at..FREE + start_at + len;
        let chain = [writable(entry.start, len as u32)];
        assert_eq!(driver.submit(Queue::Reporting, &chain), len as u32);
        assert!(machine.holds(entry.clone(), 0), "{entry:x?}");
        assert!(machine.holds(FREE..entry.start, 0xaa), "before it");
        assert!(machine.holds(entry.end..FREE + 3 * HUGE, 0xaa), "behind it");
        let counters = machine.balloon.counters();
        assert_eq!(
            (counters.zeroed_bytes, counters.released_bytes),
            (len, released)
        );
    }
}

#[test]
fn r07_a_readable_entry_is_no_report() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    machine.fill(FREE..FREE + HUGE, 0xaa);
    assert_eq!(driver.submit(Queue::Reporting, &[readable(FREE, H)]), 0);
    let chain = [readable(FREE, H), writable(FREE + HUGE, H)];
    assert_eq!(driver.submit(Queue::Reporting, &chain), H);
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa));
    assert_eq!(machine.balloon.counters().reported_bytes, HUGE);
}

#[test]
fn r08_lengths_whose_sum_overflows_32_bits_do_not_wrap() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    let big = u32::MAX - 4095;
    // Far more than RAM: none of it is RAM.
    let chain = [writable(0, big), writable(0, big), writable(FREE, H)];
    assert_eq!(driver.submit(Queue::Reporting, &chain), 0);
    // All of it RAM, many times over.
    let chain = [writable(8 << 20, 8 << 20); 63];
    assert_eq!(driver.submit(Queue::Reporting, &chain), 63 * (8 << 20));
    let len = (8 << 20) - 1;
    let chain: Vec<Buf> = (0..60).map(|_| writable(8 << 20, len)).collect();
    assert_eq!(driver.submit(Queue::Reporting, &chain), 60 * len);
}

#[test]
fn r09_a_failing_entry_does_not_stop_the_others() {
    for neighbours in [false, true] {
        let machine = machine(Reclaim::Discard);
        let mut driver = start(&machine);
        let step = if neighbours { HUGE } else { 2 * HUGE };
        let entry = |i| writable(FREE + i * step, H);
        machine.ram.fail(range(FREE + step, HUGE));
        let chain = [entry(0), entry(1), entry(2)];
        assert_eq!(driver.submit(Queue::Reporting, &chain), H);
        driver.settle();
        let counters = machine.balloon.counters();
        assert_eq!(counters.zeroed_bytes, 2 * HUGE, "neighbours: {neighbours}");
        assert_eq!(counters.zero_failures, 1, "neighbours: {neighbours}");
        assert_eq!(counters.promised_bytes, HUGE);
        let last = FREE + 2 * step..FREE + 2 * step + HUGE;
        assert!(machine.holds(last, 0), "the third one was zeroed");
    }
}

/// A host that discards several ranges in one go, as far as it gets, changes nothing
/// but how it does it.
#[test]
fn r09_together_or_alone_a_failing_entry_fails_alone() {
    let places = [FREE, FREE + 2 * HUGE, FREE + 3 * HUGE, HIGH.start];
    let report = |at_once| {
        let machine = machine(Reclaim::Discard);
        machine.ram.discard_at_once(at_once);
        machine.ram.fail(range(places[2], HUGE));
        let mut driver = start(&machine);
        machine.fill(FREE..FREE + 4 * HUGE, 0xaa);
        let used = driver.submit(Queue::Reporting, &places.map(|at| writable(at, H)));
        driver.settle();
        (
            used,
            machine.bytes(FREE..FREE + 4 * HUGE),
            machine.balloon.counters(),
        )
    };
    let (used, bytes, counters) = report(0);
    assert_eq!(
        used,
        2 * H,
        "baseline: what is behind the failure is not told"
    );
    assert_eq!(
        (counters.zeroed_bytes, counters.zero_failures),
        (3 * HUGE, 1)
    );
    for at_once in 1..6 {
        assert!(
            report(at_once) == (used, bytes.clone(), counters),
            "{at_once} at once"
        );
    }
}

#[test]
fn r10_the_same_range_twice_does_no_harm() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    for _ in 0..2 {
        assert_eq!(driver.submit(Queue::Reporting, &[writable(FREE, H)]), H);
    }
    let chain = [writable(FREE, H), writable(FREE, H)];
    assert_eq!(driver.submit(Queue::Reporting, &chain), 2 * H);
    let overlapping = [writable(FREE, 2 * H), writable(FREE + HUGE, 2 * H)];
    assert_eq!(driver.submit(Queue::Reporting, &overlapping), 4 * H);
    driver.settle();
    let counters = machine.balloon.counters();
    assert_eq!(counters.reported_bytes, 8 * HUGE);
    assert_eq!(counters.zeroed_bytes, 6 * HUGE, "once per report");
}

#[test]
fn r10_overlapping_entries_of_which_one_fails_promise_only_what_is_zero() {
    let machine = machine(Reclaim::Discard);
    let mut driver = start(&machine);
    machine.fill(FREE..FREE + 3 * HUGE, 0xaa);
    machine.ram.fail(range(FREE + 2 * HUGE, HUGE));
    let chain = [writable(FREE, 2 * H), writable(FREE + HUGE, 2 * H)];
    // All of the first, and of the second its half that is in the first.
    assert_eq!(driver.submit(Queue::Reporting, &chain), 3 * H);
    assert!(machine.holds(FREE..FREE + 2 * HUGE, 0));
}

#[test]
fn two_reports_of_one_entry_each_are_answered_each_for_itself() {
    let machine = machine(Reclaim::Zero);
    let mut driver = start(&machine);
    machine.ram.fail(range(FREE + 2 * HUGE, HUGE));
    for head in 0..4 {
        let entry = [writable(FREE + u64::from(head) * HUGE, H)];
        driver[Queue::Reporting].write_chain(head, &entry);
        driver[Queue::Reporting].make_available(head);
    }
    driver.kick(Queue::Reporting);
    let answers = [(); 4].map(|()| driver.next_used(Queue::Reporting));
    assert_eq!(answers, [(0, H), (1, H), (2, 0), (3, H)]);
    let writing = |call: &Call| matches!(call, Call::Zero(_, ZeroBy::Writing));
    assert!(machine.ram.calls().iter().all(writing), "cleared in place");
    assert_eq!(machine.balloon.counters().released_bytes, 0);
}

#[test]
fn clearing_keeps_to_the_rate_and_discarding_is_free() {
    let time = |zero_rate: Option<u64>, on_report| {
        let spec = BalloonSpec {
            on_report,
            zero_rate: zero_rate.and_then(NonZeroU64::new),
            ..reporting_spec()
        };
        let machine = Machine::new(spec);
        let mut driver = start(&machine);
        let begun = Instant::now();
        let entries = [0, 2, 4].map(|i| writable(FREE + i * HUGE, H));
        assert_eq!(driver.submit(Queue::Reporting, &entries), 3 * H);
        begun.elapsed()
    };
    let rate = 20 * HUGE;
    let paced = time(Some(rate), Reclaim::Zero);
    // One that follows idle time is not paused for.
    assert!(paced >= Duration::from_millis(100), "{paced:?}");
    assert!(time(Some(rate), Reclaim::Discard) < Duration::from_millis(90));
    assert!(time(None, Reclaim::Zero) < Duration::from_millis(90));
}

#[test]
fn a_reset_does_not_wait_for_the_rate() {
    let machine = Machine::new(BalloonSpec {
        on_report: Reclaim::Zero,
        zero_rate: NonZeroU64::new(1),
        ..reporting_spec()
    });
    let mut driver = start(&machine);
    let entries = [0, 2, 4].map(|i| writable(FREE + i * HUGE, H));
    driver[Queue::Reporting].write_chain(0, &entries);
    driver[Queue::Reporting].make_available(0);
    driver.kick(Queue::Reporting);
    // One that follows idle time is not paused for.
    wait_until("two are cleared", || machine.ram.calls().len() == 2);
    let begun = Instant::now();
    machine.write(reg::STATUS, 0);
    assert_eq!(machine.read(reg::STATUS), 0);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(machine.ram.calls().len(), 2);
}
