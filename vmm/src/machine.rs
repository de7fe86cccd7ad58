//! A built machine: started once, and taken apart when it has stopped.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use devices::balloon::counters::CountersSnapshot;
use devices::balloon::device::{Balloon, FeaturesSnapshot};
use devices::serial::SerialPort;

use crate::config::{Backing, Config, Memory};
use crate::console_output::ConsoleOutput;
use crate::control::command::BALLOON_PAGE;
use crate::control::machine_control::MachineControl;
use crate::ending::{GuestWord, StopCause, Stopper, verdict};
use crate::footprint;
use crate::kvm::vcpu::{Buses, EmptyPool, Vcpu};
use crate::kvm::vcpu_pause::VcpuPause;
use crate::kvm::vcpu_threads::VcpuThreads;
use crate::kvm::vm::Vm;
use crate::memory::{GuestRam, pools};
use crate::milestones::Milestones;
use crate::outcome::Verdict;
use crate::results::{BalloonTold, Footprint, PoolShortage, RunResults, TRIPLE_FAULT};
use crate::results_port::{HostCounts, SharedRecord};

/// Everything a guest consists of. Made by [`crate::builder::build`].
pub struct Machine {
    pub(crate) vcpus: Vec<Vcpu>,
    pub(crate) buses: Arc<Buses>,
    pub(crate) empty_pool: EmptyPool,
    pub(crate) balloon: Arc<Mutex<Balloon>>,
    pub(crate) counts: Arc<BalloonCounts>,
    pub(crate) com1: Arc<SerialPort>,
    pub(crate) console: ConsoleOutput,
    pub(crate) record: SharedRecord,
    pub(crate) milestones: Arc<Milestones>,
    pub(crate) stopper: Arc<Stopper>,
    pub(crate) _vm: Vm,
    /// Last, so that it is unmapped after everything that points into it.
    pub(crate) ram: GuestRam,
}

impl Machine {
    /// Starts the vCPUs.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn start(&mut self) -> io::Result<VcpuThreads> {
        let vcpus = std::mem::take(&mut self.vcpus);
        VcpuThreads::start(vcpus, &self.buses, &self.empty_pool, &self.stopper)
    }

    /// What controls it while its `vcpus` run.
    #[must_use]
    pub fn control(&self, config: &Config, vcpus: VcpuPause) -> MachineControl {
        MachineControl {
            balloon: Arc::clone(&self.balloon),
            vcpus,
            stopper: Arc::clone(&self.stopper),
            cpus: config.cpus.count,
            memory_bytes: config.memory.size,
            boot_target: config.balloon.target / BALLOON_PAGE,
        }
    }

    /// The VMM's own memory now.
    #[must_use]
    pub fn footprint(&self, config: &Memory) -> Option<Footprint> {
        let guest_in_rss = config.backing != Backing::Hugetlb;
        footprint::measure(self.ram.resident_bytes(), guest_in_rss)
    }

    /// Looks whether a vCPU waits for a page of the pool behind guest RAM, and how
    /// long; `None` where none can, because guest RAM is reserved.
    #[must_use]
    pub fn pool_watch(&self) -> Option<Box<dyn Fn(Duration) -> Duration + '_>> {
        let EmptyPool::Waits(shortage) = &self.empty_pool else {
            return None;
        };
        if self.ram.is_reserved() {
            return None;
        }
        Some(Box::new(|passed| {
            shortage.look(self.counts.pool_free(), passed)
        }))
    }

    /// Takes the stopped machine apart, puts what it leaves behind into
    /// `results`, and gives the verdict.
    #[must_use]
    pub fn finish(self, results: &mut RunResults) -> Verdict {
        {
            let mut balloon = lock(&self.balloon);
            balloon.stop();
            results.counters = balloon.counters();
            results.features = balloon.features();
            let hinting = balloon.hinting_status();
            results.balloon = BalloonTold {
                queue_numbering: balloon.queue_numbering(),
                poison: balloon.poison(),
                statistics: balloon.statistics(),
                hinting: hinting.command_id.is_some().then_some(hinting),
            };
        }
        if results.features.acknowledged.is_none() {
            results.features.acknowledged = self.counts.acknowledged();
        }
        // Ends a last line the guest did not end: the port lives on this bus only.
        drop(self.buses);
        drop(self.com1);
        let console_tail = self.console.tail();
        results.dropped.console_bytes = self.console.close();
        if let EmptyPool::Waits(shortage) = &self.empty_pool
            && (!self.ram.is_reserved() || shortage.refused() > 0)
        {
            results.timings.pool_shortage = Some(PoolShortage {
                empty_ms: shortage.empty().as_secs_f64() * 1e3,
                waits: shortage.waits().count,
                waited_ms: shortage.waits().total.as_secs_f64() * 1e3,
                refused: shortage.refused(),
            });
        }
        let mut record = self.record.lock();
        results.timings.init_ms = record.first_ms;
        results.dropped.guest_lines = record.dropped;
        results.guest = std::mem::take(&mut record.lines);
        let word = GuestWord {
            exit_code: record.exit_code,
            not_zero: record.not_zero,
            panicked: self.milestones.has_panicked(),
        };
        let never = StopCause::Broken("the machine stopped without a cause".to_string());
        let verdict = verdict(self.stopper.cause().unwrap_or(&never), word);
        if !matches!(verdict, Verdict::Success | Verdict::GuestExit { .. }) {
            results.console_tail = console_tail;
            if self.stopper.cause() == Some(&StopCause::TripleFault) {
                results.console_tail.push(TRIPLE_FAULT.to_owned());
            }
        }
        verdict
    }
}

/// What the host counts for a guest line.
pub struct BalloonCounts {
    balloon: Arc<Mutex<Balloon>>,
    /// Size of the pages behind guest RAM, if they come from a pool.
    pool_page: Option<u64>,
    /// What the driver had acknowledged when the last line came. A driver that
    /// shuts down resets the device, which then knows of no driver any more.
    acknowledged: Mutex<Option<Vec<String>>>,
}

impl BalloonCounts {
    /// Counts of `balloon`, and of the pool behind `memory`.
    #[must_use]
    pub fn new(balloon: Arc<Mutex<Balloon>>, memory: &Memory) -> Self {
        let pooled = memory.backing == Backing::Hugetlb;
        Self {
            balloon,
            pool_page: pooled.then(|| memory.page.bytes()),
            acknowledged: Mutex::new(None),
        }
    }

    fn acknowledged(&self) -> Option<Vec<String>> {
        lock(&self.acknowledged).take()
    }
}

impl HostCounts for BalloonCounts {
    fn counters(&self) -> CountersSnapshot {
        let balloon = lock(&self.balloon);
        let FeaturesSnapshot { acknowledged, .. } = balloon.features();
        if acknowledged.is_some() {
            *lock(&self.acknowledged) = acknowledged;
        }
        balloon.counters()
    }

    fn pool_free(&self) -> Option<u64> {
        pools::pool_free(self.pool_page?)
    }
}

/// Locks what a thread that panicked may have left locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
