//! Checklist, section the new bits: what belongs to DEVICE_INIT_REPORTED. Each
//! case runs with the bit and, as its baseline, without it.

use devices::balloon::device::{BalloonSpec, Reclaim};

use crate::fake_guest::driver::KNOWN;
use crate::fake_guest::machine::range;
use crate::fake_guest::{
    Buf, DEVICE_INIT_REPORTED, Driver, FREE, HUGE, Machine, Numbering, Queue, reporting_spec,
    writable,
};

const H: u32 = HUGE as u32;

/// Runs `chain` on fresh machines with and without bit 6; returns used lengths
/// in this order, and the machines.
fn both(on_report: Reclaim, failing: &[(u64, u64)], chain: &[Buf]) -> [(u32, Machine); 2] {
    [0, DEVICE_INIT_REPORTED].map(|refused| {
        let machine = Machine::new(BalloonSpec {
            on_report,
            ..reporting_spec()
        });
        machine.fill(FREE..FREE + 6 * HUGE, 0xaa);
        for (start, len) in failing {
            machine.ram.fail(range(*start, *len));
        }
        let mut driver = Driver::with(&machine, KNOWN & !refused, Numbering::Dense, 64);
        let used = driver.submit(Queue::Reporting, chain);
        driver.settle();
        (used, machine)
    })
}

fn entries(huge_pages: &[u64]) -> Vec<Buf> {
    let pages = huge_pages.iter();
    pages.map(|i| writable(FREE + i * HUGE, H)).collect()
}

#[test]
fn n02_n05_the_used_length_is_the_leading_run_whatever_fails() {
    // Order of the report, huge pages that fail, promised ones.
    type Case = (&'static [u64], &'static [u64], u32);
    let table: [Case; 8] = [
        (&[0], &[], 1),
        (&[0, 1, 2, 3], &[], 4),
        (&[0, 1], &[0], 0),
        (&[0, 1], &[1], 1),
        (&[0, 1, 2], &[1], 1),
        (&[3, 1, 2, 0], &[1], 1),
        (&[3, 1, 2, 0], &[0], 3),
        (&[0, 1, 2, 3], &[0, 1, 2, 3], 0),
    ];
    for on_report in [Reclaim::Discard, Reclaim::Zero] {
        for (order, failing, promised) in table {
            let failing: Vec<_> = failing.iter().map(|i| (FREE + i * HUGE, HUGE)).collect();
            let [with, without] = both(on_report, &failing, &entries(order));
            assert_eq!(with.0, promised * H, "{order:?} with {failing:x?} failing");
            assert_eq!(without.0, 0, "the baseline promises nothing");
            let counters = with.1.balloon.counters();
            assert_eq!(counters.zero_failures, failing.len() as u64);
            assert_eq!(counters.promised_bytes, u64::from(promised) * HUGE);
        }
    }
}

#[test]
fn n03_every_promised_byte_reads_zero_at_the_ack() {
    for on_report in [Reclaim::Discard, Reclaim::Zero] {
        let odd = [
            writable(FREE + 3, 4097),
            writable(FREE + HUGE - 1, H + 2),
            writable(FREE + 3 * HUGE, 1),
        ];
        let [(used, machine), (baseline, _)] = both(on_report, &[], &odd);
        assert_eq!(used, 4097 + H + 2 + 1);
        assert_eq!(baseline, 0);
        for Buf { addr, len, .. } in odd {
            assert!(machine.holds(addr..addr + u64::from(len), 0), "{addr:#x}");
            assert!(machine.holds(addr - 1..addr, 0xaa), "before {addr:#x}");
        }
    }
}

#[test]
fn n04_a_part_of_a_huge_page_is_promised_because_it_was_cleared() {
    let part = [writable(FREE + 4096, 4096)];
    let [(used, machine), (baseline, unzeroed)] = both(Reclaim::Discard, &[], &part);
    assert_eq!(used, 4096);
    assert!(machine.holds(FREE + 4096..FREE + 8192, 0));
    let counters = machine.balloon.counters();
    assert_eq!((counters.zeroed_bytes, counters.released_bytes), (4096, 0));
    // Nobody is told, so nobody clears what cannot be discarded.
    assert_eq!(baseline, 0);
    assert!(unzeroed.holds(FREE + 4096..FREE + 8192, 0xaa));
    let counters = unzeroed.balloon.counters();
    assert_eq!((counters.zeroed_bytes, counters.released_bytes), (0, 0));
}

#[test]
fn n15_reported_zeroed_and_released_are_counted_apart() {
    let chain = [writable(FREE, H + 4096), writable(FREE + 3 * HUGE, H)];
    let failing = [(FREE + 3 * HUGE, HUGE)];
    for (on_report, released) in [(Reclaim::Discard, HUGE), (Reclaim::Zero, 0)] {
        let [(used, machine), _] = both(on_report, &failing, &chain);
        assert_eq!(used, H + 4096);
        let counters = machine.balloon.counters();
        assert_eq!(counters.reported_bytes, 2 * HUGE + 4096);
        assert_eq!(counters.zeroed_bytes, HUGE + 4096);
        assert_eq!(counters.released_bytes, released);
        assert_eq!(counters.promised_bytes, HUGE + 4096);
    }
}
