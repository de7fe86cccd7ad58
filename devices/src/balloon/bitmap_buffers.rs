//! The device-writable end of an inflate request, where its bitmap goes.

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::guest_may_skip::{PageBitmap, UsedLength};
use super::guest_range::GuestRange;
use super::host_zeroes::HostWork;
use crate::virtio::chain::Buffer;

/// What is written where the bitmap's bytes have ended, and the most that is
/// written in one go.
const ZEROS: [u8; 4096] = [0; 4096];

/// The writable buffers of a chain, as one stream of bytes, however the driver
/// cut it (virtio 1.3, 2.7.4.2).
pub(crate) struct BitmapBuffers<'a> {
    buffers: &'a [Buffer],
    /// Bytes that are to be written: one bit for each page number.
    needed: u64,
}

impl<'a> BitmapBuffers<'a> {
    /// Those of `chain`, for as many page numbers.
    pub(crate) fn of(chain: &'a [Buffer], pfns: u64) -> Self {
        let readable = chain.partition_point(|buffer| !buffer.writable);
        Self {
            buffers: chain.get(readable..).unwrap_or_default(),
            needed: pfns.div_ceil(8),
        }
    }

    /// Where the bitmap goes, in its order: `None` for a place that no address
    /// can have. Shorter than needed if the driver gave too little.
    pub(crate) fn places(&self) -> impl Iterator<Item = Option<GuestRange>> + 'a {
        let mut left = self.needed;
        let lengths = self.buffers.iter().map(move |buffer| {
            let len = left.min(buffer.len.into());
            left -= len;
            (buffer.addr, len)
        });
        let filled = lengths.filter(|(_, len)| *len > 0);
        filled.map(|(addr, len)| GuestRange::new(addr, len))
    }

    /// Writes `bitmap`, up to the first place that cannot be written to.
    /// Returns the used length and how many pages that promises.
    pub(crate) fn write(
        &self,
        bitmap: &PageBitmap,
        memory: &GuestMemoryMmap,
        host: &HostWork<'_>,
    ) -> (UsedLength, u64) {
        let mut rest = bitmap.bytes();
        let mut written = 0_u32;
        for place in self.places() {
            let mut left = place.filter(|place| place.is_ram(memory));
            if left.is_none() {
                host.counters.add(|c| &mut c.malformed_chains, 1);
                host.log
                    .warn(format_args!("part of a bitmap is not in guest RAM"));
                break;
            }
            while let Some(place) = left {
                let most = if rest.is_empty() {
                    ZEROS.len()
                } else {
                    rest.len()
                };
                let (now, after) = place.cut(place.start().saturating_add(most as u64));
                left = after;
                let Some(len) = now.and_then(|now| write_some(now, &mut rest, memory, host)) else {
                    return bitmap.written(written);
                };
                written = written.saturating_add(len);
            }
        }
        bitmap.written(written)
    }
}

/// Writes the start of `rest`, or zeros if it is empty, to all of `place`;
/// returns its length.
fn write_some(
    place: GuestRange,
    rest: &mut &[u8],
    memory: &GuestMemoryMmap,
    host: &HostWork<'_>,
) -> Option<u32> {
    let len = usize::try_from(place.len()).ok()?;
    let from = if rest.is_empty() { &ZEROS } else { *rest };
    let bytes = from.get(..len)?;
    if host.cancelled() {
        return None;
    }
    // Not before: the request may have given the place itself away.
    if let Err(error) = host.ram.make_present(place) {
        host.counters.add(|c| &mut c.malformed_chains, 1);
        host.log
            .warn(format_args!("no memory for a bitmap: {error}"));
        return None;
    }
    memory
        .write_slice(bytes, GuestAddress(place.start()))
        .ok()?;
    *rest = rest.get(len..).unwrap_or_default();
    u32::try_from(len).ok()
}
