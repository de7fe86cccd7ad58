//! Each chain to the handler of its queue.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::balloon_pages::{BalloonPages, Completes};
use super::counters::Counters;
use super::device::{BalloonSpec, Hinting, Reclaim};
use super::driver_view::Agreed;
use super::guest_hints::{BadCommand, GuestHints};
use super::guest_inflates::{GuestInflates, OnInflate, Surroundings};
use super::guest_may_skip::UsedLength;
use super::guest_range::{self, GuestRange};
use super::guest_reports::GuestReports;
use super::guest_statistics::GuestStatistics;
use super::host_zeroes::{HostWork, ZeroGuestRange};
use super::pace::Pace;
use super::pfn_stream::BadRequest;
use super::queue_map::QueueRole;
use super::requests::Requests;
use super::spec::{DEVICE_INIT_ON_INFLATE, DEVICE_INIT_REPORTED, MUST_TELL_HOST, PFN_SHIFT};
use crate::virtio::chain::{Buffer, Malformed};
use crate::virtio::drain_queue::{Handled, QueueWork};
use crate::virtio::log_budget::LogBudget;

/// The queues' side of the device: everything that touches guest memory.
pub(crate) struct BalloonWork {
    on_report: Reclaim,
    on_inflate: Reclaim,
    on_hint: Hinting,
    memory: GuestMemoryMmap,
    /// Size of guest RAM in 4 KiB pages.
    guest_pages: u64,
    ram: Arc<dyn ZeroGuestRange>,
    counters: Arc<Counters>,
    requests: Arc<Requests>,
    log: Arc<LogBudget>,
    pace: RefCell<Pace>,
    reports: GuestReports,
    inflates: GuestInflates,
    statistics: GuestStatistics,
    hints: GuestHints,
    /// Where the device writes by itself: ascending and disjoint.
    used_rings: Vec<GuestRange>,
    /// The driver whose pages are in the balloon.
    activation: u64,
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
    ///
    /// # Errors
    /// `InvalidInput` for memory the balloon cannot be counted in.
    pub(crate) fn new(
        spec: &BalloonSpec,
        memory: GuestMemoryMmap,
        ram: Arc<dyn ZeroGuestRange>,
        counters: Arc<Counters>,
        requests: Arc<Requests>,
        log: Arc<LogBudget>,
    ) -> io::Result<Self> {
        let balloon = BalloonPages::of(&memory, ram.as_ref())?;
        Ok(Self {
            on_report: spec.on_report,
            on_inflate: spec.on_inflate,
            on_hint: spec.hinting,
            guest_pages: pages_of(&memory),
            memory,
            ram,
            counters,
            requests,
            log,
            pace: RefCell::new(Pace::new(spec.zero_rate)),
            reports: GuestReports::default(),
            inflates: GuestInflates::new(balloon),
            statistics: GuestStatistics::default(),
            hints: GuestHints::default(),
            used_rings: Vec::new(),
            activation: 0,
        })
    }

    /// What an inflate request of this driver may do.
    fn on_inflate(&self, agreed: &Agreed) -> OnInflate {
        let has = |feature| agreed.features.contains(feature);
        OnInflate {
            reclaim: self.on_inflate,
            told: has(DEVICE_INIT_ON_INFLATE),
            may_zero: agreed.poison.allows_zero(),
            completes: if has(MUST_TELL_HOST) {
                Completes::WithEarlier
            } else {
                Completes::Alone
            },
        }
    }
}

impl QueueWork<Agreed> for BalloonWork {
    fn used_rings(&mut self, rings: &mut dyn Iterator<Item = (u64, u64)>) {
        let rings = rings.filter_map(|(addr, len)| GuestRange::new(addr, len));
        self.used_rings.clear();
        self.used_rings.extend(rings);
        guest_range::merge(&mut self.used_rings);
    }

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
            pace: &self.pace,
        };
        if self.activation != agreed.activation {
            self.activation = agreed.activation;
            self.inflates.forget_all();
        }
        let memory = &self.memory;
        let at = Surroundings {
            memory,
            limit: self.guest_pages,
            used_rings: &self.used_rings,
        };
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
                let rings = &self.used_rings;
                Ok(reports.handle(chain, on_report, told, rings, memory, &host))
            }
            Some(QueueRole::Inflate) => {
                let on_inflate = self.on_inflate(agreed);
                let done = self.inflates.inflate(chain, on_inflate, at, &host);
                done.map_err(BadChain::from)
            }
            Some(QueueRole::Deflate) => {
                let done = self.inflates.deflate(chain, at, &host);
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
        match agreed.queues.role(index) {
            Some(QueueRole::Reporting) => {
                self.counters.add(|c| &mut c.reports, 1);
                self.counters.add(|c| &mut c.promised_bytes, used.into());
            }
            Some(QueueRole::Inflate) => {
                let promised = self.inflates.promised();
                self.counters
                    .add(|c| &mut c.inflate_promised_pages, promised);
            }
            _ => {}
        }
    }

    fn malformed(&mut self, agreed: &Agreed, index: usize, why: &Malformed) {
        if agreed.queues.role(index) == Some(QueueRole::Deflate) {
            self.inflates.forget_all();
        }
        self.counters.add(|c| &mut c.malformed_chains, 1);
        self.log.warn(format_args!("queue {index}: {why}"));
    }
}
