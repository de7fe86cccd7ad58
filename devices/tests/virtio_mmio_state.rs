//! Checklist, section virtio-mmio, second half: interrupts, reset, configuration
//! and status, M14 to M25.

use devices::balloon::device::BalloonSpec;

use crate::fake_guest::driver::{
    ACKNOWLEDGE, DRIVER, DRIVER_OK, FAILED, FEATURES_OK, KNOWN, NEEDS_RESET, driver_ok, reg,
};
use crate::fake_guest::machine::wait_until;
use crate::fake_guest::{
    Driver, FREE, Machine, Numbering, Queue, full_spec, reporting_spec, writable,
};

fn machine() -> Machine {
    Machine::new(reporting_spec())
}

#[test]
fn m14_interrupt_status_stays_until_it_is_acknowledged() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    assert_eq!(machine.read(reg::INTERRUPT_STATUS), 0);
    driver.submit(Queue::Inflate, &[]);
    machine.balloon.set_target_pages(7).unwrap();
    wait_until("both reasons", || machine.read(reg::INTERRUPT_STATUS) == 3);
    assert_eq!(machine.line.raised(), 2);
    machine.write(reg::INTERRUPT_ACK, 1);
    assert_eq!(
        machine.read(reg::INTERRUPT_STATUS),
        2,
        "the other one stays"
    );
    machine.write(reg::INTERRUPT_ACK, 2);
    assert_eq!(machine.read(reg::INTERRUPT_STATUS), 0);
}

#[test]
fn m15_m16_reset_is_complete_when_the_write_is() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    driver.submit(Queue::Inflate, &[]);
    driver.settle();
    let raised = machine.line.raised();
    driver[Queue::Reporting].write_chain(0, &[writable(FREE, 4096)]);
    machine.write(reg::STATUS, 0);
    assert_eq!(machine.read(reg::STATUS), 0);
    assert_eq!(machine.read(reg::INTERRUPT_STATUS), 0);
    for index in 0..5 {
        machine.write(reg::QUEUE_SEL, index);
        assert_eq!(machine.read(reg::QUEUE_READY), 0, "queue {index}");
    }
    driver[Queue::Reporting].make_available(0);
    driver.kick(Queue::Reporting);
    machine.balloon.set_target_pages(9).unwrap();
    assert_eq!(
        machine.line.raised(),
        raised,
        "no notification after a reset"
    );
    assert_eq!(driver[Queue::Reporting].used_index(), 0);
}

#[test]
fn m17_config_generation_changes_with_the_target() {
    let machine = machine();
    let (before, target) = (
        machine.read(reg::CONFIG_GENERATION),
        machine.read(reg::CONFIG),
    );
    machine.balloon.set_target_pages(256).unwrap();
    assert_ne!(machine.read(reg::CONFIG), target);
    let after = machine.read(reg::CONFIG_GENERATION);
    assert_ne!(after, before);
    machine.balloon.set_target_pages(256).unwrap();
    assert_eq!(machine.read(reg::CONFIG_GENERATION), after, "no change");
}

#[test]
fn m18_configuration_is_accessible_in_any_size_at_any_offset() {
    let machine = Machine::new(BalloonSpec {
        target_pages: 0x0102,
        ..reporting_spec()
    });
    machine.write(reg::CONFIG + 4, 0x0708_090a);
    let image = [2, 1, 0, 0, 0xa, 9, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for len in [0, 1, 2, 4, 8] {
        for offset in 0..12 {
            let mut data = vec![0xee; len];
            machine.mmio.read(reg::CONFIG + offset as u64, &mut data);
            assert_eq!(data, image[offset..offset + len], "{len} at {offset}");
        }
    }
    for offset in [256, u64::MAX - reg::CONFIG] {
        let mut data = [0xee; 8];
        machine.mmio.read(reg::CONFIG + offset, &mut data);
        assert_eq!(data, [0; 8], "past the end");
        machine.mmio.write(reg::CONFIG + offset, &data);
    }
    // Registers are 32 bits wide; anything else reaches none.
    for len in [0, 1, 2, 8, 16] {
        let mut data = vec![0xee; len];
        machine.mmio.read(reg::MAGIC, &mut data);
        assert_eq!(data, vec![0; len]);
        machine.mmio.write(reg::STATUS, &vec![1; len]);
        assert_eq!(machine.read(reg::STATUS), 0);
    }
    let mut data = [0xee; 4];
    machine.mmio.read(reg::MAGIC + 1, &mut data);
    assert_eq!(data, [0; 4], "misaligned");
}

#[test]
fn m19_only_actual_and_poison_val_are_writable() {
    // Page poison offered or not; with hinting, whose word stays the device's.
    for (page_poison, poison_val) in [(true, u32::MAX), (false, 0)] {
        let machine = Machine::new(BalloonSpec {
            target_pages: 5,
            page_poison,
            ..full_spec()
        });
        for offset in [0, 4, 8, 12, 16] {
            machine.write(reg::CONFIG + offset, u32::MAX);
        }
        machine.mmio.write(reg::CONFIG + 3, &[0xbb, 0xaa]);
        let words = [0, 4, 8, 12, 16].map(|offset| machine.read(reg::CONFIG + offset));
        assert_eq!(words, [5, 0xffff_ffaa, 0, poison_val, 0]);
        machine.mmio.write(reg::CONFIG, &[0x11; 16]);
        let words = [0, 4, 8, 12].map(|offset| machine.read(reg::CONFIG + offset));
        let poison_val = if page_poison { 0x1111_1111 } else { 0 };
        assert_eq!(words, [5, 0x1111_1111, 0, poison_val], "one wide write");
    }
}

#[test]
fn m21_m22_buffers_from_before_driver_ok_are_used_at_driver_ok_and_not_earlier() {
    let machine = machine();
    let mut driver = Driver::prepare(&machine, KNOWN, Numbering::Dense, 64);
    machine.fill(FREE..FREE + 4096, 0xaa);
    driver[Queue::Reporting].write_chain(0, &[writable(FREE, 4096)]);
    driver[Queue::Reporting].make_available(0);
    driver.kick(Queue::Reporting);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(driver[Queue::Reporting].used_index(), 0);
    assert!(machine.holds(FREE..FREE + 4096, 0xaa));
    assert_eq!(machine.line.raised(), 0);
    // No new kick.
    driver_ok(&machine);
    assert_eq!(driver.next_used(Queue::Reporting), (0, 4096));
}

#[test]
fn m23_a_broken_ring_needs_a_reset_and_interrupts() {
    let machine = machine();
    let breaks: [fn(&mut Driver); 2] = [
        |driver| driver[Queue::Reporting].publish(65),
        |driver| driver[Queue::Reporting].make_available(64),
    ];
    for break_ring in breaks {
        let mut driver = Driver::start(&machine);
        let raised = machine.line.raised();
        break_ring(&mut driver);
        driver.kick(Queue::Reporting);
        wait_until("NEEDS_RESET", || driver.status() & NEEDS_RESET != 0);
        wait_until("interrupt", || machine.line.raised() == raised + 1);
        assert_eq!(machine.read(reg::INTERRUPT_STATUS), 2, "configuration");
        driver[Queue::Deflate].make_available(0);
        driver.kick(Queue::Deflate);
        machine.write(reg::STATUS, 0);
        assert_eq!(driver[Queue::Deflate].used_index(), 0, "all queues stop");
    }
    let mut driver = Driver::start(&machine);
    assert_eq!(
        driver.submit(Queue::Reporting, &[writable(FREE, 4096)]),
        4096
    );
}

#[test]
fn m24_a_kick_of_no_queue_is_ignored() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    for index in [3, 4, 5, 77, u32::MAX] {
        machine.write(reg::QUEUE_NOTIFY, index);
    }
    driver.settle();
    assert_eq!(driver.status() & NEEDS_RESET, 0);
}

#[test]
fn m25_only_a_reset_clears_status_bits() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    let running = ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK;
    for status in [ACKNOWLEDGE, DRIVER_OK, FEATURES_OK | DRIVER, NEEDS_RESET] {
        machine.write(reg::STATUS, status);
        assert_eq!(driver.status(), running, "after a write of {status:#x}");
    }
    driver.submit(Queue::Inflate, &[]);
    machine.write(reg::STATUS, running | FAILED);
    assert_eq!(driver.status(), running | FAILED);
    driver[Queue::Inflate].make_available(0);
    driver.kick(Queue::Inflate);
    machine.write(reg::STATUS, 0);
    assert_eq!(
        driver[Queue::Inflate].used_index(),
        1,
        "nothing after FAILED"
    );
}

#[test]
fn a_driver_that_skips_features_ok_gets_no_device() {
    let machine = machine();
    machine.write(reg::STATUS, ACKNOWLEDGE | DRIVER | DRIVER_OK);
    assert_eq!(machine.read(reg::STATUS), ACKNOWLEDGE | DRIVER);
    machine.write(reg::QUEUE_SEL, 0);
    machine.write(reg::QUEUE_READY, 1);
    assert_eq!(machine.read(reg::QUEUE_READY), 0);
}
