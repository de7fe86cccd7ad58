//! Each chain to the handler of its queue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::counters::Counters;
use super::device::Reclaim;
use super::driver_view::Agreed;
use super::guest_inflates::GuestInflates;
use super::guest_may_skip::UsedLength;
use super::guest_reports::GuestReports;
use super::host_zeroes::{HostWork, ZeroGuestRange};
use super::queue_map::QueueRole;
use super::spec::{DEVICE_INIT_REPORTED, PFN_SHIFT};
use crate::virtio::chain::{Buffer, Malformed};
use crate::virtio::drain_queue::QueueWork;
use crate::virtio::log_budget::LogBudget;

/// The queues' side of the device: everything that touches guest memory.
pub(crate) struct BalloonWork {
    on_report: Reclaim,
    memory: GuestMemoryMmap,
    /// Size of guest RAM in 4 KiB pages.
    guest_pages: u64,
    ram: Arc<dyn ZeroGuestRange>,
    counters: Arc<Counters>,
    log: Arc<LogBudget>,
    reports: GuestReports,
    inflates: GuestInflates,
}

/// Size of guest RAM in 4 KiB pages.
pub(crate) fn pages_of(memory: &GuestMemoryMmap) -> u64 {
    memory.iter().map(|region| region.len() >> PFN_SHIFT).sum()
}

impl BalloonWork {
    /// Work on `memory` with the effects of `ram`.
    pub(crate) fn new(
        on_report: Reclaim,
        memory: GuestMemoryMmap,
        ram: Arc<dyn ZeroGuestRange>,
        counters: Arc<Counters>,
        log: Arc<LogBudget>,
    ) -> Self {
        Self {
            on_report,
            guest_pages: pages_of(&memory),
            memory,
            ram,
            counters,
            log,
            reports: GuestReports::default(),
            inflates: GuestInflates::default(),
        }
    }
}

impl QueueWork<Agreed> for BalloonWork {
    fn handle(
        &mut self,
        agreed: &Agreed,
        index: usize,
        chain: &[Buffer],
        cancel: &AtomicBool,
    ) -> u32 {
        let host = HostWork {
            ram: self.ram.as_ref(),
            counters: &self.counters,
            log: &self.log,
            cancel,
        };
        let (memory, limit) = (&self.memory, self.guest_pages);
        let done = match agreed.queues.role(index) {
            Some(QueueRole::Reporting) => {
                let told = agreed.features.contains(DEVICE_INIT_REPORTED);
                let reports = &mut self.reports;
                Ok(reports.handle(chain, self.on_report, told, memory, &host))
            }
            Some(QueueRole::Inflate) => {
                let done = self.inflates.inflate(chain, memory, limit, &host);
                done.map(|()| UsedLength::NOTHING)
            }
            Some(QueueRole::Deflate) => {
                let done = self.inflates.deflate(chain, memory, limit, &host);
                done.map(|()| UsedLength::NOTHING)
            }
            // Their features are not offered, so they cannot be ready.
            Some(QueueRole::Stats | QueueRole::FreePageHint) | None => Ok(UsedLength::NOTHING),
        };
        let used = done.unwrap_or_else(|bad| {
            self.counters.add(|c| &mut c.malformed_chains, 1);
            self.log.warn(format_args!("queue {index}: {bad}"));
            UsedLength::NOTHING
        });
        used.bytes()
    }

    fn published(&mut self, agreed: &Agreed, index: usize, used: u32) {
        if agreed.queues.role(index) == Some(QueueRole::Reporting) {
            self.counters.add(|c| &mut c.reports, 1);
            self.counters.add(|c| &mut c.promised_bytes, used.into());
        }
    }

    fn malformed(&mut self, index: usize, why: &Malformed) {
        self.counters.add(|c| &mut c.malformed_chains, 1);
        self.log.warn(format_args!("queue {index}: {why}"));
    }
}
