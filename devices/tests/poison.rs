//! Checklist, section page poison: P01 to P05, and M20. The guest's own promise
//! about its free pages comes before the device's.

use devices::balloon::device::{BalloonSpec, Hinting, Reclaim};

use crate::fake_guest::driver::{FULL, KNOWN, driver_ok, reg};
use crate::fake_guest::host::Call;
use crate::fake_guest::log_lines::log_lines;
use crate::fake_guest::machine::wait_until;
use crate::fake_guest::{
    Driver, FREE, HUGE, Machine, Numbering, PAGE, PAGE_POISON, Queue, SCRATCH, full_spec, readable,
    reporting_spec, writable,
};

const POISON_VAL: u64 = reg::CONFIG + 12;
const H: u32 = HUGE as u32;
/// What Linux fills pages with.
const AA: u32 = 0xaaaa_aaaa;

/// A machine that has a driver with these features, which said this value.
fn poisoned(spec: BalloonSpec, features: u64, value: u32) -> Machine {
    let machine = Machine::new(spec);
    Driver::prepare(&machine, features, Numbering::Dense, 64);
    machine.write(POISON_VAL, value);
    driver_ok(&machine);
    machine
}

/// Reports a huge page of 0xAA and part of another on a machine whose driver
/// said `value`; returns the used length.
fn report(machine: &Machine, features: u64, value: u32) -> u32 {
    let mut driver = Driver::prepare(machine, features, Numbering::Dense, 64);
    machine.write(POISON_VAL, value);
    driver_ok(machine);
    machine.fill(FREE..FREE + 2 * HUGE, 0xaa);
    let chain = [writable(FREE, H), writable(FREE + HUGE, 4096)];
    let used = driver.submit(Queue::Reporting, &chain);
    driver.settle();
    used
}

#[test]
fn p01_the_value_is_taken_at_driver_ok_and_is_0_after_a_reset() {
    let machine = poisoned(full_spec(), FULL, AA);
    assert_eq!(machine.read(POISON_VAL), AA);
    assert_eq!(machine.balloon.poison(), Some(AA));
    machine.write(reg::STATUS, 0);
    assert_eq!(machine.read(POISON_VAL), 0);
    let driver = Driver::prepare(&machine, FULL, Numbering::Dense, 64);
    assert_eq!(machine.balloon.poison(), Some(AA), "of the last driver");
    driver_ok(&machine);
    assert_eq!(driver.status() & 64, 0);
    assert_eq!(machine.balloon.poison(), Some(0), "it said nothing");
}

#[test]
fn m20_p01_a_value_written_after_driver_ok_is_dropped() {
    let machine = poisoned(full_spec(), FULL, 0);
    let lines = log_lines(|| {
        for len in [1, 2, 4] {
            machine.mmio.write(POISON_VAL, &[0xaa; 4][..len]);
            machine.mmio.write(POISON_VAL + 3, &[0xaa; 8][..len]);
        }
    });
    assert_eq!(lines.len(), 1, "one warning: {lines:?}");
    assert!(lines[0].contains("poison_val"), "{lines:?}");
    assert_eq!(machine.read(POISON_VAL), 0);
    assert_eq!(machine.balloon.poison(), Some(0));
    assert_eq!(report(&machine, FULL, 0), H + 4096, "and has no effect");
}

#[test]
fn p02_p03_what_is_reported_keeps_the_poison_and_nothing_is_promised() {
    for on_report in [Reclaim::Discard, Reclaim::Zero, Reclaim::Keep] {
        let spec = BalloonSpec {
            on_report,
            device_init_reported: on_report != Reclaim::Keep,
            ..full_spec()
        };
        let features = match on_report {
            Reclaim::Keep => FULL & !(1 << 6),
            Reclaim::Discard | Reclaim::Zero => FULL,
        };
        for features in [features, features & !(1 << 6)] {
            let machine = Machine::new(spec);
            assert_eq!(report(&machine, features, AA), 0, "{on_report:?}");
            assert!(machine.holds(FREE..FREE + 2 * HUGE, 0xaa), "{on_report:?}");
            assert_eq!(machine.ram.calls(), [], "neither zeroed nor discarded");
            let counters = machine.balloon.counters();
            assert_eq!(counters.reported_bytes, HUGE + 4096, "but counted");
            assert_eq!((counters.zeroed_bytes, counters.released_bytes), (0, 0));
            assert_eq!(counters.promised_bytes, 0);
        }
    }
}

#[test]
fn p02_one_byte_that_is_not_zero_is_enough() {
    for value in [1, 0x100, 0x8000_0000, u32::MAX] {
        let machine = Machine::new(full_spec());
        assert_eq!(report(&machine, FULL, value), 0, "{value:#x}");
        assert!(machine.holds(FREE..FREE + 2 * HUGE, 0xaa), "{value:#x}");
    }
}

#[test]
fn p03_inflated_pages_may_be_discarded_but_are_not_cleared() {
    // Their driver fills them again when it takes them back.
    let machine = Machine::new(full_spec());
    let mut driver = Driver::prepare(&machine, FULL, Numbering::Dense, 64);
    machine.write(POISON_VAL, AA);
    driver_ok(&machine);
    machine.fill(FREE..FREE + 2 * HUGE, 0xaa);
    let first = (FREE / PAGE) as u32;
    let pfns: Vec<u32> = (first..first + 513).collect();
    assert_eq!(driver.name_pages(Queue::Inflate, &pfns), 0);
    assert_eq!(machine.balloon.counters().inflate_released_bytes, HUGE);
    let part = FREE + HUGE..FREE + 2 * HUGE;
    assert!(machine.holds(part, 0xaa), "part of a page is left alone");
    let zeroed = |call: &Call| matches!(call, Call::Zero(..));
    assert!(!machine.ram.calls().iter().any(zeroed));
}

#[test]
fn p02_hinted_memory_keeps_the_poison_even_where_hints_are_discarded() {
    for (value, kept) in [(AA, true), (0, false)] {
        let machine = Machine::new(BalloonSpec {
            hinting: Hinting::Discard,
            accept_hint_race: true,
            ..full_spec()
        });
        let mut driver = Driver::prepare(&machine, FULL, Numbering::Dense, 64);
        machine.write(POISON_VAL, value);
        driver_ok(&machine);
        machine.fill(FREE..FREE + HUGE, 0xaa);
        let id = machine.balloon.start_hinting().unwrap();
        wait_until("the command", || machine.read(reg::CONFIG + 8) == id);
        let command = readable(SCRATCH, machine.put_pfns(SCRATCH, &[id]));
        driver.submit(Queue::Hint, &[command, writable(FREE, H)]);
        assert_eq!(machine.balloon.hinting_status().hinted_bytes, HUGE);
        assert_eq!(machine.holds(FREE..FREE + HUGE, 0xaa), kept, "{value:#x}");
    }
}

#[test]
fn p04_with_the_value_0_memory_is_zeroed_and_promised() {
    for on_report in [Reclaim::Discard, Reclaim::Zero] {
        let machine = Machine::new(BalloonSpec {
            on_report,
            ..full_spec()
        });
        assert_eq!(report(&machine, FULL, 0), H + 4096, "{on_report:?}");
        assert!(machine.holds(FREE..FREE + HUGE + 4096, 0));
    }
}

#[test]
fn p05_without_bit_4_a_value_has_no_effect() {
    // Offered and not accepted; not offered at all.
    let machine = Machine::new(full_spec());
    assert_eq!(report(&machine, FULL & !PAGE_POISON, AA), H + 4096);
    assert_eq!(machine.balloon.poison(), None);
    let machine = Machine::new(reporting_spec());
    assert_eq!(report(&machine, KNOWN, AA), H + 4096);
    assert_eq!(machine.read(POISON_VAL), 0);
    assert_eq!(machine.balloon.poison(), None);
}
