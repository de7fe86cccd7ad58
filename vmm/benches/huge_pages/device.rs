//! The whole device on real memory, with a driver that fills its rings and kicks
//! once. The device's worker runs on the same thread: what it costs to wake
//! another one is the scheduler's, and the same for one block or a thousand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use devices::balloon::device::{Balloon, BalloonSpec, BalloonWorker};
use devices::interrupt::Interrupt;
use devices::mmio_bus::BusDevice;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm::config;
use vmm::memory::GuestRam;

use crate::fake_guest::driver::{self, reg, ring_base};
use crate::fake_guest::{Buf, Ring, VERSION_1};

/// Bytes of a huge page.
pub(crate) const HUGE: u64 = 2 << 20;

/// A VM's memory and balloon, without the VM.
pub(crate) struct Device {
    ram: GuestRam,
    mmio: Arc<dyn BusDevice>,
    worker: BalloonWorker,
    _balloon: Balloon,
}

/// `[memory]` of `size` bytes on pages of 2 MiB.
pub(crate) fn huge_pages(size: u64, shared: bool) -> config::Memory {
    config::Memory {
        size,
        backing: config::Backing::Hugetlb,
        page: config::PageSize::Size2M,
        shared,
        overcommit: false,
        prefault: false,
        prefault_threads: None,
    }
}

/// Nobody sleeps.
struct NoLine;

impl Interrupt for NoLine {
    fn trigger(&self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Device {
    /// With a driver that takes all that is offered and is ready to run.
    pub(crate) fn start<const N: usize>(
        memory: &config::Memory,
        spec: BalloonSpec,
        sizes: [u16; N],
    ) -> (Self, [Ring; N]) {
        let ram = GuestRam::create(memory).expect("memory as asked for");
        let guest = ram.guest_memory().clone();
        let made = Balloon::with_worker(spec, guest, ram.zeroer(), Arc::new(NoLine));
        let (balloon, worker) = made.expect("a sound spec");
        let device = Self {
            mmio: balloon.mmio(),
            worker,
            ram,
            _balloon: balloon,
        };
        let rings = device.negotiate(sizes);
        (device, rings)
    }

    /// Guest RAM.
    pub(crate) fn memory(&self) -> &GuestMemoryMmap {
        self.ram.guest_memory()
    }

    fn negotiate<const N: usize>(&self, sizes: [u16; N]) -> [Ring; N] {
        self.write(reg::STATUS, driver::ACKNOWLEDGE | driver::DRIVER);
        for page in [0, 1] {
            self.write(reg::DEVICE_FEATURES_SEL, page);
            self.write(reg::DRIVER_FEATURES_SEL, page);
            let offered = self.read(reg::DEVICE_FEATURES);
            // Without EVENT_IDX, so that the flag below says it all.
            let wanted = if page == 0 {
                !(1 << 29)
            } else {
                (VERSION_1 >> 32) as u32
            };
            self.write(reg::DRIVER_FEATURES, offered & wanted);
        }
        let agreed = driver::ACKNOWLEDGE | driver::DRIVER | driver::FEATURES_OK;
        self.write(reg::STATUS, agreed);
        let mut index = 0;
        let rings = sizes.map(|size| {
            let ring = self.set_up_queue(index, size);
            index += 1;
            ring
        });
        self.write(reg::STATUS, agreed | driver::DRIVER_OK);
        assert_eq!(self.read(reg::STATUS), agreed | driver::DRIVER_OK);
        rings
    }

    fn set_up_queue(&self, index: u32, size: u16) -> Ring {
        let ring = Ring::new(self.memory(), ring_base(index), size);
        self.write(reg::QUEUE_SEL, index);
        self.write(reg::QUEUE_SIZE, size.into());
        self.write(reg::QUEUE_DESC_LOW, ring.descriptors as u32);
        self.write(reg::QUEUE_DRIVER_LOW, ring.available as u32);
        self.write(reg::QUEUE_DEVICE_LOW, ring.used as u32);
        self.write(reg::QUEUE_READY, 1);
        assert_eq!(self.read(reg::QUEUE_READY), 1, "queue {index}");
        ring
    }

    /// Makes the chains at `heads` available, kicks `queue` once, and returns
    /// how long it took until the last was used.
    pub(crate) fn run(&mut self, queue: u32, ring: &mut Ring, heads: &[u16]) -> Duration {
        for head in heads {
            ring.make_available(*head);
        }
        let begun = Instant::now();
        self.write(reg::QUEUE_NOTIFY, queue);
        while self.worker.run_pending().expect("epoll works") {}
        let took = begun.elapsed();
        assert_eq!(ring.used_index(), ring.next_available, "all is done");
        took
    }

    /// Has memory behind each page of 4 KiB at `addresses`.
    pub(crate) fn touch(&self, addresses: impl Iterator<Item = u64>) {
        for addr in addresses {
            self.memory().write_obj(1_u8, GuestAddress(addr)).unwrap();
        }
    }

    fn read(&self, register: u64) -> u32 {
        let mut data = [0; 4];
        self.mmio.read(register, &mut data);
        u32::from_le_bytes(data)
    }

    fn write(&self, register: u64, value: u32) {
        self.mmio.write(register, &value.to_le_bytes());
    }
}

/// Writes `chains` to the table one after the other; returns their heads.
pub(crate) fn write_chains(ring: &Ring, chains: &[Vec<Buf>]) -> Vec<u16> {
    let mut head = 0;
    let mut heads = Vec::new();
    for chain in chains {
        ring.write_chain(head, chain);
        heads.push(head);
        head += chain.len() as u16;
    }
    assert!(head <= ring.size, "the chains fit");
    heads
}
