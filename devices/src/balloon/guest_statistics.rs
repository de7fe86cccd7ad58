//! The statistics queue: the guest offers one filled buffer at a time, which
//! the device keeps until it wants another.

use vm_memory::GuestMemoryMmap;

use super::host_zeroes::HostWork;
use super::readable_bytes;
use super::spec::STATS_BYTES_MAX;
use super::statistics::Statistics;
use crate::virtio::chain::Buffer;
use crate::virtio::drain_queue::Handled;

/// Handles buffers of statistics; holds only room that is used again for each.
#[derive(Debug, Default)]
pub(crate) struct GuestStatistics {
    entries: Vec<u8>,
}

impl GuestStatistics {
    /// Reads what the guest filled in and keeps the buffer, or gives it back at
    /// once if a request waits for one: what it holds is older than that.
    ///
    /// One that cannot be read is kept as well, since it is the only one the
    /// guest has: if it came back at once, so would the guest.
    pub(crate) fn handle(
        &mut self,
        chain: &[Buffer],
        statistics: &Statistics,
        memory: &GuestMemoryMmap,
        host: &HostWork<'_>,
    ) -> Handled {
        if statistics.take_wanted() {
            return Handled::Complete(0);
        }
        let entries = &mut self.entries;
        match readable_bytes::read(chain, STATS_BYTES_MAX, memory, host.ram, entries) {
            Ok(()) => statistics.filled(entries),
            Err(why) => {
                // First, so that whoever sees it counted can ask anew.
                statistics.unreadable();
                host.counters.add(|c| &mut c.malformed_chains, 1);
                host.log.warn(format_args!("statistics: {why}"));
            }
        }
        Handled::Keep
    }
}
