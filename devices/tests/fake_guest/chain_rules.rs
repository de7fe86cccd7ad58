//! What a chain means by the letter of the specification (virtio 1.3, 2.7.5):
//! written for tests, not taken from the device.

use std::ops::Range;

use super::ring::{INDIRECT, NEXT, WRITE};

/// A descriptor as the driver wrote it.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    pub addr: u64,
    pub len: u32,
    pub flags: u16,
    pub next: u16,
}

/// The chain at `head`, or `None` if it is malformed.
pub fn walk(table: &[Descriptor], head: u16) -> Option<Vec<Descriptor>> {
    let mut chain: Vec<Descriptor> = Vec::new();
    let mut at = head;
    loop {
        let d = *table.get(usize::from(at))?;
        let readable_again =
            d.flags & WRITE == 0 && chain.last().is_some_and(|last| last.flags & WRITE != 0);
        if d.flags & INDIRECT != 0 || readable_again || chain.len() == table.len() {
            return None;
        }
        chain.push(d);
        if d.flags & NEXT == 0 {
            return Some(chain);
        }
        at = d.next;
    }
}

/// The first `len` bytes of what the device may write to.
pub fn promised(chain: &[Descriptor], len: u32) -> Vec<Range<u64>> {
    let mut left = u64::from(len);
    let mut ranges = Vec::new();
    for d in chain.iter().filter(|d| d.flags & WRITE != 0) {
        let part = left.min(d.len.into());
        if part > 0 {
            ranges.push(d.addr..d.addr + part);
        }
        left -= part;
    }
    assert_eq!(left, 0, "no more is promised than was reported");
    ranges
}
