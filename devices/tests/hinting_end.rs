//! Checklist, section free page hinting, second half: how a run ends, H07 to H09
//! and H13.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use devices::balloon::device::BalloonSpec;
use devices::balloon::hinting::{HintingEnd, HintingPhase, HintingStatus};
use vm_memory::GuestAddress;

use crate::fake_guest::driver::{FULL, reg};
use crate::fake_guest::machine::{LONG, range, wait_until};
use crate::fake_guest::{
    Driver, FREE, FREE_PAGE_HINT, HUGE, LOW, Machine, Numbering, Queue, SCRATCH, full_spec,
    readable, reporting_spec, writable,
};
use crate::hinting::{
    CMD_ID, DONE, H, STOP, command, discarding, driver, ended, send, send_command, shows, start,
    status,
};

#[test]
fn h07_after_the_end_nothing_is_modified_also_not_what_was_queued_before() {
    let machine = Machine::new(discarding());
    let mut driver = driver(&machine);
    let id = start(&machine);
    send_command(&mut driver, id);
    machine.fill(FREE..FREE + 3 * HUGE, 0xaa);
    // The thread is stuck in another queue's work, with a hint queued behind.
    machine.ram.close();
    driver[Queue::Reporting].write_chain(0, &[writable(LOW.end - HUGE, H)]);
    driver[Queue::Reporting].make_available(0);
    driver.kick(Queue::Reporting);
    wait_until("the worker is busy", || machine.ram.waiting() == 1);
    driver[Queue::Hint].write_chain(1, &[writable(FREE, H)]);
    driver[Queue::Hint].make_available(1);
    driver.kick(Queue::Hint);
    machine.balloon.stop_hinting().unwrap();
    machine.ram.open();
    assert_eq!(driver.next_used(Queue::Hint), (1, 0));
    shows(&machine, DONE);
    send(&mut driver, &[writable(FREE + HUGE, H)]);
    let id = command(&machine, id);
    send(&mut driver, &[id, writable(FREE + 2 * HUGE, H)]);
    assert!(machine.holds(FREE..FREE + 3 * HUGE, 0xaa));
    assert_eq!(status(&machine).discarded_bytes, 0);
}

#[test]
fn h07_done_is_not_shown_while_hinted_memory_is_being_discarded() {
    // Units are of 32 MiB, so this hint takes five.
    let regions = [(GuestAddress(0), 256 << 20)];
    let machine = Machine::with_memory(discarding(), &regions);
    let mut driver = driver(&machine);
    let id = start(&machine);
    send_command(&mut driver, id);
    machine.ram.close();
    driver[Queue::Hint].write_chain(1, &[writable(32 << 20, 160 << 20)]);
    driver[Queue::Hint].make_available(1);
    driver.kick(Queue::Hint);
    wait_until("the worker discards", || machine.ram.waiting() == 1);
    machine.balloon.stop_hinting().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(machine.read(CMD_ID), id, "the guest may not have it yet");
    machine.ram.open();
    shows(&machine, DONE);
    assert_eq!(machine.ram.waiting(), 0);
    assert_eq!(machine.ram.calls().len(), 1, "the other units are given up");
    assert_eq!(driver.next_used(Queue::Hint), (1, 0));
    assert_eq!(
        status(&machine).discarded_bytes,
        32 << 20,
        "what was done counts"
    );
}

#[test]
fn h08_a_run_ends_with_the_guests_stop_and_done_is_shown() {
    let machine = Machine::new(full_spec());
    let mut driver = driver(&machine);
    let id = start(&machine);
    send_command(&mut driver, id);
    send(&mut driver, &[writable(FREE, H)]);
    let raised = machine.line.raised();
    machine.write(reg::INTERRUPT_ACK, 3);
    send_command(&mut driver, STOP);
    shows(&machine, DONE);
    wait_until("interrupts", || {
        machine.read(reg::INTERRUPT_STATUS) & 2 != 0
    });
    assert!(machine.line.raised() > raised);
    let expected = HintingStatus {
        phase: HintingPhase::Ended,
        command_id: Some(id),
        hinted_bytes: HUGE,
        discarded_bytes: 0,
        ended: Some(HintingEnd::GuestDone),
    };
    assert_eq!(status(&machine), expected);
    machine.balloon.stop_hinting().unwrap();
    assert_eq!(status(&machine), expected, "nothing is on, nothing stops");
}

#[test]
fn h09_a_guest_that_never_ends_a_run_is_given_up() {
    let machine = Machine::new(BalloonSpec {
        hinting_limit: Duration::from_millis(60),
        ..full_spec()
    });
    let mut driver = driver(&machine);
    // One that never answers, and one that hints for ever.
    for answers in [false, true] {
        let id = start(&machine);
        if answers {
            send_command(&mut driver, id);
        }
        let start = Instant::now();
        while answers && machine.read(CMD_ID) != DONE {
            assert!(start.elapsed() < LONG, "it hints for ever");
            send(&mut driver, &[writable(FREE, H)]);
        }
        shows(&machine, DONE);
        assert_eq!(ended(&machine), Some(HintingEnd::TimedOut));
    }
    // A run within its time is not.
    let id = start(&machine);
    send_command(&mut driver, id);
    send_command(&mut driver, STOP);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ended(&machine), Some(HintingEnd::GuestDone));
}

#[test]
fn h13_a_command_of_another_length_ends_the_run_and_not_the_device() {
    let machine = Machine::new(discarding());
    let mut driver = driver(&machine);
    machine.ram.take_away(range(FREE + HUGE, 4096));
    let bad = [
        readable(SCRATCH, 0),
        readable(SCRATCH, 3),
        readable(SCRATCH, 8),
        readable(20 << 20, 4),
        readable(FREE + HUGE, 4),
    ];
    for (before, bad) in (0..).step_by(2).zip(bad) {
        machine.fill(FREE..FREE + HUGE, 0xaa);
        let id = start(&machine);
        send_command(&mut driver, id);
        machine.put_pfns(SCRATCH, &[id, id]);
        send(&mut driver, &[bad, writable(FREE, H)]);
        shows(&machine, DONE);
        assert_eq!(ended(&machine), Some(HintingEnd::BadCommand), "{bad:?}");
        assert!(machine.holds(FREE..FREE + HUGE, 0xaa), "not acted on");
        assert_eq!(machine.balloon.counters().malformed_chains, before + 1);
        // Without a run it ends none.
        send(&mut driver, &[bad]);
        let counters = machine.balloon.counters();
        assert_eq!(counters.malformed_chains, before + 2);
        machine.write(reg::STATUS, 0);
        driver = self::driver(&machine);
    }
}

#[test]
fn a_run_nobody_can_hint_for_is_refused_with_the_reason() {
    let kind = |machine: &Machine| machine.balloon.start_hinting().unwrap_err().kind();
    let off = Machine::new(reporting_spec());
    assert_eq!(kind(&off), ErrorKind::InvalidInput);
    assert_eq!(
        off.balloon.stop_hinting().unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let machine = Machine::new(full_spec());
    assert_eq!(kind(&machine), ErrorKind::NotConnected);
    machine.balloon.stop_hinting().unwrap();
    Driver::with(&machine, FULL & !FREE_PAGE_HINT, Numbering::Dense, 64);
    assert_eq!(kind(&machine), ErrorKind::Unsupported);
    assert_eq!(machine.read(CMD_ID), STOP);
}
