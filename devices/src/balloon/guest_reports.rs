//! The reporting queue: the guest names memory it does not use, as the
//! writable buffers of a chain.

use vm_memory::GuestMemoryMmap;

use super::device::Reclaim;
use super::guest_may_skip::{self, UsedLength};
use super::guest_range::GuestRange;
use super::host_zeroes::{HostWork, Scratch, ZeroBy, Zeroed};
use crate::virtio::chain::Buffer;

/// Handles reports; holds only room that is used again for each.
#[derive(Debug, Default)]
pub(crate) struct GuestReports {
    entries: Vec<Option<GuestRange>>,
    wanted: Vec<GuestRange>,
    scratch: Scratch,
    zeroed: Vec<Zeroed>,
}

impl GuestReports {
    /// Does with the memory reported by `chain` what `on_report` says, before
    /// the chain is published. `told` is whether the driver will be told what
    /// reads zero (DEVICE_INIT_REPORTED); `used_rings` is where the device
    /// writes by itself.
    pub(crate) fn handle(
        &mut self,
        chain: &[Buffer],
        on_report: Reclaim,
        told: bool,
        used_rings: &[GuestRange],
        memory: &GuestMemoryMmap,
        host: &HostWork<'_>,
    ) -> UsedLength {
        self.read(chain, memory, host);
        let Some(by) = on_report.zero_by() else {
            return UsedLength::NOTHING;
        };
        if !told && by == ZeroBy::Discarding {
            // Nobody learns what reads zero, so clearing what cannot be
            // discarded would be for nothing.
            let released = host.release(&self.wanted, &mut self.scratch);
            host.counters.add(|c| &mut c.released_bytes, released);
            // What went back reads zero when it comes again.
            host.counters.add(|c| &mut c.zeroed_bytes, released);
            return UsedLength::NOTHING;
        }
        self.zeroed.clear();
        let done = host.zero(&self.wanted, by, &mut self.scratch, &mut self.zeroed);
        host.counters.add(|c| &mut c.zeroed_bytes, done.zeroed);
        host.counters.add(|c| &mut c.released_bytes, done.released);
        if told {
            guest_may_skip::promise(&self.entries, &mut self.zeroed, used_rings)
        } else {
            UsedLength::NOTHING
        }
    }

    /// Takes the entries out of the chain. A readable buffer is no report.
    fn read(&mut self, chain: &[Buffer], memory: &GuestMemoryMmap, host: &HostWork<'_>) {
        let entries = chain.iter().filter(|buffer| buffer.writable);
        let entries = entries.filter(|buffer| buffer.len > 0);
        self.entries.clear();
        self.entries.extend(entries.map(|buffer| {
            // An entry that reaches out of RAM is not cut to what is inside.
            GuestRange::new(buffer.addr, buffer.len.into()).filter(|range| range.is_ram(memory))
        }));
        self.wanted.clear();
        self.wanted.extend(self.entries.iter().flatten());

        let not_ram = self.entries.iter().filter(|entry| entry.is_none()).count();
        if not_ram > 0 {
            let not_ram = u64::try_from(not_ram).unwrap_or(u64::MAX);
            host.counters.add(|c| &mut c.not_ram, not_ram);
            host.log
                .warn(format_args!("{not_ram} reported ranges are not guest RAM"));
        }
        for range in &self.wanted {
            host.counters.add(|c| &mut c.reported_bytes, range.len());
        }
    }
}
