//! Checklist, section virtio-mmio, first half: identity, features and queues,
//! M01 to M13.

use devices::balloon::device::{BalloonSpec, Hinting};

use crate::fake_guest::driver::{
    ACKNOWLEDGE, DRIVER, FEATURES_OK, FULL, KNOWN, driver_ok, negotiate, reg, ring_base,
    set_up_queue,
};
use crate::fake_guest::{
    DEVICE_INIT_REPORTED, Driver, EVENT_IDX, FREE, FREE_PAGE_HINT, HIGH, Machine, Numbering,
    PAGE_REPORTING, Queue, Ring, VERSION_1, full_spec, reporting_spec, writable,
};

const ALL: u64 = KNOWN;

fn machine() -> Machine {
    Machine::new(reporting_spec())
}

fn offered(machine: &Machine) -> u64 {
    [0, 1].iter().rev().fold(0, |features, page| {
        machine.write(reg::DEVICE_FEATURES_SEL, *page);
        features << 32 | u64::from(machine.read(reg::DEVICE_FEATURES))
    })
}

fn size_max(machine: &Machine, index: u32) -> u32 {
    machine.write(reg::QUEUE_SEL, index);
    machine.read(reg::QUEUE_SIZE_MAX)
}

#[test]
fn m01_magic_version_and_device_id() {
    let machine = machine();
    assert_eq!(machine.read(reg::MAGIC), 0x7472_6976);
    assert_eq!(machine.read(reg::VERSION), 2);
    assert_eq!(machine.read(reg::DEVICE_ID), 5);
    assert_ne!(machine.read(reg::VENDOR_ID), 0);
    assert_eq!(machine.read(reg::SHM_LEN_LOW), u32::MAX, "no shared memory");
}

#[test]
fn m02_features_are_read_in_pages() {
    let machine = machine();
    let mut pages = Vec::new();
    for page in [0, 1, 2, 4, 7, u32::MAX] {
        machine.write(reg::DEVICE_FEATURES_SEL, page);
        pages.push(machine.read(reg::DEVICE_FEATURES));
    }
    assert_eq!(
        pages,
        [ALL as u32, 1, 0, 0, 0, 0],
        "page 1 bit 0: VERSION_1"
    );
}

#[test]
fn m03_exactly_what_is_configured_and_served_is_offered() {
    let base = VERSION_1 | EVENT_IDX;
    let off = BalloonSpec {
        reporting: false,
        device_init_reported: false,
        deflate_on_oom: false,
        ..reporting_spec()
    };
    let reporting = BalloonSpec {
        reporting: true,
        ..off
    };
    let oom = BalloonSpec {
        deflate_on_oom: true,
        ..off
    };
    let must_tell_host = BalloonSpec {
        must_tell_host: true,
        ..off
    };
    let statistics = BalloonSpec {
        statistics: true,
        ..off
    };
    let hinting = BalloonSpec {
        hinting: Hinting::Count,
        ..off
    };
    let poison = BalloonSpec {
        page_poison: true,
        ..off
    };
    let table = [
        (off, base),
        (must_tell_host, base | 1),
        (statistics, base | 1 << 1),
        (oom, base | 1 << 2),
        (hinting, base | 1 << 3),
        (poison, base | 1 << 4),
        (reporting, base | PAGE_REPORTING),
        (reporting_spec(), ALL),
        (full_spec(), base | 0x7f),
    ];
    for (spec, expected) in table {
        assert_eq!(offered(&Machine::new(spec)), expected, "{spec:?}");
    }
    let names = Machine::new(full_spec()).balloon.features();
    let expected = [
        "MUST_TELL_HOST",
        "STATS_VQ",
        "DEFLATE_ON_OOM",
        "FREE_PAGE_HINT",
        "PAGE_POISON",
        "PAGE_REPORTING",
        "DEVICE_INIT_REPORTED",
        "RING_EVENT_IDX",
        "VERSION_1",
    ];
    assert_eq!(names.offered, expected);
    assert_eq!(names.acknowledged, None);
}

#[test]
fn m04_a_bit_that_was_not_offered_is_refused() {
    let machine = machine();
    for bit in (0..64).filter(|bit| ALL & 1 << bit == 0) {
        assert!(!negotiate(&machine, VERSION_1 | 1 << bit), "bit {bit}");
    }
    machine.write(reg::STATUS, 0);
    machine.write(reg::DRIVER_FEATURES_SEL, 1);
    machine.write(reg::DRIVER_FEATURES, 1);
    machine.write(reg::DRIVER_FEATURES_SEL, 2);
    machine.write(reg::DRIVER_FEATURES, 1);
    machine.write(reg::STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK);
    assert_eq!(machine.read(reg::STATUS), ACKNOWLEDGE | DRIVER, "bit 64");
}

#[test]
fn m05_sets_that_make_no_sense_are_refused() {
    let machine = machine();
    for bad in [0, PAGE_REPORTING, VERSION_1 | DEVICE_INIT_REPORTED] {
        assert!(!negotiate(&machine, bad), "{bad:#x}");
    }
    for good in [VERSION_1, VERSION_1 | PAGE_REPORTING, ALL] {
        assert!(negotiate(&machine, good), "{good:#x}");
    }
    // Each of the others stands for itself.
    let machine = Machine::new(full_spec());
    for bit in 0..6 {
        assert!(negotiate(&machine, VERSION_1 | 1 << bit), "bit {bit}");
    }
}

#[test]
fn m06_the_same_set_succeeds_again_after_reset() {
    let machine = machine();
    for _ in 0..3 {
        Driver::with(&machine, ALL, Numbering::Dense, 64);
        let features = machine.balloon.features();
        assert_eq!(Some(features.offered), features.acknowledged);
        // A guest that shuts down resets its devices.
        machine.write(reg::STATUS, 0);
        let after = machine.balloon.features().acknowledged;
        assert_eq!(after, features.acknowledged, "for who reads it afterwards");
    }
}

#[test]
fn m07_configuration_is_readable_before_features_ok() {
    let machine = Machine::new(BalloonSpec {
        target_pages: 0x1234,
        ..reporting_spec()
    });
    machine.write(reg::STATUS, ACKNOWLEDGE);
    let words = [0, 4, 8, 12].map(|offset| machine.read(reg::CONFIG + offset));
    assert_eq!(words, [0x1234, 0, 0, 0]);
}

#[test]
fn m08_a_queue_that_does_not_exist_has_size_max_0() {
    let machine = machine();
    let sizes = |machine: &Machine| [0, 1, 2, 3, 4].map(|index| size_max(machine, index) > 0);
    assert_eq!(
        sizes(&machine),
        [true, true, true, false, true],
        "before FEATURES_OK: what may come, in either numbering"
    );
    negotiate(&machine, VERSION_1 | PAGE_REPORTING);
    assert_eq!(sizes(&machine), [true, true, true, false, true]);
    let full = Machine::new(full_spec());
    assert_eq!(sizes(&full), [true; 5]);
    negotiate(&full, VERSION_1 | FREE_PAGE_HINT);
    assert_eq!(sizes(&full), [true, true, true, true, false]);
    negotiate(&machine, VERSION_1);
    assert_eq!(
        sizes(&machine),
        [true, true, false, false, false],
        "after FEATURES_OK: what was negotiated"
    );
    for index in [5, 6, 65535, u32::MAX] {
        assert_eq!(size_max(&machine, index), 0, "{index}");
        machine.write(reg::QUEUE_READY, 1);
        assert_eq!(machine.read(reg::QUEUE_READY), 0, "{index}");
    }
}

#[test]
fn m09_queue_sizes_satisfy_linux() {
    let machine = Machine::new(full_spec());
    negotiate(&machine, FULL);
    for index in 0..5 {
        let max = size_max(&machine, index);
        assert!(max >= 32, "Linux needs 32 for reporting");
        assert!(max.is_power_of_two() && max <= 32768);
    }
}

#[test]
fn m10_queue_ready_reads_back_and_writing_0_stops_all_access() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    assert_eq!(driver.submit(Queue::Inflate, &[]), 0, "it works at first");
    machine.write(reg::QUEUE_SEL, 0);
    assert_eq!(machine.read(reg::QUEUE_READY), 1);
    machine.write(reg::QUEUE_READY, 0);
    assert_eq!(machine.read(reg::QUEUE_READY), 0);
    driver[Queue::Inflate].make_available(0);
    driver.kick(Queue::Inflate);
    driver.settle();
    assert_eq!(
        driver[Queue::Inflate].used_index(),
        1,
        "no more used entries"
    );
    machine.write(reg::QUEUE_READY, 1);
    assert_eq!(
        machine.read(reg::QUEUE_READY),
        0,
        "without RING_RESET it stays"
    );
}

#[test]
fn m10_a_queue_cannot_be_changed_while_it_is_ready() {
    let machine = machine();
    let mut driver = Driver::prepare(&machine, ALL, Numbering::Dense, 64);
    machine.write(reg::QUEUE_SEL, 2);
    machine.write(reg::QUEUE_SIZE, 32);
    for register in [
        reg::QUEUE_DESC_LOW,
        reg::QUEUE_DRIVER_LOW,
        reg::QUEUE_DEVICE_LOW,
    ] {
        machine.write(register, HIGH.start as u32);
    }
    machine.write(reg::QUEUE_READY, 1);
    driver_ok(&machine);
    for head in 32..64 {
        driver[Queue::Reporting].write_chain(head, &[writable(FREE, 4096)]);
        assert_eq!(driver.submit_head(Queue::Reporting, head), 4096);
    }
}

#[test]
fn m11_rings_are_not_touched_while_not_ready() {
    let machine = machine();
    assert!(negotiate(&machine, ALL));
    let ring = set_up_queue(&machine, 0, 64);
    machine.write(reg::QUEUE_READY, 0);
    let area = Ring::area(ring_base(0));
    machine.fill(area.clone(), 0xc5);
    set_up_queue(&machine, 2, 64);
    set_up_queue(&machine, 1, 64);
    driver_ok(&machine);
    machine.write(reg::QUEUE_NOTIFY, 0);
    machine.write(reg::STATUS, 0);
    assert!(ring.used > 0 && machine.holds(area, 0xc5));
}

#[test]
fn m12_a_bad_queue_size_is_refused() {
    let machine = machine();
    negotiate(&machine, ALL);
    let max = size_max(&machine, 0);
    for size in [0, 3, max + 1, max * 2, 65536 + 64, u32::MAX] {
        let ring = set_up_queue(&machine, 0, 64);
        machine.write(reg::QUEUE_READY, 0);
        machine.write(reg::QUEUE_SIZE, size);
        machine.write(reg::QUEUE_READY, 1);
        assert_eq!(machine.read(reg::QUEUE_READY), 0, "size {size}");
        assert_eq!(ring.used_index(), 0);
    }
    set_up_queue(&machine, 0, max as u16);
    assert_eq!(machine.read(reg::QUEUE_READY), 1, "the maximum is fine");
}

#[test]
fn m13_bad_ring_addresses_are_refused() {
    let machine = machine();
    negotiate(&machine, ALL);
    let end = HIGH.end;
    let bad = [
        (reg::QUEUE_DESC_LOW, 0x1_0008),
        (reg::QUEUE_DRIVER_LOW, 0x1_0001),
        (reg::QUEUE_DEVICE_LOW, 0x1_0002),
        (reg::QUEUE_DRIVER_LOW, 0),
        (reg::QUEUE_DESC_LOW, end - 16),
        (reg::QUEUE_DRIVER_LOW, end - 8),
        (reg::QUEUE_DEVICE_LOW, end - 8),
        (reg::QUEUE_DESC_LOW, 20 << 20),
        (reg::QUEUE_DESC_LOW, u64::MAX - 15),
        (reg::QUEUE_DRIVER_LOW, u64::MAX - 1),
        (reg::QUEUE_DEVICE_LOW, u64::MAX - 3),
    ];
    for (register, addr) in bad {
        set_up_queue(&machine, 0, 64);
        machine.write(reg::QUEUE_READY, 0);
        machine.write(register, addr as u32);
        machine.write(register + 4, (addr >> 32) as u32);
        machine.write(reg::QUEUE_READY, 1);
        assert_eq!(
            machine.read(reg::QUEUE_READY),
            0,
            "{register:#x} = {addr:#x}"
        );
        negotiate(&machine, ALL);
    }
}
