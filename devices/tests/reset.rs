//! What a vCPU may have to wait for: R11, and M10 and M15 while the worker is
//! in the middle of something.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vm_memory::GuestAddress;

use crate::fake_guest::driver::reg;
use crate::fake_guest::machine::wait_until;
use crate::fake_guest::{Driver, FREE, HUGE, Machine, Queue, reporting_spec, writable};

/// One unit of work of the device.
const UNIT: u64 = 32 << 20;

/// A guest of 256 MiB that is mapped but hardly touched, whose worker is stuck
/// in the first of five units of one report.
fn stuck(machine: &Machine) -> Driver<'_> {
    let mut driver = Driver::start(machine);
    machine.ram.close();
    let report = [writable(UNIT, 5 * UNIT as u32)];
    driver[Queue::Reporting].write_chain(0, &report);
    driver[Queue::Reporting].make_available(0);
    driver.kick(Queue::Reporting);
    wait_until("the worker is in a unit", || machine.ram.waiting() == 1);
    driver
}

fn machine() -> Machine {
    Machine::with_memory(reporting_spec(), &[(GuestAddress(0), 256 << 20)])
}

/// Runs `write` on another thread while the worker is stuck; checks that it
/// waits for the worker's unit, and no more than that.
fn waits_for_one_unit(machine: &Machine, write: impl Fn() + Sync) {
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write();
            returned.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            !returned.load(Ordering::SeqCst),
            "memory is being worked on"
        );
        machine.ram.open();
    });
    assert!(returned.load(Ordering::SeqCst));
    assert_eq!(machine.ram.calls().len(), 1, "the other units are given up");
}

#[test]
fn r11_registers_answer_while_the_worker_works() {
    let machine = machine();
    let driver = stuck(&machine);
    let start = Instant::now();
    for _ in 0..1000 {
        for register in (0..0x200).step_by(4) {
            machine.read(register);
        }
        machine.write(reg::INTERRUPT_ACK, 3);
        machine.write(reg::CONFIG + 4, 17);
        driver.kick(Queue::Inflate);
        let _ = machine.balloon.counters();
        let _ = machine.balloon.features();
    }
    let took = start.elapsed();
    assert!(
        took < Duration::from_secs(5),
        "132,000 accesses took {took:?}"
    );
    assert_eq!(machine.ram.waiting(), 1, "it worked all the time");
    machine.ram.open();
    wait_until("completion", || driver[Queue::Reporting].used_index() == 1);
}

#[test]
fn r11_m15_m16_a_reset_waits_for_one_unit_and_drops_the_result() {
    let machine = machine();
    let mut driver = stuck(&machine);
    let raised = machine.line.raised();
    waits_for_one_unit(&machine, || {
        machine.write(reg::STATUS, 0);
        assert_eq!(machine.read(reg::STATUS), 0);
    });
    assert_eq!(
        driver[Queue::Reporting].used_index(),
        0,
        "nothing published"
    );
    assert_eq!(machine.line.raised(), raised, "no interrupt");
    assert_eq!(machine.balloon.counters().promised_bytes, 0);
    assert_eq!(
        machine.balloon.counters().zeroed_bytes,
        UNIT,
        "but it was done"
    );
    driver = Driver::start(&machine);
    let len = driver.submit(Queue::Reporting, &[writable(FREE, HUGE as u32)]);
    assert_eq!(len, HUGE as u32, "the next driver is served");
}

#[test]
fn r11_the_status_does_not_read_0_before_the_reset_is_complete() {
    let machine = machine();
    stuck(&machine);
    waits_for_one_unit(&machine, || {
        std::thread::scope(|scope| {
            let reset = scope.spawn(|| machine.write(reg::STATUS, 0));
            while !reset.is_finished() {
                let status = machine.read(reg::STATUS);
                assert!(status != 0 || machine.ram.waiting() == 0);
            }
        });
    });
}

#[test]
fn m10_taking_a_queue_back_waits_for_one_unit_and_drops_the_result() {
    let machine = machine();
    let mut driver = stuck(&machine);
    waits_for_one_unit(&machine, || {
        machine.write(reg::QUEUE_SEL, 2);
        machine.write(reg::QUEUE_READY, 0);
        assert_eq!(machine.read(reg::QUEUE_READY), 0);
    });
    driver.settle();
    assert_eq!(driver[Queue::Reporting].used_index(), 0);
}

#[test]
fn m10_taking_another_queue_back_does_not_wait() {
    let machine = machine();
    let driver = stuck(&machine);
    machine.write(reg::QUEUE_SEL, 0);
    machine.write(reg::QUEUE_READY, 0);
    assert_eq!(machine.ram.waiting(), 1, "still in the same unit");
    machine.ram.open();
    wait_until("completion", || driver[Queue::Reporting].used_index() == 1);
    let len = driver[Queue::Reporting].used_entry(0).1;
    assert_eq!(u64::from(len), 5 * UNIT, "nothing was given up");
}

#[test]
fn stop_waits_for_one_unit_and_nothing_is_touched_after_it() {
    let mut machine = machine();
    let mut driver = stuck(&machine);
    let index = driver.index_of(Queue::Reporting);
    driver[Queue::Reporting].make_available(0);
    drop(driver);
    std::thread::scope(|scope| {
        let ram = machine.ram.clone();
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            ram.open();
        });
        machine.balloon.stop();
    });
    assert_eq!(machine.ram.calls().len(), 1);
    // The registers go on answering, also to a new driver.
    machine.write(reg::QUEUE_NOTIFY, index);
    machine.write(reg::STATUS, 0);
    let driver = Driver::start(&machine);
    driver.kick(Queue::Reporting);
    machine.balloon.stop();
    assert_eq!(machine.ram.calls().len(), 1);
    assert_eq!(machine.read(reg::MAGIC), 0x7472_6976);
}
