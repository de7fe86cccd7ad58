//! A running machine, controlled.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use devices::balloon::counters::CountersSnapshot;
use devices::balloon::device::Balloon;
use serde_json::Value;

use super::reply::{Info, VmState};
use super::vm::{ControlledVm, Sample};
use crate::ending::{StopCause, Stopper};
use crate::kvm::vcpu_pause::VcpuPause;

/// How long a vCPU may take to come out of KVM. It takes microseconds, unless it
/// waits for the balloon to let go of a ring.
const PAUSE_LIMIT: Duration = Duration::from_millis(500);

/// A machine whose vCPUs were started.
pub struct MachineControl {
    /// Its balloon.
    pub balloon: Arc<Mutex<Balloon>>,
    /// Stops its vCPUs and lets them run.
    pub vcpus: VcpuPause,
    /// Takes the request to end.
    pub stopper: Arc<Stopper>,
    /// Number of vCPUs.
    pub cpus: u8,
    /// Guest RAM in bytes.
    pub memory_bytes: u64,
    /// Balloon size asked for at boot, in pages of 4 KiB.
    pub boot_target: u64,
}

impl MachineControl {
    fn balloon(&self) -> MutexGuard<'_, Balloon> {
        self.balloon.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlledVm for MachineControl {
    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn boot_target(&self) -> u64 {
        self.boot_target
    }

    fn set_target(&self, pages: u64) -> io::Result<()> {
        let pages = u32::try_from(pages).map_err(|_| {
            let what = "a balloon has less than 16 TiB (2^32 pages of 4 KiB)";
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        self.balloon().set_target_pages(pages)
    }

    fn actual_pages(&self) -> u64 {
        self.balloon().actual_pages()
    }

    fn counters(&self) -> CountersSnapshot {
        self.balloon().counters()
    }

    fn info(&self) -> Info {
        let paused = self.vcpus.is_paused();
        let balloon = self.balloon();
        Info {
            aerostat: env!("CARGO_PKG_VERSION").to_owned(),
            state: if paused {
                VmState::Paused
            } else {
                VmState::Running
            },
            cpus: self.cpus,
            memory_bytes: self.memory_bytes,
            features: balloon.features(),
            queue_numbering: balloon.queue_numbering(),
            poison: balloon.poison(),
        }
    }

    fn request_statistics(&self) -> io::Result<u64> {
        self.balloon().request_statistics()
    }

    fn statistics(&self) -> Option<Sample> {
        let sample = self.balloon().statistics()?;
        Some(Sample {
            number: sample.number,
            value: serde_json::to_value(sample).ok()?,
        })
    }

    fn start_hinting(&self) -> io::Result<Value> {
        self.balloon().start_hinting()?;
        self.hinting_status()
    }

    fn stop_hinting(&self) -> io::Result<Value> {
        self.balloon().stop_hinting()?;
        self.hinting_status()
    }

    fn hinting_status(&self) -> io::Result<Value> {
        Ok(serde_json::to_value(self.balloon().hinting_status())?)
    }

    fn pause(&self) -> io::Result<()> {
        if self.vcpus.pause(PAUSE_LIMIT) {
            return Ok(());
        }
        let what =
            format!("a vCPU did not stop within {PAUSE_LIMIT:?}; it stops as soon as it can");
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    }

    fn resume(&self) {
        self.vcpus.resume();
    }

    fn stop(&self) {
        self.stopper.request(StopCause::Interrupted);
    }
}
