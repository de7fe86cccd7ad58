//! Reads the page numbers of a request: one stream of words, however the
//! driver cut it into buffers (virtio 1.3, 2.7.4.2).

use thiserror::Error;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::guest_range::GuestRange;
use super::host_zeroes::ZeroGuestRange;
use super::spec::PFN_BYTES;
use crate::virtio::chain::Buffer;

/// Page numbers read at a time, which bounds both memory and the time between
/// two looks at whether to go on: 256 KiB of numbers, for 256 MiB of pages.
pub(crate) const PFNS_AT_A_TIME: usize = 1 << 16;

/// Why a request is not carried out.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BadRequest {
    #[error("page numbers at {addr:#x}, {len} bytes, are not in guest RAM")]
    NotRam { addr: u64, len: u64 },
}

/// The page numbers that are still to be read.
pub(crate) struct PfnStream<'a> {
    memory: &'a GuestMemoryMmap,
    ram: &'a dyn ZeroGuestRange,
    buffers: &'a [Buffer],
    /// Bytes already taken of the first buffer.
    taken: u64,
    /// Bytes still to be taken of all.
    left: u64,
    /// Bytes beyond the limit, which are never read.
    dropped: u64,
    /// Where reading stopped for want of memory.
    lacking: Option<u64>,
}

impl<'a> PfnStream<'a> {
    /// A stream over the readable buffers of `chain`, of at most `limit` page
    /// numbers: no honest request names more pages than the guest has.
    ///
    /// # Errors
    /// [`BadRequest`] if some of it cannot be read; then nothing has been.
    pub(crate) fn new(
        memory: &'a GuestMemoryMmap,
        ram: &'a dyn ZeroGuestRange,
        chain: &'a [Buffer],
        limit: u64,
    ) -> Result<Self, BadRequest> {
        let mut left = limit.saturating_mul(PFN_BYTES as u64);
        let budget = left;
        let readable = chain.partition_point(|buffer| !buffer.writable);
        let buffers = chain.get(..readable).unwrap_or_default();
        for buffer in buffers {
            let len = left.min(buffer.len.into());
            let range = GuestRange::new(buffer.addr, len);
            if len > 0 && !range.is_some_and(|range| range.is_ram(memory)) {
                let addr = buffer.addr;
                return Err(BadRequest::NotRam { addr, len });
            }
            left -= len;
        }
        let total: u64 = buffers.iter().map(|buffer| u64::from(buffer.len)).sum();
        let used = budget - left;
        Ok(Self {
            memory,
            ram,
            buffers,
            taken: 0,
            left: used,
            dropped: total - used,
            lacking: None,
        })
    }

    /// Whole page numbers that are still to be read.
    pub(crate) fn numbers(&self) -> u64 {
        self.left / PFN_BYTES as u64
    }

    /// Bytes that are still to be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.left
    }

    /// Bytes beyond the limit.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Address of page numbers that are in RAM no memory is to be had for; they
    /// and what follows were not read.
    pub(crate) fn lacking(&self) -> Option<u64> {
        self.lacking
    }

    /// Replaces `pfns` by the next page numbers; returns false if there are
    /// none. Bytes at the end that make no whole number are ignored. `bytes`
    /// is scratch space.
    pub(crate) fn next(&mut self, bytes: &mut Vec<u8>, pfns: &mut Vec<u32>) -> bool {
        let wanted = (PFNS_AT_A_TIME * PFN_BYTES) as u64;
        let wanted = usize::try_from(self.left.min(wanted)).unwrap_or(0);
        bytes.resize(wanted, 0);
        let mut filled = 0;
        while let Some(part) = bytes.get_mut(filled..).filter(|part| !part.is_empty()) {
            let read = self.read_some(part);
            if read == 0 {
                break;
            }
            filled += read;
        }
        bytes.truncate(filled);
        let words = bytes.chunks_exact(PFN_BYTES);
        let words = words.filter_map(|word| <[u8; PFN_BYTES]>::try_from(word).ok());
        pfns.clear();
        pfns.extend(words.map(u32::from_le_bytes));
        !pfns.is_empty()
    }

    /// Reads into the start of `to`, not across buffers; 0 at the end.
    fn read_some(&mut self, to: &mut [u8]) -> usize {
        while let Some((first, rest)) = self.buffers.split_first() {
            let len = u64::from(first.len) - self.taken;
            if len == 0 {
                self.buffers = rest;
                self.taken = 0;
                continue;
            }
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(to.len());
            let addr = GuestAddress(first.addr.saturating_add(self.taken));
            // Not before: the request may name the pages of its own numbers.
            let range = GuestRange::new(addr.0, len as u64);
            if range.is_none_or(|range| self.ram.make_present(range).is_err()) {
                self.lacking = Some(addr.0);
                break;
            }
            let read = to
                .get_mut(..len)
                .and_then(|to| self.memory.read_slice(to, addr).ok());
            if read.is_none() {
                // It was found readable before; should that change, stop.
                self.lacking = Some(addr.0);
                break;
            }
            self.taken += len as u64;
            self.left = self.left.saturating_sub(len as u64);
            return len;
        }
        self.left = 0;
        0
    }
}
