//! What the driver knows of a queue: what it made available, and what that
//! asks for by the letter of the specification.

use std::collections::VecDeque;
use std::ops::Range;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::fake_guest::PAGE;
use crate::fake_guest::chain_rules::{Descriptor, walk};
use crate::fake_guest::driver::{reg, ring_base};
use crate::fake_guest::ring::{Ring, WRITE};
use crate::guest::{Guest, HIGH, LOW, is_ram};

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Inflate,
    Deflate,
    Statistics,
    Hinting,
    Reporting,
}

/// Queues that exist by a feature, in the order of their fixed numbers, which
/// begin at 2 (virtio 1.3, 5.5.2).
const OPTIONAL: [(Role, u32); 3] = [
    (Role::Statistics, 1),
    (Role::Hinting, 3),
    (Role::Reporting, 5),
];

/// Index and role of each queue under `accepted`, as Linux counts them
/// (`dense`) or by the specification's numbers.
pub(crate) fn queues_of(accepted: u64, dense: bool) -> Vec<(u32, Role)> {
    let mut queues = vec![(0, Role::Inflate), (1, Role::Deflate)];
    for (fixed, (role, feature)) in (2..).zip(OPTIONAL) {
        if accepted >> feature & 1 != 0 {
            let index = if dense { queues.len() as u32 } else { fixed };
            queues.push((index, role));
        }
    }
    queues
}

/// One queue that is ready.
pub(crate) struct QueueModel {
    pub(crate) role: Role,
    pub(crate) index: u32,
    pub(crate) ring: Ring,
    /// Heads made available and not seen in the used ring.
    pub(crate) pending: VecDeque<u16>,
    /// The device was told to look.
    pub(crate) kicked: bool,
}

/// One request in a ring.
pub(crate) struct Request {
    /// `None` if it is malformed.
    pub(crate) chain: Option<Vec<Descriptor>>,
    /// The page numbers in it, in order, as far as they count.
    pub(crate) pfns: Vec<u32>,
    /// What the device reads.
    pub(crate) read: Vec<Range<u64>>,
    /// What the device may make zero: all of it is RAM.
    pub(crate) given: Vec<Range<u64>>,
    /// What the device may write something else to.
    pub(crate) bitmap: Vec<Range<u64>>,
}

impl QueueModel {
    /// Hands a ring over at its usual place, or the three areas at `places`.
    /// `None` if the device does not take it.
    pub(crate) fn set_up(
        guest: &Guest,
        (index, role): (u32, Role),
        size: u16,
        places: Option<[u64; 3]>,
    ) -> Option<Self> {
        let mut ring = Ring::new(&guest.memory, ring_base(index), size);
        if let Some([descriptors, available, used]) = places {
            ring.descriptors = descriptors;
            ring.available = available;
            ring.used = used;
        }
        guest.write(reg::QUEUE_SEL, index);
        guest.write(reg::QUEUE_SIZE, size.into());
        for (register, addr) in [
            (reg::QUEUE_DESC_LOW, ring.descriptors),
            (reg::QUEUE_DRIVER_LOW, ring.available),
            (reg::QUEUE_DEVICE_LOW, ring.used),
        ] {
            guest.write(register, addr as u32);
            guest.write(register + 4, (addr >> 32) as u32);
        }
        guest.write(reg::QUEUE_READY, 1);
        let ready = guest.read(reg::QUEUE_READY) == 1;
        if ready && places.is_none() {
            ring.set_available_flags(0);
        }
        ready.then(|| Self {
            role,
            index,
            ring,
            pending: VecDeque::new(),
            kicked: false,
        })
    }

    /// Descriptor table and available ring: what the driver writes.
    pub(crate) fn driver_areas(&self) -> [Range<u64>; 2] {
        let (ring, size) = (&self.ring, u64::from(self.ring.size));
        [
            ring.descriptors..ring.descriptors + 16 * size,
            ring.available..ring.available + 6 + 2 * size,
        ]
    }

    /// The used ring: what the device writes.
    pub(crate) fn device_area(&self) -> Range<u64> {
        self.ring.used..self.ring.used + 6 + 8 * u64::from(self.ring.size)
    }

    /// The request at `head`, as it is in memory now.
    pub(crate) fn request(&self, head: u16, memory: &GuestMemoryMmap) -> Request {
        let chain = walk(&descriptor_table(&self.ring, memory), head);
        let buffers = |writable: bool| {
            let chain = chain.iter().flatten();
            let wanted = chain.filter(move |d| (d.flags & WRITE != 0) == writable);
            wanted.map(|d| d.addr..d.addr.saturating_add(d.len.into()))
        };
        let pfns = match self.role {
            Role::Inflate | Role::Deflate => page_numbers(buffers(false), memory),
            Role::Statistics | Role::Hinting | Role::Reporting => Vec::new(),
        };
        let given: Vec<_> = match self.role {
            Role::Deflate | Role::Statistics => Vec::new(),
            Role::Hinting | Role::Reporting => buffers(true).collect(),
            Role::Inflate => pfns.iter().map(page).collect(),
        };
        Request {
            read: buffers(false).filter(|range| !range.is_empty()).collect(),
            given: given.into_iter().filter(is_ram).collect(),
            bitmap: match self.role {
                Role::Inflate => buffers(true).collect(),
                _ => Vec::new(),
            },
            chain,
            pfns,
        }
    }
}

/// The 4 KiB page of this number (5.5.6).
pub(crate) fn page(pfn: &u32) -> Range<u64> {
    let start = u64::from(*pfn) * PAGE;
    start..start + PAGE
}

/// The descriptor table as it is in guest memory.
fn descriptor_table(ring: &Ring, memory: &GuestMemoryMmap) -> Vec<Descriptor> {
    let mut raw = vec![0; usize::from(ring.size) * 16];
    let at = GuestAddress(ring.descriptors);
    memory.read_slice(&mut raw, at).unwrap();
    let u16_at = |d: &[u8], at: usize| u16::from_le_bytes([d[at], d[at + 1]]);
    raw.chunks_exact(16)
        .map(|d| Descriptor {
            addr: u64::from_le_bytes(d[..8].try_into().unwrap()),
            len: u32::from_le_bytes(d[8..12].try_into().unwrap()),
            flags: u16_at(d, 12),
            next: u16_at(d, 14),
        })
        .collect()
}

/// The words in `buffers`: none if some of them cannot be read, and no more
/// than the guest has pages.
fn page_numbers(buffers: impl Iterator<Item = Range<u64>>, memory: &GuestMemoryMmap) -> Vec<u32> {
    let mut left = (LOW.end + HIGH.end - HIGH.start) / PAGE * 4;
    let mut bytes = Vec::new();
    for buffer in buffers {
        let len = left.min(buffer.end - buffer.start);
        let from = bytes.len();
        bytes.resize(from + len as usize, 0);
        let read = memory.read_slice(&mut bytes[from..], GuestAddress(buffer.start));
        if len > 0 && read.is_err() {
            return Vec::new();
        }
        left -= len;
    }
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}
