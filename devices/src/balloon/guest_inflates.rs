//! The inflate and deflate queues: the guest gives pages and takes them back,
//! by 4 KiB page number.

use vm_memory::GuestMemoryMmap;

use super::guest_range::{self, GuestRange};
use super::host_zeroes::HostWork;
use super::pfn_stream::{BadRequest, PfnStream};
use super::spec::PFN_SHIFT;
use crate::virtio::chain::Buffer;

/// Handles inflate and deflate requests; holds only room that is used again
/// for each.
#[derive(Debug, Default)]
pub(crate) struct GuestInflates {
    bytes: Vec<u8>,
    pfns: Vec<u32>,
    pages: Vec<GuestRange>,
}

impl GuestInflates {
    /// Gives the whole backing pages among the pages of this request back to
    /// the host, before the request is published: once it is, the pages must
    /// not change any more (virtio 1.3, 5.5.6).
    ///
    /// # Errors
    /// [`BadRequest`]; then nothing has been done.
    pub(crate) fn inflate(
        &mut self,
        chain: &[Buffer],
        memory: &GuestMemoryMmap,
        limit: u64,
        host: &HostWork<'_>,
    ) -> Result<(), BadRequest> {
        self.each_part(chain, memory, limit, host, |pages, count| {
            host.counters.add(|c| &mut c.inflated_pages, count);
            let released = host.release(pages);
            host.counters
                .add(|c| &mut c.inflate_released_bytes, released);
        })
    }

    /// Counts the pages taken back. They need no preparation: released memory
    /// comes back when it is touched.
    ///
    /// # Errors
    /// [`BadRequest`]; then nothing has been counted.
    pub(crate) fn deflate(
        &mut self,
        chain: &[Buffer],
        memory: &GuestMemoryMmap,
        limit: u64,
        host: &HostWork<'_>,
    ) -> Result<(), BadRequest> {
        self.each_part(chain, memory, limit, host, |_, count| {
            host.counters.add(|c| &mut c.deflated_pages, count);
        })
    }

    /// Calls `each` with the pages of one part of the request, merged, and how
    /// many they are. A page named twice in a part counts once.
    fn each_part(
        &mut self,
        chain: &[Buffer],
        memory: &GuestMemoryMmap,
        limit: u64,
        host: &HostWork<'_>,
        mut each: impl FnMut(&[GuestRange], u64),
    ) -> Result<(), BadRequest> {
        let mut stream = PfnStream::new(memory, host.ram, chain, limit)?;
        if stream.dropped() > 0 {
            host.counters.add(|c| &mut c.malformed_chains, 1);
            host.log.warn(format_args!(
                "a request names more than the guest's {limit} pages: {} bytes ignored",
                stream.dropped()
            ));
        }
        while !host.cancelled() && stream.next(&mut self.bytes, &mut self.pfns) {
            self.pfns.sort_unstable();
            self.pfns.dedup();
            let named = self.pfns.len();
            let pages = self.pfns.iter().filter_map(|pfn| page(*pfn, memory));
            self.pages.clear();
            self.pages.extend(pages);
            let count = self.pages.len();
            if named > count {
                let not_ram = as_u64(named - count);
                host.counters.add(|c| &mut c.not_ram, not_ram);
                host.log
                    .warn(format_args!("{not_ram} page numbers are not guest RAM"));
            }
            guest_range::merge(&mut self.pages);
            each(&self.pages, as_u64(count));
        }
        if let Some(addr) = stream.lacking() {
            host.counters.add(|c| &mut c.malformed_chains, 1);
            host.log
                .warn(format_args!("no memory for the page numbers at {addr:#x}"));
        }
        Ok(())
    }
}

/// The page of this number, if all of it is RAM.
fn page(pfn: u32, memory: &GuestMemoryMmap) -> Option<GuestRange> {
    let page = GuestRange::new(u64::from(pfn) << PFN_SHIFT, 1 << PFN_SHIFT);
    page.filter(|page| page.is_ram(memory))
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
