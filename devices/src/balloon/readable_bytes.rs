//! Reads what a driver lets the device read: one stream of bytes, however it is
//! cut into buffers (virtio 1.3, 2.7.4.2).

use thiserror::Error;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::guest_range::GuestRange;
use super::host_zeroes::ZeroGuestRange;
use crate::virtio::chain::Buffer;

/// Why the bytes of a chain cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Unreadable {
    #[error("a buffer at {addr:#x}, {len} bytes, is not in guest RAM")]
    NotRam { addr: u64, len: u64 },
    #[error("no memory for a buffer at {addr:#x}")]
    NoMemory { addr: u64 },
}

/// Replaces `bytes` by the first bytes of the readable buffers of `chain`,
/// `limit` of them at most. What is beyond is not looked at.
///
/// # Errors
/// [`Unreadable`]; `bytes` then holds what comes before.
pub(crate) fn read(
    chain: &[Buffer],
    limit: usize,
    memory: &GuestMemoryMmap,
    ram: &dyn ZeroGuestRange,
    bytes: &mut Vec<u8>,
) -> Result<(), Unreadable> {
    bytes.clear();
    for buffer in chain.iter().take_while(|buffer| !buffer.writable) {
        let start = bytes.len();
        let len = usize::try_from(buffer.len).unwrap_or(usize::MAX);
        let len = len.min(limit.saturating_sub(start));
        if len == 0 {
            continue;
        }
        let addr = buffer.addr;
        let not_ram = Unreadable::NotRam {
            addr,
            len: len as u64,
        };
        let range = GuestRange::new(addr, len as u64).filter(|range| range.is_ram(memory));
        let Some(range) = range else {
            return Err(not_ram);
        };
        if ram.make_present(range).is_err() {
            return Err(Unreadable::NoMemory { addr });
        }
        bytes.resize(start + len, 0);
        let to = bytes.get_mut(start..).unwrap_or_default();
        if memory.read_slice(to, GuestAddress(addr)).is_err() {
            return Err(not_ram);
        }
    }
    Ok(())
}
