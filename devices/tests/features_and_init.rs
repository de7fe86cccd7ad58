//! Checklist, section features and init: B01 to B08. B01 to B03 for all subsets
//! of the optional queues are a table beside the queue map.

use std::io::ErrorKind;
use std::sync::Arc;

use devices::balloon::device::{Balloon, BalloonSpec, Reclaim};

use crate::fake_guest::driver::{KNOWN, NEEDS_RESET, driver_ok, negotiate, reg, set_up_queue};
use crate::fake_guest::{
    DEFLATE_ON_OOM, DEVICE_INIT_REPORTED, Driver, EVENT_IDX, FREE, Machine, Numbering,
    PAGE_REPORTING, Queue, VERSION_1, reporting_spec, writable,
};

fn machine() -> Machine {
    Machine::new(reporting_spec())
}

#[test]
fn b01_b02_both_numberings_reach_the_reporting_queue() {
    let machine = machine();
    for numbering in [Numbering::Dense, Numbering::Fixed] {
        let mut driver = Driver::with(&machine, KNOWN, numbering, 64);
        let len = driver.submit(Queue::Reporting, &[writable(FREE, 4096)]);
        assert_eq!(len, 4096, "{numbering:?}");
        assert_eq!(driver.name_pages(Queue::Inflate, &[512]), 0);
    }
    assert_eq!(machine.balloon.counters().reports, 2);
}

#[test]
fn b03_a_ready_set_that_fits_neither_numbering_needs_a_reset() {
    let machine = machine();
    for indices in [&[0, 1, 2, 4][..], &[0, 1]] {
        assert!(negotiate(&machine, VERSION_1 | PAGE_REPORTING));
        for index in indices {
            set_up_queue(&machine, *index, 64);
        }
        let raised = machine.line.raised();
        driver_ok(&machine);
        assert_ne!(machine.read(reg::STATUS) & NEEDS_RESET, 0, "{indices:?}");
        assert_eq!(machine.line.raised(), raised + 1);
        assert_eq!(machine.read(reg::INTERRUPT_STATUS), 2);
    }
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
    let machine = machine();
    Driver::start(&machine);
    machine.write(reg::CONFIG + 4, 99);
    machine.balloon.set_target_pages(100).unwrap();
    assert_eq!(machine.balloon.actual_pages(), 99);
    machine.write(reg::STATUS, 0);
    assert_eq!(machine.read(reg::CONFIG), 100);
    assert_eq!(machine.read(reg::CONFIG + 4), 0);
    assert_eq!(machine.balloon.actual_pages(), 0);
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
