//! A driver that negotiates like a real one and submits requests.

use std::ops::{Index, IndexMut};

use super::machine::{Machine, wait_until};
use super::ring::{Buf, Ring};
use super::{
    DEVICE_INIT_REPORTED, EVENT_IDX, FREE_PAGE_HINT, MUST_TELL_HOST, PAGE_POISON, PAGE_REPORTING,
    STATS_VQ, VERSION_1,
};

/// Registers (virtio 1.3, 4.2.2).
pub mod reg {
    pub const MAGIC: u64 = 0x000;
    pub const VERSION: u64 = 0x004;
    pub const DEVICE_ID: u64 = 0x008;
    pub const VENDOR_ID: u64 = 0x00c;
    pub const DEVICE_FEATURES: u64 = 0x010;
    pub const DEVICE_FEATURES_SEL: u64 = 0x014;
    pub const DRIVER_FEATURES: u64 = 0x020;
    pub const DRIVER_FEATURES_SEL: u64 = 0x024;
    pub const QUEUE_SEL: u64 = 0x030;
    pub const QUEUE_SIZE_MAX: u64 = 0x034;
    pub const QUEUE_SIZE: u64 = 0x038;
    pub const QUEUE_READY: u64 = 0x044;
    pub const QUEUE_NOTIFY: u64 = 0x050;
    pub const INTERRUPT_STATUS: u64 = 0x060;
    pub const INTERRUPT_ACK: u64 = 0x064;
    pub const STATUS: u64 = 0x070;
    pub const QUEUE_DESC_LOW: u64 = 0x080;
    pub const QUEUE_DRIVER_LOW: u64 = 0x090;
    pub const QUEUE_DEVICE_LOW: u64 = 0x0a0;
    pub const SHM_LEN_LOW: u64 = 0x0b0;
    pub const CONFIG_GENERATION: u64 = 0x0fc;
    pub const CONFIG: u64 = 0x100;
}

/// Status bits (2.1).
pub const ACKNOWLEDGE: u32 = 1;
pub const DRIVER: u32 = 2;
pub const DRIVER_OK: u32 = 4;
pub const FEATURES_OK: u32 = 8;
pub const NEEDS_RESET: u32 = 64;
pub const FAILED: u32 = 128;

/// How the driver numbers its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// As Linux does: the negotiated ones, counted.
    Dense,
    /// As the specification has it.
    Fixed,
}

/// The queues this driver can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Inflate,
    Deflate,
    Stats,
    Hint,
    Reporting,
}

/// The optional queues with the feature each needs, in the order of their fixed
/// numbers, 2 to 4.
const OPTIONAL: [(Queue, u64); 3] = [
    (Queue::Stats, STATS_VQ),
    (Queue::Hint, FREE_PAGE_HINT),
    (Queue::Reporting, PAGE_REPORTING),
];

/// A driver with its rings.
pub struct Driver<'a> {
    pub machine: &'a Machine,
    queues: Vec<(Queue, u32, Ring)>,
}

impl Index<Queue> for Driver<'_> {
    type Output = Ring;
    fn index(&self, queue: Queue) -> &Ring {
        let found = self.queues.iter().find(|(q, ..)| *q == queue);
        &found.expect("queue was negotiated").2
    }
}

impl IndexMut<Queue> for Driver<'_> {
    fn index_mut(&mut self, queue: Queue) -> &mut Ring {
        let found = self.queues.iter_mut().find(|(q, ..)| *q == queue);
        &mut found.expect("queue was negotiated").2
    }
}

/// Where the ring with this index lies.
pub fn ring_base(index: u32) -> u64 {
    0x1_0000 + 0x4000 * u64::from(index)
}

/// Resets the device and proposes `features`; returns whether it agrees.
pub fn negotiate(machine: &Machine, features: u64) -> bool {
    machine.write(reg::STATUS, 0);
    machine.write(reg::STATUS, ACKNOWLEDGE);
    machine.write(reg::STATUS, ACKNOWLEDGE | DRIVER);
    for (page, value) in [(0, features as u32), (1, (features >> 32) as u32)] {
        machine.write(reg::DRIVER_FEATURES_SEL, page);
        machine.write(reg::DRIVER_FEATURES, value);
    }
    machine.write(reg::STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK);
    machine.read(reg::STATUS) & FEATURES_OK != 0
}

/// Hands queue `index` over, with a ring of `size`.
pub fn set_up_queue(machine: &Machine, index: u32, size: u16) -> Ring {
    let ring = Ring::new(&machine.memory, ring_base(index), size);
    machine.write(reg::QUEUE_SEL, index);
    machine.write(reg::QUEUE_SIZE, size.into());
    for (register, addr) in [
        (reg::QUEUE_DESC_LOW, ring.descriptors),
        (reg::QUEUE_DRIVER_LOW, ring.available),
        (reg::QUEUE_DEVICE_LOW, ring.used),
    ] {
        machine.write(register, addr as u32);
        machine.write(register + 4, (addr >> 32) as u32);
    }
    machine.write(reg::QUEUE_READY, 1);
    ring
}

/// Sets DRIVER_OK on top of what is set.
pub fn driver_ok(machine: &Machine) {
    let status = machine.read(reg::STATUS);
    machine.write(reg::STATUS, status | DRIVER_OK);
}

impl<'a> Driver<'a> {
    /// Bits 5, 6 and VERSION_1; queues of 64, counted as Linux counts.
    pub fn start(machine: &'a Machine) -> Self {
        let features = VERSION_1 | PAGE_REPORTING | DEVICE_INIT_REPORTED;
        Self::with(machine, features, Numbering::Dense, 64)
    }

    /// Ready to go with these features.
    pub fn with(machine: &'a Machine, features: u64, numbering: Numbering, size: u16) -> Self {
        let driver = Self::prepare(machine, features, numbering, size);
        driver_ok(machine);
        let status = machine.read(reg::STATUS);
        assert_eq!(status & NEEDS_RESET, 0, "the device accepts the queues");
        driver
    }

    /// As [`Driver::with`], but without DRIVER_OK.
    pub fn prepare(machine: &'a Machine, features: u64, numbering: Numbering, size: u16) -> Self {
        assert!(negotiate(machine, features), "the device agrees");
        let mut wanted = vec![(Queue::Inflate, 0), (Queue::Deflate, 1)];
        for ((queue, needs), fixed) in OPTIONAL.into_iter().zip(2..) {
            if features & needs != 0 {
                let counted = wanted.len() as u32;
                let index = match numbering {
                    Numbering::Dense => counted,
                    Numbering::Fixed => fixed,
                };
                wanted.push((queue, index));
            }
        }
        let queues = wanted.into_iter();
        let queues =
            queues.map(|(queue, index)| (queue, index, set_up_queue(machine, index, size)));
        let queues: Vec<_> = queues.collect();
        for (queue, index, ring) in &queues {
            // What Linux does when it sets a queue up: no interrupt is lost.
            assert_eq!(machine.read(reg::QUEUE_READY), 1, "{queue:?} at {index}");
            ring.set_available_flags(0);
        }
        Self { machine, queues }
    }

    pub fn index_of(&self, queue: Queue) -> u32 {
        let found = self.queues.iter().find(|(q, ..)| *q == queue);
        found.expect("queue was negotiated").1
    }

    pub fn kick(&self, queue: Queue) {
        self.machine.write(reg::QUEUE_NOTIFY, self.index_of(queue));
    }

    /// Submits a chain from descriptor 0 on and waits for its used length.
    pub fn submit(&mut self, queue: Queue, chain: &[Buf]) -> u32 {
        self[queue].write_chain(0, chain);
        self.submit_head(queue, 0)
    }

    /// Submits the chain at `head` and waits for its used length.
    pub fn submit_head(&mut self, queue: Queue, head: u16) -> u32 {
        self[queue].make_available(head);
        self.kick(queue);
        let (id, len) = self.next_used(queue);
        assert_eq!(id, u32::from(head), "the chain submitted is completed");
        len
    }

    /// Waits for the next used entry.
    pub fn next_used(&mut self, queue: Queue) -> (u32, u32) {
        let seen = self[queue].seen;
        wait_until("a used entry", || self[queue].used_index() != seen);
        self[queue].seen = seen.wrapping_add(1);
        self[queue].used_entry(seen)
    }

    /// Completes `count` requests of the chains at heads 0 to 3, a few at a time.
    pub fn burn(&mut self, queue: Queue, count: usize) {
        for first in (0..count).step_by(4) {
            let heads = 0..(count - first).min(4) as u16;
            for head in heads.clone() {
                self[queue].make_available(head);
            }
            self.kick(queue);
            for head in heads {
                assert_eq!(self.next_used(queue), (head.into(), 0));
            }
        }
    }

    /// Names pages in one request and waits for it.
    pub fn name_pages(&mut self, queue: Queue, pfns: &[u32]) -> u32 {
        let len = self.machine.put_pfns(super::SCRATCH, pfns);
        self.submit(queue, &[super::readable(super::SCRATCH, len)])
    }

    /// Inflates pages in one request that ends in a bitmap of `room` bytes;
    /// returns the used length and those bytes, which held 0xcc before.
    pub fn inflate_for_bitmap(&mut self, pfns: &[u32], room: u32) -> (u32, Vec<u8>) {
        let len = self.machine.put_pfns(super::SCRATCH, pfns);
        let bitmap = super::BITMAP..super::BITMAP + u64::from(room);
        self.machine.fill(bitmap.clone(), 0xcc);
        let chain = [
            super::readable(super::SCRATCH, len),
            super::writable(super::BITMAP, room),
        ];
        let used = self.submit(Queue::Inflate, &chain);
        (used, self.machine.bytes(bitmap))
    }

    /// Returns when the worker has nothing left to do on the other queues and
    /// raised all interrupts for them. Uses up the deflate queue, on which no
    /// interrupts are wanted from then on.
    pub fn settle(&mut self) {
        let used = self[Queue::Deflate].used_index();
        self[Queue::Deflate].set_available_flags(1);
        self[Queue::Deflate].set_used_event(used.wrapping_sub(2));
        self.submit(Queue::Deflate, &[super::readable(super::SCRATCH, 0)]);
    }

    /// As [`Driver::settle`], where `queue` may be the deflate queue itself:
    /// waits for one more request there.
    pub fn settle_on(&mut self, queue: Queue) {
        if queue != Queue::Deflate {
            return self.settle();
        }
        self.submit(Queue::Inflate, &[super::readable(super::SCRATCH, 0)]);
    }

    /// What the driver sees of the device's status.
    pub fn status(&self) -> u32 {
        self.machine.read(reg::STATUS)
    }
}

/// What [`super::reporting_spec`] offers, for a table.
pub const KNOWN: u64 =
    VERSION_1 | EVENT_IDX | PAGE_REPORTING | DEVICE_INIT_REPORTED | super::DEFLATE_ON_OOM;
/// What [`super::full_spec`] offers.
pub const FULL: u64 = KNOWN | MUST_TELL_HOST | STATS_VQ | FREE_PAGE_HINT | PAGE_POISON;
