//! A guest on real memory with a balloon device: just enough of a driver to
//! inflate and deflate.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use devices::balloon::device::{Balloon, BalloonSpec, Reclaim};
use devices::interrupt::Interrupt;
use vm_memory::{Bytes, GuestAddress};

use super::guest::*;
use crate::memory::GuestRam;

// A driver's view of a ring; not all of it is needed here.
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../devices/tests/fake_guest/ring.rs"]
mod ring;

use ring::{Buf, Ring, readable, writable};

/// Feature bits (virtio 1.3, 5.5.3; virtio-spec issue 242).
const MUST_TELL_HOST: u32 = 1;
const DEVICE_INIT_ON_INFLATE: u32 = 1 << 7;

/// What requests pass: bitmap and page numbers, in the first 2 MiB, as the rings
/// are.
const BITMAP: u64 = 0x4_0000;
const NUMBERS: u64 = 0x8_0000;
/// What a bitmap holds before the request.
pub(super) const CANARY: u8 = 0xcc;

struct NoLine;

impl Interrupt for NoLine {
    fn trigger(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Guest RAM of which the first 2 MiB are the driver's.
pub(super) struct Ballooned {
    pub(super) ram: GuestRam,
    pub(super) balloon: Balloon,
    /// Inflate and deflate queue.
    queues: [Ring; 2],
}

impl Ballooned {
    /// A guest whose driver agreed to MUST_TELL_HOST and, if `told`, to bit 7.
    pub(super) fn start(backed: Backed, size: u64, on_inflate: Reclaim, told: bool) -> Self {
        let ram = GuestRam::create(&backed.config(size)).unwrap();
        // No request changes what is resident by being written.
        dirty(&ram, 0, 2 * MIB);
        let memory = ram.guest_memory().clone();
        let spec = BalloonSpec {
            must_tell_host: true,
            device_init_on_inflate: true,
            on_inflate,
            ..BalloonSpec::default()
        };
        let balloon = Balloon::new(spec, memory.clone(), ram.zeroer(), Arc::new(NoLine)).unwrap();
        let write =
            |register: u64, value: u32| balloon.mmio().write(register, &value.to_le_bytes());
        write(0x70, 3); // Status: ACKNOWLEDGE, DRIVER
        let bit_7 = if told { DEVICE_INIT_ON_INFLATE } else { 0 };
        write(0x20, MUST_TELL_HOST | bit_7); // DriverFeatures
        write(0x24, 1); // DriverFeaturesSel
        write(0x20, 1); // VERSION_1
        write(0x70, 11); // FEATURES_OK
        let queues = [0, 1].map(|index| {
            let ring = Ring::new(&memory, 0x1_0000 + 0x4000 * u64::from(index), 8);
            write(0x30, index); // QueueSel
            write(0x38, 8); // QueueSize
            let areas = [ring.descriptors, ring.available, ring.used];
            for (register, addr) in [0x80, 0x90, 0xa0].into_iter().zip(areas) {
                write(register, u32::try_from(addr).unwrap());
            }
            write(0x44, 1); // QueueReady
            ring
        });
        write(0x70, 15); // DRIVER_OK
        Self {
            ram,
            balloon,
            queues,
        }
    }

    /// Inflates the pages at these offsets in one request with `room` bytes for
    /// the bitmap; returns the used length and those bytes.
    pub(super) fn inflate(&mut self, pages: &[u64], room: u32) -> (u32, Vec<u8>) {
        let memory = self.ram.guest_memory().clone();
        let mut bitmap = vec![CANARY; usize::try_from(room).unwrap()];
        memory.write_slice(&bitmap, GuestAddress(BITMAP)).unwrap();
        let used = self.submit(0, pages, Some(writable(BITMAP, room)));
        memory
            .read_slice(&mut bitmap, GuestAddress(BITMAP))
            .unwrap();
        (used, bitmap)
    }

    pub(super) fn deflate(&mut self, pages: &[u64]) {
        assert_eq!(self.submit(1, pages, None), 0);
    }

    fn submit(&mut self, queue: usize, pages: &[u64], bitmap: Option<Buf>) -> u32 {
        let numbers = pages.iter().map(|page| u32::try_from(page / 4096).unwrap());
        let bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        let memory = self.ram.guest_memory();
        memory.write_slice(&bytes, GuestAddress(NUMBERS)).unwrap();
        let numbers = readable(NUMBERS, u32::try_from(bytes.len()).unwrap());
        let chain: Vec<Buf> = [numbers].into_iter().chain(bitmap).collect();

        let ring = &mut self.queues[queue];
        ring.write_chain(0, &chain);
        ring.make_available(0);
        let index = u32::try_from(queue).unwrap();
        self.balloon.mmio().write(0x50, &index.to_le_bytes());
        let begin = Instant::now();
        while ring.used_index() == ring.seen {
            assert!(begin.elapsed() < Duration::from_secs(30), "never used");
            thread::sleep(Duration::from_micros(50));
        }
        let (head, used) = ring.used_entry(ring.seen);
        assert_eq!(head, 0);
        ring.seen = ring.seen.wrapping_add(1);
        used
    }

    /// Whether every byte of a range is `value`.
    pub(super) fn holds(&self, start: u64, len: u64, value: u8) -> bool {
        let mut bytes = vec![!value; usize::try_from(len).unwrap()];
        let memory = self.ram.guest_memory();
        memory.read_slice(&mut bytes, GuestAddress(start)).unwrap();
        bytes.iter().all(|byte| *byte == value)
    }
}
