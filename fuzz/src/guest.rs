//! A device over small guest memory, whose worker runs when the guest says so:
//! one thread, so that an input does the same each time.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use devices::balloon::device::{Balloon, BalloonSpec, BalloonWorker};
use devices::mmio_bus::BusDevice;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::checked_host::{CheckedHost, NoLine};
use crate::fake_guest::driver::{self, reg};

/// Guest RAM: two regions with a hole between them. Small, since all of it is
/// compared again and again.
pub(crate) const LOW: Range<u64> = 0..0x3_8000;
pub(crate) const HIGH: Range<u64> = 0x8_0000..0x9_0000;
/// Where no ring lies unless an input puts it there.
pub(crate) const DATA: Range<u64> = 0x2_8000..LOW.end;
/// What the guest has in its memory at the beginning.
const DIRT: [u8; 4096] = [0xaa; 4096];

/// More turns than any amount of work that fits into the rings takes: at most
/// 256 chains of 5 queues, in batches of 32.
const MAX_TURNS: usize = 64;

/// One page of zeros, to compare with.
const ZEROS: [u8; 4096] = [0; 4096];

/// Two readings of guest RAM.
#[derive(Default)]
struct Images {
    before: Vec<u8>,
    after: Vec<u8>,
}

thread_local! {
    /// Used again and again, or the kernel clears new pages for each input.
    static IMAGES: Cell<Images> = Cell::default();
    /// Mapped once: the same pages serve one input after the other.
    static MEMORY: GuestMemoryMmap = GuestMemoryMmap::from_ranges(
        &[LOW, HIGH].map(|r| (GuestAddress(r.start), (r.end - r.start) as usize)),
    )
    .unwrap();
}

/// The device with what belongs to it.
pub(crate) struct Guest {
    pub(crate) spec: BalloonSpec,
    pub(crate) memory: GuestMemoryMmap,
    pub(crate) host: Arc<CheckedHost>,
    pub(crate) balloon: Balloon,
    pub(crate) mmio: Arc<dyn BusDevice>,
    worker: BalloonWorker,
    images: Images,
}

impl Guest {
    /// `None` for a spec that the device refuses.
    pub(crate) fn new(spec: BalloonSpec) -> Option<Self> {
        let memory = MEMORY.with(GuestMemoryMmap::clone);
        for page in LOW.chain(HIGH).step_by(DIRT.len()) {
            memory.write_slice(&DIRT, GuestAddress(page)).unwrap();
        }
        let host = Arc::new(CheckedHost::new(memory.clone()));
        let line = Arc::new(NoLine);
        let made = Balloon::with_worker(spec, memory.clone(), host.clone(), line);
        let (balloon, worker) = made.ok()?;
        let mmio = balloon.mmio();
        Some(Self {
            spec,
            memory,
            host,
            balloon,
            mmio,
            worker,
            images: IMAGES.take(),
        })
    }

    pub(crate) fn read(&self, register: u64) -> u32 {
        let mut data = [0xee; 4];
        self.mmio.read(register, &mut data);
        u32::from_le_bytes(data)
    }

    pub(crate) fn write(&self, register: u64, value: u32) {
        self.mmio.write(register, &value.to_le_bytes());
    }

    /// Lets the worker do all it has to do, which must come to an end.
    pub(crate) fn let_device_work(&mut self) {
        for _ in 0..MAX_TURNS {
            if !self.worker.run_pending().unwrap() {
                return;
            }
        }
        panic!("the worker finds no end");
    }

    /// Resets the device, and accepts what `wanted` has of what is offered.
    /// `None` if the device does not agree.
    pub(crate) fn negotiate(&self, wanted: u64) -> Option<u64> {
        let mut offered = 0;
        self.write(reg::STATUS, 0);
        self.write(reg::STATUS, driver::ACKNOWLEDGE | driver::DRIVER);
        for page in [1, 0] {
            self.write(reg::DEVICE_FEATURES_SEL, page);
            offered = offered << 32 | u64::from(self.read(reg::DEVICE_FEATURES));
        }
        let accepted = offered & wanted;
        for page in [0, 1] {
            self.write(reg::DRIVER_FEATURES_SEL, page);
            self.write(reg::DRIVER_FEATURES, (accepted >> (32 * page)) as u32);
        }
        let status = driver::ACKNOWLEDGE | driver::DRIVER | driver::FEATURES_OK;
        self.write(reg::STATUS, status);
        (self.read(reg::STATUS) == status).then_some(accepted)
    }

    /// Remembers all of guest RAM for [`Guest::assert_only_changed`].
    pub(crate) fn remember(&mut self) {
        read_all(&self.memory, &mut self.images.before);
    }

    /// Since [`Guest::remember`] nothing became something else but zero in
    /// `zeroed`, and anything in `written`.
    pub(crate) fn assert_only_changed(&mut self, zeroed: &[Range<u64>], written: &[Range<u64>]) {
        let Images { before, after } = &mut self.images;
        read_all(&self.memory, after);
        for range in written {
            for part in parts_in_ram(range) {
                before[part.clone()].copy_from_slice(&after[part]);
            }
        }
        for part in zeroed.iter().flat_map(parts_in_ram) {
            let (before, after) = (&mut before[part.clone()], &after[part]);
            let pages = before
                .chunks_mut(ZEROS.len())
                .zip(after.chunks(ZEROS.len()));
            for (before, after) in pages.filter(|(before, after)| before != after) {
                if *after == ZEROS[..after.len()] {
                    before.copy_from_slice(after);
                    continue;
                }
                for (before, after) in before.iter_mut().zip(after) {
                    *before = if *after == 0 { 0 } else { *before };
                }
            }
        }
        if before == after {
            return;
        }
        let same = before
            .iter()
            .zip(&*after)
            .take_while(|(before, after)| before == after);
        let addr = address_of(same.count());
        panic!("{addr:#x} was changed, and nobody asked for it");
    }

    /// One byte of guest RAM.
    pub(crate) fn byte(&self, addr: u64) -> u8 {
        self.memory.read_obj(GuestAddress(addr)).unwrap()
    }

    /// Whether all of `range` is RAM and reads zero.
    pub(crate) fn reads_zero(&self, range: Range<u64>) -> bool {
        let mut pages = range.clone().step_by(ZEROS.len());
        pages.all(|start| {
            let len = ZEROS.len().min((range.end - start) as usize);
            let mut bytes = [0xee; ZEROS.len()];
            let read = self
                .memory
                .read_slice(&mut bytes[..len], GuestAddress(start));
            read.is_ok() && bytes[..len] == ZEROS[..len]
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        IMAGES.set(std::mem::take(&mut self.images));
    }
}

fn read_all(memory: &GuestMemoryMmap, image: &mut Vec<u8>) {
    image.resize(index_of(HIGH.end), 0);
    let (low, high) = image.split_at_mut(index_of(HIGH.start));
    memory.read_slice(low, GuestAddress(LOW.start)).unwrap();
    memory.read_slice(high, GuestAddress(HIGH.start)).unwrap();
}

/// What of `range` is in guest RAM, as places in an image.
fn parts_in_ram(range: &Range<u64>) -> impl Iterator<Item = Range<usize>> {
    let range = range.clone();
    let parts = [LOW, HIGH].map(|region| range.start.max(region.start)..range.end.min(region.end));
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    // An address past a region is the first of the next in an image.
    parts.map(|part| index_of(part.start)..index_of(part.end - 1) + 1)
}

/// Where in an image the byte of an address is.
fn index_of(addr: u64) -> usize {
    (if addr < HIGH.start {
        addr
    } else {
        addr - (HIGH.start - LOW.end)
    }) as usize
}

/// The other way round.
fn address_of(at: usize) -> u64 {
    let at = at as u64;
    if at < LOW.end {
        at
    } else {
        at + (HIGH.start - LOW.end)
    }
}

/// Whether all of `range` is guest RAM.
pub(crate) fn is_ram(range: &Range<u64>) -> bool {
    [LOW, HIGH]
        .iter()
        .any(|region| region.start <= range.start && range.end <= region.end)
}

/// Whether two ranges share a byte.
pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
