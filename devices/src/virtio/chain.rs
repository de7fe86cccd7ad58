//! Walks a descriptor chain once, into a copy the guest cannot change.

use thiserror::Error;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// One buffer of a chain, as the driver described it: not checked to be RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Guest physical address.
    pub(crate) addr: u64,
    /// Length in bytes; may be 0.
    pub(crate) len: u32,
    /// Whether the device may write to it, else it may only read.
    pub(crate) writable: bool,
}

/// Why a chain is malformed (virtio 1.3, 2.7.5).
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Malformed {
    #[error("a chain has more than {0} descriptors: it loops")]
    Loop(u16),
    #[error("descriptor {next} is outside the table of {size}")]
    Outside { next: u16, size: u16 },
    #[error("descriptor {0} is indirect, which was not negotiated")]
    Indirect(u16),
    #[error("descriptor {0} is device-readable but follows a device-writable one")]
    ReadableAfterWritable(u16),
    #[error("descriptor {0} cannot be read")]
    Unreadable(u16),
}

/// Copies the chain that starts at `head` into `chain`.
///
/// Visits at most `size` descriptors.
///
/// # Errors
/// [`Malformed`]; `chain` is then empty, so that nothing is done half.
pub(crate) fn walk(
    memory: &GuestMemoryMmap,
    table: u64,
    size: u16,
    head: u16,
    chain: &mut Vec<Buffer>,
) -> Result<(), Malformed> {
    chain.clear();
    let walked = follow(memory, table, size, head, chain);
    if walked.is_err() {
        chain.clear();
    }
    walked
}

fn follow(
    memory: &GuestMemoryMmap,
    table: u64,
    size: u16,
    head: u16,
    chain: &mut Vec<Buffer>,
) -> Result<(), Malformed> {
    let mut next = head;
    let mut writable_seen = false;
    for _ in 0..size {
        if next >= size {
            return Err(Malformed::Outside { next, size });
        }
        let addr = table.checked_add(u64::from(next) * 16).map(GuestAddress);
        let descriptor = addr.and_then(|addr| memory.read_obj::<Descriptor>(addr).ok());
        let descriptor = descriptor.ok_or(Malformed::Unreadable(next))?;
        if descriptor.refers_to_indirect_table() {
            return Err(Malformed::Indirect(next));
        }
        let writable = descriptor.is_write_only();
        if writable_seen && !writable {
            return Err(Malformed::ReadableAfterWritable(next));
        }
        writable_seen = writable;
        chain.push(Buffer {
            addr: descriptor.addr().0,
            len: descriptor.len(),
            writable,
        });
        if !descriptor.has_next() {
            return Ok(());
        }
        next = descriptor.next();
    }
    Err(Malformed::Loop(size))
}
