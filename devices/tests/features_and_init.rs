//! Checklist, section features and init: B01 to B08, and N14. What each index
//! means in each subset is a table beside the queue map.

use std::io::ErrorKind;
use std::sync::Arc;

use devices::balloon::device::{Balloon, BalloonSpec, Hinting, Reclaim};
use devices::balloon::queue_map::QueueNumbering;

use crate::fake_guest::driver::{
    FULL, KNOWN, NEEDS_RESET, driver_ok, negotiate, reg, set_up_queue,
};
use crate::fake_guest::log_lines::log_lines;
use crate::fake_guest::machine::wait_until;
use crate::fake_guest::{
    DEFLATE_ON_OOM, DEVICE_INIT_REPORTED, Driver, EVENT_IDX, FREE, FREE_PAGE_HINT, MUST_TELL_HOST,
    Machine, Numbering, PAGE_REPORTING, Queue, SCRATCH, STATS_VQ, VERSION_1, full_spec, readable,
    reporting_spec, writable,
};

fn machine() -> Machine {
    Machine::new(reporting_spec())
}

/// Uses each queue the driver has, in the way of that queue.
fn use_every_queue(machine: &Machine, driver: &mut Driver<'_>, features: u64) {
    assert_eq!(driver.name_pages(Queue::Inflate, &[512]), 0);
    assert_eq!(driver.name_pages(Queue::Deflate, &[512]), 0);
    if features & STATS_VQ != 0 {
        let number = machine.balloon.request_statistics().unwrap();
        driver[Queue::Stats].write_chain(0, &[readable(SCRATCH, 10)]);
        driver[Queue::Stats].make_available(0);
        driver.kick(Queue::Stats);
        assert_eq!(driver.next_used(Queue::Stats), (0, 0), "given back");
        driver[Queue::Stats].make_available(0);
        driver.kick(Queue::Stats);
        wait_until("the answer", || {
            let last = machine.balloon.statistics();
            last.is_some_and(|last| last.number == number + 1)
        });
    }
    if features & FREE_PAGE_HINT != 0 {
        let id = machine.balloon.start_hinting().unwrap();
        let command = readable(SCRATCH, machine.put_pfns(SCRATCH, &[id]));
        let used = driver.submit(Queue::Hint, &[command, writable(FREE, 4096)]);
        assert_eq!(used, 0);
        assert_eq!(machine.balloon.hinting_status().hinted_bytes, 4096);
    }
    if features & PAGE_REPORTING != 0 {
        let told = features & DEVICE_INIT_REPORTED != 0;
        let used = driver.submit(Queue::Reporting, &[writable(FREE, 4096)]);
        assert_eq!(used, if told { 4096 } else { 0 });
    }
}

/// All sets of the three optional queues.
fn subsets() -> impl Iterator<Item = u64> {
    (0..8).map(|set| {
        let queues = [STATS_VQ, FREE_PAGE_HINT, PAGE_REPORTING];
        let chosen = (0..).zip(queues).filter(|(i, _)| set & 1 << i != 0);
        chosen.map(|(_, feature)| feature).sum()
    })
}

#[test]
fn b01_b02_b08_every_subset_of_the_queues_works_in_both_numberings() {
    // One device for all of them, each after a reset.
    let machine = Machine::new(full_spec());
    assert_eq!(machine.balloon.queue_numbering(), None);
    // Nothing is left out before a queue that is there.
    let alike = [
        0,
        STATS_VQ,
        STATS_VQ | FREE_PAGE_HINT,
        STATS_VQ | FREE_PAGE_HINT | PAGE_REPORTING,
    ];
    for subset in subsets() {
        for numbering in [Numbering::Dense, Numbering::Fixed] {
            let features = VERSION_1 | subset;
            let mut driver = Driver::with(&machine, features, numbering, 64);
            use_every_queue(&machine, &mut driver, features);
            let expected = match numbering {
                _ if alike.contains(&subset) => QueueNumbering::Both,
                Numbering::Dense => QueueNumbering::Dense,
                Numbering::Fixed => QueueNumbering::Fixed,
            };
            let found = machine.balloon.queue_numbering();
            assert_eq!(found, Some(expected), "{subset:#x} {numbering:?}");
        }
    }
    machine.write(reg::STATUS, 0);
    let after = machine.balloon.queue_numbering();
    assert_eq!(after, Some(QueueNumbering::Both), "of the last driver");
}

#[test]
fn b03_a_ready_set_that_fits_neither_numbering_needs_a_reset() {
    let machine = Machine::new(full_spec());
    let table: [(u64, &[u32]); 5] = [
        (PAGE_REPORTING, &[0, 1, 2, 4]),
        (PAGE_REPORTING, &[0, 1]),
        (FREE_PAGE_HINT | PAGE_REPORTING, &[0, 1, 2, 4]),
        (STATS_VQ | PAGE_REPORTING, &[0, 1, 2]),
        (STATS_VQ | FREE_PAGE_HINT, &[0, 1, 3]),
    ];
    for (features, indices) in table {
        assert!(negotiate(&machine, VERSION_1 | features));
        for index in indices {
            set_up_queue(&machine, *index, 64);
        }
        let raised = machine.line.raised();
        let lines = log_lines(|| driver_ok(&machine));
        assert_ne!(machine.read(reg::STATUS) & NEEDS_RESET, 0, "{indices:?}");
        assert_eq!(machine.line.raised(), raised + 1);
        assert_eq!(machine.read(reg::INTERRUPT_STATUS), 2);
        let named = format!("{:?}", &indices[2..]);
        assert!(lines.iter().any(|line| line.contains(&named)), "{lines:?}");
    }
    let mut driver = Driver::with(&machine, FULL, Numbering::Dense, 64);
    use_every_queue(&machine, &mut driver, FULL);
}

#[test]
fn b04_must_tell_host_may_be_accepted_or_not() {
    let machine = Machine::new(full_spec());
    for accepted in [0, MUST_TELL_HOST] {
        let features = VERSION_1 | accepted;
        let mut driver = Driver::with(&machine, features, Numbering::Dense, 64);
        assert_eq!(driver.name_pages(Queue::Inflate, &[512, 513]), 0);
        // What the driver waits for with it.
        assert_eq!(driver.name_pages(Queue::Deflate, &[513]), 0);
        let names = machine.balloon.features().acknowledged.unwrap();
        let named = names.iter().any(|name| name == "MUST_TELL_HOST");
        assert_eq!(named, accepted != 0);
    }
    let without = Machine::new(reporting_spec());
    assert!(!negotiate(&without, VERSION_1 | MUST_TELL_HOST), "baseline");
}

#[test]
fn b05_the_target_set_at_create_is_there_at_the_first_read() {
    let machine = Machine::new(BalloonSpec {
        target_pages: 8192,
        ..reporting_spec()
    });
    assert_eq!(machine.read(reg::CONFIG), 8192);
    machine.balloon.set_target_pages(1).unwrap();
    assert_eq!(machine.line.raised(), 0, "no interrupt before DRIVER_OK");
    assert_eq!(machine.read(reg::CONFIG), 1);
}

#[test]
fn b06_a_driver_without_any_optional_feature_works() {
    let machine = machine();
    let mut driver = Driver::with(&machine, VERSION_1, Numbering::Dense, 64);
    assert_eq!(driver.name_pages(Queue::Inflate, &[512, 513, 514]), 0);
    assert_eq!(driver.name_pages(Queue::Deflate, &[512]), 0);
    let counters = machine.balloon.counters();
    assert_eq!((counters.inflated_pages, counters.deflated_pages), (3, 1));
    let acknowledged = machine.balloon.features().acknowledged;
    assert_eq!(acknowledged.unwrap(), ["VERSION_1"]);
}

#[test]
fn b07_after_a_reset_what_the_driver_said_is_forgotten_and_the_target_is_not() {
    let machine = Machine::new(full_spec());
    let mut driver = Driver::prepare(&machine, FULL, Numbering::Dense, 64);
    machine.write(reg::CONFIG + 12, 0xaaaa_aaaa);
    driver_ok(&machine);
    machine.write(reg::CONFIG + 4, 99);
    machine.balloon.set_target_pages(100).unwrap();
    let id = machine.balloon.start_hinting().unwrap();
    wait_until("the command", || machine.read(reg::CONFIG + 8) == id);
    driver[Queue::Stats].write_chain(0, &[readable(SCRATCH, 10)]);
    driver[Queue::Stats].make_available(0);
    driver.kick(Queue::Stats);
    wait_until("a sample", || machine.balloon.statistics().is_some());
    let words = || [0, 4, 8, 12].map(|offset| machine.read(reg::CONFIG + offset));
    assert_eq!(words(), [100, 99, id, 0xaaaa_aaaa]);
    assert_eq!(machine.balloon.actual_pages(), 99);

    machine.write(reg::STATUS, 0);
    assert_eq!(words(), [100, 0, 0, 0]);
    assert_eq!(machine.balloon.actual_pages(), 0);
    // The held buffer: S11.
    let next = Driver::with(&machine, FULL, Numbering::Dense, 64);
    assert_eq!(words(), [100, 0, 0, 0]);
    assert_eq!(next[Queue::Stats].used_index(), 0);
}

#[test]
fn b08_another_subset_after_a_reset_works() {
    let machine = machine();
    let subsets = [
        (KNOWN, 4096),
        (VERSION_1 | PAGE_REPORTING, 0),
        (VERSION_1 | PAGE_REPORTING | DEVICE_INIT_REPORTED, 4096),
        (VERSION_1 | PAGE_REPORTING | EVENT_IDX | DEFLATE_ON_OOM, 0),
    ];
    for (features, promised) in subsets {
        for numbering in [Numbering::Dense, Numbering::Fixed] {
            let mut driver = Driver::with(&machine, features, numbering, 32);
            let len = driver.submit(Queue::Reporting, &[writable(FREE, 4096)]);
            assert_eq!(len, promised, "{features:#x} {numbering:?}");
        }
    }
}

#[test]
fn an_unsound_spec_is_refused_with_the_reason() {
    let refused = |spec: BalloonSpec| {
        let machine = machine();
        let (ram, line) = (Arc::clone(&machine.ram), Arc::clone(&machine.line));
        let made = Balloon::new(spec, machine.memory.clone(), ram, line);
        let error = made.err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    let without_reporting = refused(BalloonSpec {
        reporting: false,
        ..reporting_spec()
    });
    assert!(
        without_reporting.contains("reporting"),
        "{without_reporting}"
    );
    let kept = refused(BalloonSpec {
        on_report: Reclaim::Keep,
        ..reporting_spec()
    });
    assert!(kept.contains("keep"), "{kept}");
    let too_big = refused(BalloonSpec {
        target_pages: 8193,
        ..reporting_spec()
    });
    assert!(
        too_big.contains("8193") && too_big.contains("8192"),
        "{too_big}"
    );
}

#[test]
fn n14_bit_6_beside_hinting_needs_its_ambiguity_to_be_accepted() {
    for hinting in [Hinting::Off, Hinting::Count, Hinting::Discard] {
        for device_init_reported in [false, true] {
            for accept_bit6_ambiguity in [false, true] {
                let made = Machine::try_new(BalloonSpec {
                    hinting,
                    accept_hint_race: true,
                    device_init_reported,
                    accept_bit6_ambiguity,
                    ..reporting_spec()
                });
                let ambiguous = hinting != Hinting::Off && device_init_reported;
                let error = made.err().map(|error| error.to_string());
                let refused = error
                    .as_ref()
                    .is_some_and(|what| what.contains("accept_bit6_ambiguity"));
                assert_eq!(refused, ambiguous && !accept_bit6_ambiguity, "{error:?}");
                assert_eq!(error.is_some(), refused);
            }
        }
    }
    // Accepted, the device serves both.
    let machine = Machine::new(full_spec());
    let mut driver = Driver::with(&machine, FULL, Numbering::Dense, 64);
    use_every_queue(&machine, &mut driver, FULL);
}

#[test]
fn n01_bit_6_is_not_offered_where_it_cannot_be_kept() {
    for on_report in [Reclaim::Discard, Reclaim::Zero, Reclaim::Keep] {
        let machine = Machine::new(BalloonSpec {
            device_init_reported: false,
            on_report,
            ..reporting_spec()
        });
        let bit_6 = VERSION_1 | PAGE_REPORTING | DEVICE_INIT_REPORTED;
        assert!(!negotiate(&machine, bit_6), "{on_report:?}");
        assert!(negotiate(&machine, VERSION_1 | PAGE_REPORTING));
    }
}
