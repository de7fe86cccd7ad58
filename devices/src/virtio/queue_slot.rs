//! The registers of one queue, and the checks before the device touches it.

use thiserror::Error;
use virtio_queue::{Queue, QueueT};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use super::features::{Features, RING_EVENT_IDX};
use super::popped::Popped;

/// One queue index: what the driver wrote, and the queue made of it.
#[derive(Debug, Default)]
pub(crate) struct QueueSlot {
    /// QueueSize as written; `None` before the first write, which means the
    /// maximum.
    size: Option<u32>,
    descriptors: u64,
    available: u64,
    used: u64,
    /// Present while QueueReady reads 1.
    queue: Option<ReadyQueue>,
    /// The driver wrote 0 to QueueReady and waits for the worker to let go.
    closing: bool,
}

/// A queue in the hands of the device.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    /// Its rings.
    pub(crate) ring: Queue,
    /// The one chain the device keeps for later, if any.
    pub(crate) kept: Option<Popped>,
}

/// Which half of an address a register holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Half {
    /// Bits 0 to 31.
    Low,
    /// Bits 32 to 63.
    High,
}

/// In bytes: a page, which is what the used ring of a legacy layout is aligned to,
/// and less than any hole in RAM.
const NEAR: u64 = 4096;

/// Which of the three areas of a split ring (virtio 1.3, 2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// Descriptor table.
    Descriptors,
    /// Available ring, written by the driver.
    Available,
    /// Used ring, written by the device.
    Used,
}

/// Why a queue cannot be made ready.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum QueueError {
    #[error("queue size {size} is not a power of two from 1 to {max}")]
    Size { size: u32, max: u16 },
    #[error("{area:?} at {addr:#x} is not aligned to {align} bytes, or is at 0")]
    Address { area: Area, addr: u64, align: u64 },
    #[error("{area:?} at {addr:#x}, {len} bytes, is not all guest RAM")]
    NotRam { area: Area, addr: u64, len: u64 },
}

impl Area {
    /// Alignment in bytes (2.7, table of the three areas).
    const fn align(self) -> u64 {
        match self {
            Self::Descriptors => 16,
            Self::Available => 2,
            Self::Used => 4,
        }
    }

    /// Length in bytes for a queue of `size`, with the index for event
    /// suppression at its end.
    const fn len(self, size: u64) -> u64 {
        match self {
            Self::Descriptors => 16 * size,
            Self::Available => 6 + 2 * size,
            Self::Used => 6 + 8 * size,
        }
    }

    fn check(self, memory: &GuestMemoryMmap, addr: u64, size: u64) -> Result<(), QueueError> {
        let (area, align, len) = (self, self.align(), self.len(size));
        // Address 0 is what an unset register holds.
        if addr == 0 || addr % align != 0 {
            return Err(QueueError::Address { area, addr, align });
        }
        let inside = usize::try_from(len)
            .is_ok_and(|len| GuestMemoryBackend::check_range(memory, GuestAddress(addr), len));
        inside
            .then_some(())
            .ok_or(QueueError::NotRam { area, addr, len })
    }
}

/// Address and length in bytes of the area the device writes to.
pub(crate) fn used_ring(queue: &Queue) -> (u64, u64) {
    let [_, _, used] = areas(queue);
    used
}

/// Address and length in bytes of the three areas of a queue.
pub(crate) fn areas(queue: &Queue) -> [(u64, u64); 3] {
    let size = u64::from(queue.size());
    [
        (queue.desc_table(), Area::Descriptors.len(size)),
        (queue.avail_ring(), Area::Available.len(size)),
        (queue.used_ring(), Area::Used.len(size)),
    ]
}

/// Has `is_present` look at all the [`areas`] of a queue; returns where it said no.
/// Those less than [`NEAR`] apart, as in a ring that a driver allocates in one
/// piece, are looked at together.
pub(crate) fn find_absent(
    mut areas: [(u64, u64); 3],
    mut is_present: impl FnMut(u64, u64) -> bool,
) -> Option<u64> {
    areas.sort_unstable();
    let [(mut start, len), rest @ ..] = areas;
    let mut end = start + len;
    for (addr, len) in rest {
        if addr > end + NEAR {
            if !is_present(start, end - start) {
                return Some(start);
            }
            (start, end) = (addr, addr);
        }
        end = end.max(addr + len);
    }
    (!is_present(start, end - start)).then_some(start)
}

impl QueueSlot {
    /// QueueSize.
    pub(crate) fn set_size(&mut self, size: u32) {
        self.size = Some(size);
    }

    /// One of the six address registers.
    pub(crate) fn set_address(&mut self, area: Area, half: Half, value: u32) {
        let addr = match area {
            Area::Descriptors => &mut self.descriptors,
            Area::Available => &mut self.available,
            Area::Used => &mut self.used,
        };
        *addr = match half {
            Half::Low => *addr & !u64::from(u32::MAX) | u64::from(value),
            Half::High => *addr & u64::from(u32::MAX) | u64::from(value) << 32,
        };
    }

    /// What QueueReady reads.
    pub(crate) fn is_ready(&self) -> bool {
        self.queue.is_some()
    }

    /// The queue, if the worker may use it.
    pub(crate) fn queue_mut(&mut self) -> Option<&mut ReadyQueue> {
        self.queue.as_mut().filter(|_| !self.closing)
    }

    /// QueueReady = 1: checks everything and makes the queue.
    pub(crate) fn open(
        &mut self,
        memory: &GuestMemoryMmap,
        max: u16,
        accepted: Features,
    ) -> Result<(), QueueError> {
        let size = self.size.unwrap_or(max.into());
        let refused = QueueError::Size { size, max };
        let size = u16::try_from(size).ok().filter(|size| *size <= max);
        let Some(size) = size.filter(|size| size.is_power_of_two()) else {
            return Err(refused);
        };
        Area::Descriptors.check(memory, self.descriptors, size.into())?;
        Area::Available.check(memory, self.available, size.into())?;
        Area::Used.check(memory, self.used, size.into())?;

        // virtio-queue checks again; its errors cannot come up after the above.
        let mut ring = Queue::new(size).map_err(|_| refused)?;
        let descriptors = GuestAddress(self.descriptors);
        let available = GuestAddress(self.available);
        let used = GuestAddress(self.used);
        let addresses = ring
            .try_set_desc_table_address(descriptors)
            .and_then(|()| ring.try_set_avail_ring_address(available))
            .and_then(|()| ring.try_set_used_ring_address(used));
        addresses.map_err(|_| QueueError::Address {
            area: Area::Descriptors,
            addr: self.descriptors,
            align: Area::Descriptors.align(),
        })?;
        ring.set_event_idx(accepted.contains(RING_EVENT_IDX));
        ring.set_ready(true);
        let kept = None;
        self.queue = Some(ReadyQueue { ring, kept });
        Ok(())
    }

    /// QueueReady = 0, first half: the worker may not start on it any more.
    pub(crate) fn start_closing(&mut self) {
        self.closing = true;
    }

    /// QueueReady = 0, second half: the worker has let go of it.
    pub(crate) fn close(&mut self) {
        self.closing = false;
        self.queue = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_near_each_other_are_looked_at_together() {
        type Row = ([(u64, u64); 3], &'static [(u64, u64)]);
        let table: [Row; 4] = [
            // As Linux lays a ring of 128 out, and with the used ring in front.
            (
                [(0x1000, 0x800), (0x1800, 0x106), (0x2000, 0x406)],
                &[(0x1000, 0x1406)],
            ),
            (
                [(0x2000, 0x800), (0x2800, 0x106), (0x1000, 0x406)],
                &[(0x1000, 0x1906)],
            ),
            // A page and a byte too far.
            (
                [(0x1000, 16), (0x2010, 8), (0x3019, 14)],
                &[(0x1000, 0x1018), (0x3019, 14)],
            ),
            // Far from each other, at the end of the address space.
            (
                [(u64::MAX - 0xffff, 0x10), (0x10, 8), (0x9000, 8)],
                &[(0x10, 8), (0x9000, 8), (u64::MAX - 0xffff, 0x10)],
            ),
        ];
        for (areas, expected) in table {
            let mut seen = Vec::new();
            let absent = find_absent(areas, |addr, len| {
                seen.push((addr, len));
                true
            });
            assert_eq!((absent, seen.as_slice()), (None, expected));
            for missing in expected {
                let absent = find_absent(areas, |addr, _| addr != missing.0);
                assert_eq!(absent, Some(missing.0), "{areas:x?}");
            }
        }
    }
}
