//! Checklist, section split virtqueue: V01 to V16.

use std::sync::atomic::{AtomicBool, Ordering};

use vm_memory::{Bytes, GuestAddress};

use crate::fake_guest::driver::{KNOWN, NEEDS_RESET, negotiate, reg};
use crate::fake_guest::machine::wait_until;
use crate::fake_guest::ring::{INDIRECT, NEXT, WRITE};
use crate::fake_guest::{
    Buf, Driver, EVENT_IDX, FREE, HUGE, Machine, Numbering, PAGE_REPORTING, Queue, Ring, SCRATCH,
    VERSION_1, readable, reporting_spec, writable,
};

fn machine() -> Machine {
    Machine::new(reporting_spec())
}

#[test]
fn v01_the_used_length_is_there_when_the_used_index_is() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    let stop = AtomicBool::new(false);
    let reader = driver[Queue::Reporting].clone();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (mut seen, mut entries) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let now = reader.used_index();
                while seen != now {
                    let (id, len) = reader.used_entry(seen);
                    // Unless the ring came round and overwrote it meanwhile.
                    if reader.used_index().wrapping_sub(seen) < reader.size {
                        assert_eq!(len, 4096 * (id + 1), "entry {seen}");
                        entries += 1;
                    }
                    seen = seen.wrapping_add(1);
                }
            }
            entries
        });
        for head in 0..16 {
            let len = 4096 * (u32::from(head) + 1);
            driver[Queue::Reporting].write_chain(head, &[writable(FREE, len)]);
        }
        for request in 0..2000_u16 {
            let head = request % 16;
            assert_eq!(
                driver.submit_head(Queue::Reporting, head),
                4096 * (u32::from(head) + 1)
            );
        }
        stop.store(true, Ordering::Relaxed);
        assert!(watching.join().unwrap() > 0, "it saw some");
    });
}

#[test]
fn v02_the_used_length_counts_writable_bytes_only() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    let chain = [readable(SCRATCH, 4096), writable(FREE, 8192)];
    assert_eq!(driver.submit(Queue::Reporting, &chain), 8192);
}

#[test]
fn v03_inflate_and_deflate_and_unpromised_reports_have_used_length_0() {
    let machine = machine();
    let features = VERSION_1 | PAGE_REPORTING;
    let mut driver = Driver::with(&machine, features, Numbering::Dense, 64);
    assert_eq!(driver.name_pages(Queue::Inflate, &[512, 513]), 0);
    assert_eq!(driver.name_pages(Queue::Deflate, &[512, 513]), 0);
    assert_eq!(
        driver.submit(Queue::Reporting, &[writable(FREE, HUGE as u32)]),
        0
    );
}

#[test]
fn v04_a_stream_may_be_cut_anywhere_even_inside_a_number() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    let pfns: Vec<u32> = (600..608).collect();
    machine.put_pfns(SCRATCH, &pfns);
    // In memory the parts are not even neighbours.
    let bytes = machine.bytes(SCRATCH..SCRATCH + 32);
    let mut chain = Vec::new();
    let mut at = 0;
    for (i, len) in (1..).zip([3, 5, 0, 24]) {
        let addr = SCRATCH + 0x1000 * i + 1;
        let part = &bytes[at..at + len];
        machine
            .memory
            .write_slice(part, GuestAddress(addr))
            .unwrap();
        chain.push(readable(addr, len as u32));
        at += len;
    }
    assert_eq!(driver.submit(Queue::Inflate, &chain), 0);
    assert_eq!(machine.balloon.counters().inflated_pages, 8);
    assert_eq!(machine.balloon.counters().not_ram, 0);
}

/// Malformed chains: name, and what writes descriptors from 0 on.
type Malformation = (&'static str, fn(&Ring));

const MALFORMED: [Malformation; 9] = [
    ("next is the head", |ring| {
        ring.write_descriptor(0, FREE, 4096, WRITE | NEXT, 0);
    }),
    ("a loop of two", |ring| {
        ring.write_descriptor(0, FREE, 4096, WRITE | NEXT, 1);
        ring.write_descriptor(1, FREE, 4096, WRITE | NEXT, 0);
    }),
    ("longer than the queue", |ring| {
        for index in 0..ring.size {
            let next = (index + 1) % ring.size;
            ring.write_descriptor(index, FREE, 4096, WRITE | NEXT, next);
        }
    }),
    ("next is the queue size", |ring| {
        ring.write_descriptor(0, FREE, 4096, WRITE | NEXT, ring.size);
    }),
    ("next is far out", |ring| {
        ring.write_descriptor(0, FREE, 4096, WRITE | NEXT, 65535);
    }),
    ("indirect without negotiation", |ring| {
        ring.write_descriptor(0, SCRATCH, 16, INDIRECT, 0);
    }),
    ("indirect and next", |ring| {
        ring.write_descriptor(0, SCRATCH, 16, INDIRECT | NEXT, 1);
    }),
    ("indirect inside", |ring| {
        ring.write_descriptor(0, FREE, 4096, WRITE | NEXT, 1);
        ring.write_descriptor(1, SCRATCH, 16, INDIRECT | WRITE, 0);
    }),
    ("readable after writable", |ring| {
        ring.write_chain(0, &[writable(FREE, 4096), readable(FREE, 4096)]);
    }),
];

#[test]
fn v05_v07_v08_v15_a_malformed_chain_is_completed_once_with_length_0_and_not_acted_on() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    machine.fill(FREE..FREE + HUGE, 0xaa);
    let queues = [Queue::Inflate, Queue::Deflate, Queue::Reporting];
    for (count, queue) in (0..).zip(queues) {
        for (done, (name, write)) in (1..).zip(MALFORMED) {
            write(&driver[queue]);
            assert_eq!(driver.submit_head(queue, 0), 0, "{name} on {queue:?}");
            driver.settle_on(queue);
            let counters = machine.balloon.counters();
            assert_eq!(
                counters.malformed_chains,
                count * MALFORMED.len() as u64 + done,
                "{name} on {queue:?} is counted"
            );
            assert_eq!(counters.reported_bytes, 0, "{name}");
        }
    }
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa));
    assert_eq!(driver.status() & NEEDS_RESET, 0, "the device goes on");
    let counters = machine.balloon.counters();
    assert_eq!(counters.inflated_pages + counters.deflated_pages, 0);
}

#[test]
fn v06_readable_buffers_and_the_descriptor_table_are_never_written() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    machine.fill(FREE..FREE + 2 * HUGE, 0xaa);
    let chain = [readable(FREE, HUGE as u32), writable(FREE + HUGE, 8192)];
    driver[Queue::Reporting].write_chain(0, &chain);
    let table = driver[Queue::Reporting].descriptors;
    let before = machine.bytes(table..table + 64 * 16);
    driver.submit_head(Queue::Reporting, 0);
    driver.submit(Queue::Inflate, &[readable(FREE, HUGE as u32)]);
    assert!(machine.holds(FREE..FREE + HUGE, 0xaa), "readable");
    assert!(
        machine.holds(FREE + HUGE..FREE + HUGE + 8192, 0),
        "writable"
    );
    assert!(machine.holds(FREE + HUGE + 8192..FREE + 2 * HUGE, 0xaa));
    assert_eq!(machine.bytes(table..table + 64 * 16), before);
}

#[test]
fn v09_indirect_descriptors_are_not_offered_and_a_driver_cannot_take_them() {
    // VIRTIO_F_INDIRECT_DESC (virtio 1.3, 6).
    const INDIRECT_DESC: u64 = 1 << 28;
    let machine = machine();
    machine.write(reg::DEVICE_FEATURES_SEL, 0);
    let offered = u64::from(machine.read(reg::DEVICE_FEATURES));
    assert_eq!(offered & INDIRECT_DESC, 0);
    assert!(!negotiate(&machine, KNOWN | INDIRECT_DESC));
    assert!(negotiate(&machine, KNOWN), "the baseline");
}

#[test]
fn v10_indices_wrap_after_65536_requests() {
    let machine = machine();
    let features = VERSION_1 | PAGE_REPORTING;
    let mut driver = Driver::with(&machine, features, Numbering::Dense, 4);
    driver[Queue::Deflate].set_available_flags(1);
    let len = machine.put_pfns(SCRATCH, &[700]);
    for head in 0..4 {
        driver[Queue::Deflate].write_chain(head, &[readable(SCRATCH, len)]);
    }
    driver.burn(Queue::Deflate, 70_000);
    assert_eq!(machine.balloon.counters().deflated_pages, 70_000);
    assert_eq!(driver.status() & NEEDS_RESET, 0);
}

#[test]
fn v11_without_event_idx_the_flag_decides_about_interrupts() {
    let machine = machine();
    let features = VERSION_1 | PAGE_REPORTING;
    let mut driver = Driver::with(&machine, features, Numbering::Dense, 64);
    for (flags, interrupts) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
        let raised = machine.line.raised();
        driver[Queue::Inflate].set_available_flags(flags);
        // The index is not looked at.
        let used = driver[Queue::Inflate].used_index();
        driver[Queue::Inflate].set_used_event(used.wrapping_sub(flags));
        driver.submit(Queue::Inflate, &[]);
        driver.settle();
        assert_eq!(machine.line.raised() - raised, interrupts, "flags {flags}");
    }
}

#[test]
fn v12_with_event_idx_interrupts_come_exactly_when_the_event_is_passed() {
    let machine = machine();
    let mut driver = Driver::with(&machine, KNOWN, Numbering::Dense, 4);
    driver.settle();
    driver.burn(Queue::Inflate, 65_000);
    // Event relative to the used index, and the interrupts in 5 requests.
    let table = [(0_u16, [1, 0, 0, 0, 0]), (3, [0, 0, 0, 1, 0])];
    for (ahead, expected) in table.into_iter().cycle().take(300) {
        driver.settle();
        let event = driver[Queue::Inflate].used_index().wrapping_add(ahead);
        driver[Queue::Inflate].set_used_event(event);
        // The flag is not looked at.
        driver[Queue::Inflate].set_available_flags(1);
        for (request, interrupts) in expected.into_iter().enumerate() {
            let raised = machine.line.raised();
            driver.submit(Queue::Inflate, &[]);
            driver.settle();
            assert_eq!(
                machine.line.raised() - raised,
                interrupts,
                "request {request} with the event {ahead} ahead at {event}"
            );
        }
    }
    let last = driver[Queue::Inflate].used_index();
    assert!(last < 2000, "the index wrapped within the table: {last}");
}

#[test]
fn v13_used_flags_and_spurious_kicks() {
    let machine = machine();
    for features in [KNOWN & !EVENT_IDX, KNOWN] {
        let mut driver = Driver::with(&machine, features, Numbering::Dense, 64);
        let raised = machine.line.raised();
        for _ in 0..100 {
            driver.kick(Queue::Inflate);
            let flags = driver[Queue::Inflate].used_flags();
            assert!(flags == 0 || flags == 1 && features & EVENT_IDX == 0);
        }
        driver.settle();
        assert_eq!(driver[Queue::Inflate].used_flags(), 0, "kicks are wanted");
        assert_eq!(driver[Queue::Inflate].used_index(), 0);
        assert_eq!(machine.line.raised(), raised, "nothing used, no interrupt");
    }
}

#[test]
fn v14_no_buffer_is_lost_that_arrives_while_the_device_finishes() {
    let machine = machine();
    for features in [KNOWN & !EVENT_IDX, KNOWN] {
        let mut driver = Driver::with(&machine, features, Numbering::Dense, 64);
        for request in 0..20_000 {
            // Another delay each time, to meet the device at each of its steps.
            for _ in 0..request % 250 {
                std::hint::spin_loop();
            }
            // Kicks only where the device asks for them, as Linux does.
            let queue = Queue::Deflate;
            let old = driver[queue].next_available;
            driver[queue].make_available(0);
            std::sync::atomic::fence(Ordering::SeqCst);
            let ring = &driver[queue];
            let wanted = if features & EVENT_IDX == 0 {
                ring.used_flags() == 0
            } else {
                let event = ring.get_u16(ring.used + 4 + 8 * u64::from(ring.size));
                ring.next_available.wrapping_sub(event).wrapping_sub(1)
                    < ring.next_available.wrapping_sub(old)
            };
            if wanted {
                driver.kick(queue);
            }
            // Stay close behind the device, where the race is.
            for _ in 0..2000 {
                if driver[queue].used_index() != driver[queue].seen {
                    break;
                }
                std::hint::spin_loop();
            }
            driver.next_used(queue);
        }
    }
}

#[test]
fn v14_many_requests_take_few_interrupts_and_none_is_missing() {
    let machine = machine();
    let mut driver = Driver::with(&machine, VERSION_1, Numbering::Dense, 256);
    for _ in 0..200 {
        driver[Queue::Inflate].make_available(0);
    }
    driver.kick(Queue::Inflate);
    wait_until("all", || driver[Queue::Inflate].used_index() == 200);
    driver.settle();
    let raised = machine.line.raised();
    assert!((1..=8).contains(&raised), "{raised} interrupts");
    assert_eq!(machine.read(reg::INTERRUPT_STATUS), 1);
}

#[test]
fn v16_zero_length_descriptors_are_harmless() {
    let machine = machine();
    let mut driver = Driver::start(&machine);
    let nowhere = u64::MAX;
    let empty = |writable| Buf {
        addr: nowhere,
        len: 0,
        writable,
    };
    for queue in [Queue::Inflate, Queue::Deflate, Queue::Reporting] {
        let chain = [empty(false), empty(false), empty(true), empty(true)];
        assert_eq!(driver.submit(queue, &chain), 0);
    }
    let chain = [empty(true), writable(FREE, 4096), empty(true)];
    assert_eq!(driver.submit(Queue::Reporting, &chain), 4096);
    let counters = machine.balloon.counters();
    assert_eq!((counters.not_ram, counters.malformed_chains), (0, 0));
}
