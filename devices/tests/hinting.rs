//! Checklist, section free page hinting, first half: commands and hints, H01 to
//! H06 and H10 to H12.

use std::io::ErrorKind;

use devices::balloon::device::{BalloonSpec, Hinting};
use devices::balloon::hinting::{HintingEnd, HintingPhase, HintingStatus};

use crate::fake_guest::driver::{FULL, reg};
use crate::fake_guest::host::Call;
use crate::fake_guest::machine::{range, wait_until};
use crate::fake_guest::{
    Buf, Driver, FREE, HUGE, LOW, Machine, Numbering, Queue, SCRATCH, full_spec, readable, writable,
};

pub const CMD_ID: u64 = reg::CONFIG + 8;
pub const H: u32 = HUGE as u32;
pub const STOP: u32 = 0;
pub const DONE: u32 = 1;

pub fn discarding() -> BalloonSpec {
    BalloonSpec {
        hinting: Hinting::Discard,
        accept_hint_race: true,
        ..full_spec()
    }
}

pub fn driver(machine: &Machine) -> Driver<'_> {
    Driver::with(machine, FULL, Numbering::Dense, 64)
}

/// Starts a run and waits until the driver can see it.
pub fn start(machine: &Machine) -> u32 {
    let id = machine.balloon.start_hinting().unwrap();
    shows(machine, id);
    id
}

pub fn shows(machine: &Machine, command: u32) {
    wait_until("the command", || machine.read(CMD_ID) == command);
}

/// A buffer with a command.
pub fn command(machine: &Machine, id: u32) -> Buf {
    readable(SCRATCH, machine.put_pfns(SCRATCH, &[id]))
}

/// Sends a chain; hint buffers always come back with length 0 (H12).
pub fn send(driver: &mut Driver<'_>, chain: &[Buf]) {
    assert_eq!(driver.submit(Queue::Hint, chain), 0);
}

pub fn send_command(driver: &mut Driver<'_>, id: u32) {
    let command = command(driver.machine, id);
    send(driver, &[command]);
}

pub fn status(machine: &Machine) -> HintingStatus {
    machine.balloon.hinting_status()
}

pub fn ended(machine: &Machine) -> Option<HintingEnd> {
    status(machine).ended
}

#[test]
fn h01_the_command_is_stop_at_start_and_after_a_reset() {
    let machine = Machine::new(full_spec());
    assert_eq!(machine.read(CMD_ID), STOP);
    assert_eq!(status(&machine), HintingStatus::default());
    let _first = driver(&machine);
    let id = start(&machine);
    machine.write(reg::STATUS, 0);
    assert_eq!(machine.read(CMD_ID), STOP);
    assert_eq!(ended(&machine), Some(HintingEnd::Reset));
    let mut second = driver(&machine);
    send_command(&mut second, id);
    assert_eq!(machine.read(CMD_ID), STOP, "the id of a driver before it");
    assert!(start(&machine) > id);
    machine.balloon.stop_hinting().unwrap();
    shows(&machine, DONE);
    machine.write(reg::STATUS, 0);
    assert_eq!(machine.read(CMD_ID), STOP);
}

#[test]
fn h02_each_start_shows_another_id_of_2_or_more_and_interrupts() {
    let machine = Machine::new(full_spec());
    let _driver = driver(&machine);
    let mut ids = vec![DONE];
    for _ in 0..10 {
        let (raised, generation) = (machine.line.raised(), machine.read(reg::CONFIG_GENERATION));
        let id = start(&machine);
        assert!(!ids.contains(&id) && id >= 2);
        ids.push(id);
        wait_until("interrupt", || machine.line.raised() == raised + 1);
        assert_eq!(machine.read(reg::INTERRUPT_STATUS), 2, "configuration");
        assert_ne!(machine.read(reg::CONFIG_GENERATION), generation, "M17");
    }
}

#[test]
fn h04_a_command_is_known_by_its_direction_not_by_its_length() {
    let machine = Machine::new(full_spec());
    let mut driver = driver(&machine);
    let id = start(&machine);
    // Writable and of 4 bytes: a small page, whatever it holds.
    machine.put_pfns(FREE, &[id]);
    send(&mut driver, &[writable(FREE, 4)]);
    assert_eq!(status(&machine).phase, HintingPhase::Asked);
    send_command(&mut driver, id);
    assert_eq!(status(&machine).phase, HintingPhase::Running);
    machine.put_pfns(FREE, &[STOP]);
    send(&mut driver, &[writable(FREE, 4)]);
    assert_eq!(status(&machine).phase, HintingPhase::Running);
    assert_eq!(status(&machine).hinted_bytes, 4);
}

#[test]
fn h05_hints_before_any_id_or_under_an_old_one_are_ignored() {
    let machine = Machine::new(discarding());
    let mut driver = driver(&machine);
    machine.fill(FREE..FREE + HUGE, 0xaa);
    send(&mut driver, &[writable(FREE, H)]);
    let old = start(&machine);
    send(&mut driver, &[writable(FREE, H)]);
    let id = start(&machine);
    for other in [old, id + 1, DONE, u32::MAX] {
        let command = command(&machine, other);
        send(&mut driver, &[command, writable(FREE, H)]);
        send(&mut driver, &[writable(FREE, H)]);
    }
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa));
    let hinted = machine.balloon.counters().hinted_bytes;
    assert_eq!((hinted, status(&machine).hinted_bytes), (0, 0));
    assert_eq!(machine.read(CMD_ID), id, "the run goes on");
    send_command(&mut driver, id);
    send(&mut driver, &[writable(FREE, H)]);
    assert!(machine.holds(FREE..FREE + HUGE, 0), "under the current id");
}

#[test]
fn h05_a_stop_that_belongs_to_an_earlier_run_does_not_end_this_one() {
    let machine = Machine::new(full_spec());
    let mut driver = driver(&machine);
    let old = start(&machine);
    send_command(&mut driver, old);
    let id = start(&machine);
    // As Linux does: it stops the old run before it takes up the new one.
    send_command(&mut driver, STOP);
    assert_eq!(status(&machine).phase, HintingPhase::Asked);
    send_command(&mut driver, id);
    send(&mut driver, &[writable(FREE, H)]);
    send_command(&mut driver, STOP);
    assert_eq!(ended(&machine), Some(HintingEnd::GuestDone));
    assert_eq!(status(&machine).hinted_bytes, HUGE);
}

#[test]
fn h06_h12_id_and_pages_may_share_a_chain_or_not() {
    for together in [true, false] {
        let machine = Machine::new(full_spec());
        let mut driver = driver(&machine);
        let id = start(&machine);
        let id = command(&machine, id);
        let pages = [writable(FREE, H), writable(FREE + 2 * HUGE, 4096)];
        if together {
            send(&mut driver, &[id, pages[0], pages[1]]);
        } else {
            // The id itself may be split.
            send(
                &mut driver,
                &[readable(SCRATCH, 1), readable(SCRATCH + 1, 3)],
            );
            send(&mut driver, &pages[..1]);
            send(&mut driver, &pages[1..]);
        }
        assert_eq!(status(&machine).hinted_bytes, HUGE + 4096, "{together}");
        assert_eq!(machine.balloon.counters().hinted_bytes, HUGE + 4096);
    }
}

#[test]
fn h10_by_default_hinted_memory_is_not_modified() {
    for (spec, kept, discarded) in [(full_spec(), true, 0), (discarding(), false, HUGE)] {
        let machine = Machine::new(spec);
        let mut driver = driver(&machine);
        machine.fill(FREE..FREE + HUGE, 0xaa);
        let id = start(&machine);
        send_command(&mut driver, id);
        send(
            &mut driver,
            &[writable(FREE, H), writable(FREE + 4096, 4096)],
        );
        assert_eq!(machine.holds(FREE..FREE + HUGE, 0xaa), kept);
        let counters = machine.balloon.counters();
        assert_eq!(counters.hinted_bytes, HUGE + 4096, "each counts");
        assert_eq!(counters.hint_discarded_bytes, discarded, "but once here");
        assert_eq!(status(&machine).discarded_bytes, discarded);
        assert_eq!(counters.released_bytes, 0, "that is for reports");
        let calls = if kept { 0 } else { 1 };
        assert_eq!(machine.ram.calls().len(), calls, "merged into one call");
        let zeroed = |call: &Call| matches!(call, Call::Zero(..));
        assert!(!machine.ram.calls().iter().any(zeroed));
    }
}

#[test]
fn h11_discarding_is_refused_unless_its_race_is_accepted() {
    let spec = BalloonSpec {
        accept_hint_race: false,
        ..discarding()
    };
    let error = Machine::try_new(spec).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("accept_hint_race"), "{error}");
    assert!(Machine::try_new(discarding()).is_ok());
    assert!(Machine::try_new(full_spec()).is_ok(), "counting is no risk");
}

#[test]
fn hints_that_are_not_ram_are_skipped_and_counted() {
    let machine = Machine::new(discarding());
    let mut driver = driver(&machine);
    let id = start(&machine);
    send_command(&mut driver, id);
    let chain = [
        writable(LOW.end - 4096, 8192),
        writable(u64::MAX - 4095, 4096),
        writable(FREE, H),
        writable(FREE, 0),
    ];
    send(&mut driver, &chain);
    let counters = machine.balloon.counters();
    assert_eq!((counters.not_ram, counters.hinted_bytes), (2, HUGE));
    assert_eq!(counters.hint_discarded_bytes, HUGE);
}

#[test]
fn a_host_that_refuses_a_hint_is_counted_and_the_run_goes_on() {
    let machine = Machine::new(discarding());
    let mut driver = driver(&machine);
    machine.ram.fail(range(FREE, HUGE));
    let id = start(&machine);
    send_command(&mut driver, id);
    send(
        &mut driver,
        &[writable(FREE, H), writable(FREE + 2 * HUGE, H)],
    );
    let counters = machine.balloon.counters();
    assert_eq!(
        (counters.zero_failures, counters.hint_discarded_bytes),
        (1, HUGE)
    );
    assert_eq!(status(&machine).phase, HintingPhase::Running);
}
