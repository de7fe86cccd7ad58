//! Checklist, section statistics, second half: requests for new ones, S02, S08,
//! S10 and S11, and early kicks, M22.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::Duration;

use devices::balloon::device::Balloon;
use devices::balloon::statistics::Statistic;
use proptest::prelude::*;

use crate::fake_guest::driver::{FULL, driver_ok, reg};
use crate::fake_guest::machine::wait_until;
use crate::fake_guest::{
    Driver, Machine, Numbering, Queue, SCRATCH, STATS_VQ, VERSION_1, readable, reporting_spec,
};
use crate::statistics::{driver, entries, machine, named, offer, put, sample};

#[test]
fn s02_a_request_returns_the_buffer_and_the_next_one_is_the_answer() {
    let machine = machine();
    let mut driver = Driver::with(&machine, FULL & !(1 << 29), Numbering::Dense, 64);
    offer(&mut driver, 3, &entries(&[(4, 100)]));
    sample(&machine, 1);
    driver.settle();
    for round in 1..50 {
        let raised = machine.line.raised();
        assert_eq!(machine.balloon.request_statistics().unwrap(), round);
        assert_eq!(driver.next_used(Queue::Stats), (3, 0));
        wait_until("an interrupt", || machine.line.raised() == raised + 1);
        assert_eq!(
            machine.balloon.statistics().unwrap().number,
            round,
            "nothing new before the guest says it"
        );
        offer(&mut driver, 3, &entries(&[(4, 100 + round)]));
        let new = sample(&machine, round + 1);
        assert_eq!(new.values, named(&[(Statistic::Free, 100 + round)]));
    }
    driver.settle();
    assert_eq!(driver[Queue::Stats].used_index(), 49);
}

#[test]
fn s10_a_request_without_a_buffer_waits_for_one() {
    let machine = machine();
    let mut driver = driver(&machine);
    for _ in 0..1000 {
        assert_eq!(machine.balloon.request_statistics().unwrap(), 0);
    }
    // This one was filled before it was asked for, so it is not the answer.
    offer(&mut driver, 0, &entries(&[(5, 1)]));
    assert_eq!(driver.next_used(Queue::Stats), (0, 0));
    assert_eq!(machine.balloon.statistics(), None);
    // A request on top of one that is under way has the same answer.
    machine.balloon.request_statistics().unwrap();
    offer(&mut driver, 0, &entries(&[(5, 2)]));
    assert_eq!(sample(&machine, 1).values, named(&[(Statistic::Total, 2)]));
    driver.settle();
    assert_eq!(driver[Queue::Stats].used_index(), 1);
}

#[test]
fn s11_after_a_reset_the_old_buffer_is_forgotten() {
    let machine = machine();
    let mut driver = driver(&machine);
    offer(&mut driver, 7, &entries(&[(5, 1)]));
    sample(&machine, 1);
    machine.write(reg::STATUS, 0);
    let not_connected = machine.balloon.request_statistics().unwrap_err();
    assert_eq!(not_connected.kind(), ErrorKind::NotConnected);
    assert_eq!(driver[Queue::Stats].used_index(), 0);
    assert_eq!(sample(&machine, 1).number, 1, "the last sample stays");

    driver = Driver::with(&machine, FULL, Numbering::Fixed, 64);
    machine.balloon.request_statistics().unwrap();
    driver.settle();
    assert_eq!(
        driver[Queue::Stats].used_index(),
        0,
        "7 is not the new driver's"
    );
    offer(&mut driver, 2, &entries(&[(5, 2)]));
    assert_eq!(driver.next_used(Queue::Stats), (2, 0));
    offer(&mut driver, 2, &entries(&[(5, 3)]));
    assert_eq!(sample(&machine, 2).values, named(&[(Statistic::Total, 3)]));
}

#[test]
fn s11_a_request_does_not_outlive_the_driver_it_was_made_to() {
    let machine = machine();
    driver(&machine);
    machine.balloon.request_statistics().unwrap();
    let mut driver = driver(&machine);
    offer(&mut driver, 0, &entries(&[(5, 1)]));
    sample(&machine, 1);
    driver.settle();
    assert_eq!(driver[Queue::Stats].used_index(), 0, "held, not returned");
}

#[test]
fn s11_resets_and_requests_from_two_threads_leave_the_device_sound() {
    let machine = machine();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(order) {
                let _ = machine.balloon.request_statistics();
            }
        });
        for _ in 0..300 {
            let mut driver = driver(&machine);
            offer(&mut driver, 5, &entries(&[(5, 1)]));
            // It is returned once, and at most once, whenever the request came.
            assert_eq!(driver.next_used(Queue::Stats), (5, 0));
            driver.settle();
            assert_eq!(driver[Queue::Stats].used_index(), 1);
        }
        stop.store(true, order);
    });
}

#[test]
fn m22_statistics_offered_and_kicked_before_driver_ok_are_found() {
    let machine = machine();
    let mut driver = Driver::prepare(&machine, FULL, Numbering::Dense, 64);
    // As Linux does: it fills and kicks when it sets its queues up.
    offer(&mut driver, 0, &entries(&[(5, 1)]));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(machine.balloon.statistics(), None, "not before DRIVER_OK");
    driver_ok(&machine);
    sample(&machine, 1);
    machine.balloon.request_statistics().unwrap();
    assert_eq!(driver.next_used(Queue::Stats), (0, 0));
}

#[test]
fn m10_taking_the_queue_back_takes_the_held_buffer_back() {
    let machine = machine();
    let mut driver = driver(&machine);
    offer(&mut driver, 0, &entries(&[(5, 1)]));
    sample(&machine, 1);
    machine.write(reg::QUEUE_SEL, driver.index_of(Queue::Stats));
    machine.write(reg::QUEUE_READY, 0);
    machine.balloon.request_statistics().unwrap();
    driver.settle();
    assert_eq!(driver[Queue::Stats].used_index(), 0);
}

#[test]
fn a_request_nobody_can_answer_is_refused_with_the_reason() {
    let kind = |balloon: &Balloon| balloon.request_statistics().unwrap_err().kind();
    let off = Machine::new(reporting_spec());
    assert_eq!(kind(&off.balloon), ErrorKind::InvalidInput);
    let machine = machine();
    assert_eq!(kind(&machine.balloon), ErrorKind::NotConnected);
    Driver::with(&machine, FULL & !STATS_VQ, Numbering::Dense, 64);
    assert_eq!(kind(&machine.balloon), ErrorKind::Unsupported);
    let error = machine.balloon.request_statistics().unwrap_err();
    assert!(error.to_string().contains("STATS_VQ"), "{error}");
}

#[test]
fn who_waits_for_the_guest_is_woken() {
    let machine = machine();
    let changes = machine.balloon.changes();
    let mut seen = changes.count();
    let mut wait = |what: &str| {
        let count = changes.wait_past(seen, Duration::from_secs(20));
        assert!(count > seen, "{what}");
        seen = count;
    };
    let mut driver = driver(&machine);
    wait("a driver");
    machine.write(reg::CONFIG + 4, 12);
    wait("its size");
    offer(&mut driver, 0, &entries(&[(5, 1)]));
    wait("a sample");
    machine.write(reg::STATUS, 0);
    wait("it is gone");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the owner and the guest do in whichever order: the device holds
    /// one buffer at most, and returns each of the others once.
    #[test]
    fn v05_s08_every_buffer_is_returned_once_but_the_one_that_is_held(
        requests in prop::collection::vec(any::<bool>(), 1..40),
        features in prop::sample::select(vec![FULL, VERSION_1 | STATS_VQ]),
    ) {
        let machine = machine();
        let mut driver = Driver::with(&machine, features, Numbering::Fixed, 64);
        let len = put(&machine, SCRATCH, &entries(&[(5, 1)]));
        let mut offered = 0;
        for request in requests {
            if request {
                machine.balloon.request_statistics().unwrap();
            } else {
                driver[Queue::Stats].write_chain(offered, &[readable(SCRATCH, len)]);
                driver[Queue::Stats].make_available(offered);
                driver.kick(Queue::Stats);
                offered += 1;
            }
        }
        // One more of each, and all is settled but that one.
        machine.balloon.request_statistics().unwrap();
        driver[Queue::Stats].write_chain(offered, &[readable(SCRATCH, len)]);
        driver[Queue::Stats].make_available(offered);
        driver.kick(Queue::Stats);
        let returned = (0..offered).map(|_| driver.next_used(Queue::Stats));
        let mut returned: Vec<_> = returned.collect();
        driver.settle();
        let all = driver[Queue::Stats].used_index();
        if all > offered {
            returned.push(driver.next_used(Queue::Stats));
        }
        prop_assert!(all == offered || all == offered + 1);
        let heads: HashSet<u32> = returned.iter().map(|(head, _)| *head).collect();
        prop_assert_eq!(heads.len(), returned.len(), "none of them twice");
        prop_assert!(returned.iter().all(|(_, len)| *len == 0));
    }
}
