//! Each chain to the handler of its queue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::counters::Counters;
use super::device::{BalloonSpec, Hinting, Reclaim};
use super::driver_view::Agreed;
use super::guest_hints::{BadCommand, GuestHints};
use super::guest_inflates::GuestInflates;
use super::guest_may_skip::UsedLength;
use super::guest_reports::GuestReports;
use super::guest_statistics::GuestStatistics;
use super::host_zeroes::{HostWork, ZeroGuestRange};
use super::pfn_stream::BadRequest;
use super::queue_map::QueueRole;
use super::requests::Requests;
use super::spec::{DEVICE_INIT_REPORTED, PFN_SHIFT};
use crate::virtio::chain::{Buffer, Malformed};
use crate::virtio::drain_queue::{Handled, QueueWork};
use crate::virtio::log_budget::LogBudget;

/// The queues' side of the device: everything that touches guest memory.
pub(crate) struct BalloonWork {
    on_report: Reclaim,
    on_hint: Hinting,
    memory: GuestMemoryMmap,
    /// Size of guest RAM in 4 KiB pages.
    guest_pages: u64,
    ram: Arc<dyn ZeroGuestRange>,
    counters: Arc<Counters>,
    requests: Arc<Requests>,
    log: Arc<LogBudget>,
    reports: GuestReports,
    inflates: GuestInflates,
    statistics: GuestStatistics,
    hints: GuestHints,
}

/// Why a chain was not acted on, though it is well formed.
#[derive(Debug, Error)]
enum BadChain {
    #[error(transparent)]
    Pages(#[from] BadRequest),
    #[error(transparent)]
    Command(#[from] BadCommand),
}

/// Size of guest RAM in 4 KiB pages.
pub(crate) fn pages_of(memory: &GuestMemoryMmap) -> u64 {
    memory.iter().map(|region| region.len() >> PFN_SHIFT).sum()
}

impl BalloonWork {
    /// Work on `memory` with the effects of `ram`.
    pub(crate) fn new(
        spec: &BalloonSpec,
        memory: GuestMemoryMmap,
        ram: Arc<dyn ZeroGuestRange>,
        counters: Arc<Counters>,
        requests: Arc<Requests>,
        log: Arc<LogBudget>,
    ) -> Self {
        Self {
            on_report: spec.on_report,
            on_hint: spec.hinting,
            guest_pages: pages_of(&memory),
            memory,
            ram,
            counters,
            requests,
            log,
            reports: GuestReports::default(),
            inflates: GuestInflates::default(),
            statistics: GuestStatistics::default(),
            hints: GuestHints::default(),
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
    ) -> Handled {
        let host = HostWork {
            ram: self.ram.as_ref(),
            counters: &self.counters,
            log: &self.log,
            cancel,
        };
        let (memory, limit) = (&self.memory, self.guest_pages);
        let may_zero = agreed.poison.allows_zero();
        let done = match agreed.queues.role(index) {
            Some(QueueRole::Reporting) => {
                let told = agreed.features.contains(DEVICE_INIT_REPORTED);
                let on_report = if may_zero {
                    self.on_report
                } else {
                    Reclaim::Keep
                };
                let reports = &mut self.reports;
                Ok(reports.handle(chain, on_report, told, memory, &host))
            }
            Some(QueueRole::Inflate) => {
                let done = self.inflates.inflate(chain, memory, limit, &host);
                done.map(|()| UsedLength::NOTHING).map_err(BadChain::from)
            }
            Some(QueueRole::Deflate) => {
                let done = self.inflates.deflate(chain, memory, limit, &host);
                done.map(|()| UsedLength::NOTHING).map_err(BadChain::from)
            }
            Some(QueueRole::Stats) => {
                let statistics = &self.requests.statistics;
                return self.statistics.handle(chain, statistics, memory, &host);
            }
            Some(QueueRole::FreePageHint) => {
                let discard = may_zero && self.on_hint == Hinting::Discard;
                let hints = &self.requests.hints;
                let done = self.hints.handle(chain, hints, discard, memory, &host);
                done.map(|()| UsedLength::NOTHING).map_err(BadChain::from)
            }
            // No driver can make such a queue ready.
            None => Ok(UsedLength::NOTHING),
        };
        let used = done.unwrap_or_else(|bad| {
            self.counters.add(|c| &mut c.malformed_chains, 1);
            self.log.warn(format_args!("queue {index}: {bad}"));
            UsedLength::NOTHING
        });
        Handled::Complete(used.bytes())
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
