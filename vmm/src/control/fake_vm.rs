//! A VM for tests: it does what its guest is told to do here.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use devices::balloon::counters::CountersSnapshot;
use devices::balloon::device::FeaturesSnapshot;
use devices::balloon::queue_map::QueueNumbering;
use serde_json::{Value, json};

use super::reply::{Info, VmState};
use super::vm::{ControlledVm, Sample};

/// Guest RAM of the fake.
pub(super) const MEMORY: u64 = 1 << 30;

/// How the guest is, and what happened to it.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// Its balloon follows the target at once.
    pub(super) follows: bool,
    /// It tells its statistics when asked.
    pub(super) tells: bool,
    /// It has no statistics and does not hint, and says so by this kind.
    pub(super) lacks: Option<io::ErrorKind>,
    /// Pages in its balloon.
    pub(super) actual: u64,
    /// All sizes it was asked for.
    pub(super) targets: Vec<u64>,
    pub(super) samples: u64,
    pub(super) hinting: bool,
    pub(super) paused: bool,
    pub(super) stopped: bool,
}

/// The fake. Clones are the same VM.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeVm(Arc<Mutex<Guest>>);

impl FakeVm {
    /// A VM whose guest does all it is asked for.
    pub(super) fn willing() -> Self {
        let this = Self::default();
        this.guest().follows = true;
        this.guest().tells = true;
        this
    }

    pub(super) fn guest(&self) -> MutexGuard<'_, Guest> {
        self.0.lock().unwrap()
    }

    fn needs_features(&self) -> io::Result<MutexGuard<'_, Guest>> {
        let guest = self.guest();
        if let Some(kind) = guest.lacks {
            return Err(io::Error::new(kind, "not negotiated"));
        }
        Ok(guest)
    }
}

impl ControlledVm for FakeVm {
    fn memory_bytes(&self) -> u64 {
        MEMORY
    }

    fn boot_target(&self) -> u64 {
        5
    }

    fn set_target(&self, pages: u64) -> io::Result<()> {
        let mut guest = self.guest();
        guest.targets.push(pages);
        if guest.follows {
            guest.actual = pages;
        }
        Ok(())
    }

    fn actual_pages(&self) -> u64 {
        self.guest().actual
    }

    fn counters(&self) -> CountersSnapshot {
        CountersSnapshot {
            reports: 7,
            ..CountersSnapshot::default()
        }
    }

    fn info(&self) -> Info {
        let paused = self.guest().paused;
        Info {
            aerostat: "1.2.3".to_owned(),
            state: if paused {
                VmState::Paused
            } else {
                VmState::Running
            },
            cpus: 2,
            memory_bytes: MEMORY,
            features: FeaturesSnapshot {
                offered: vec!["PAGE_REPORTING".to_owned()],
                acknowledged: None,
            },
            queue_numbering: Some(QueueNumbering::Dense),
            poison: Some(0xaa),
        }
    }

    fn request_statistics(&self) -> io::Result<u64> {
        let mut guest = self.needs_features()?;
        let last = guest.samples;
        if guest.tells {
            guest.samples += 1;
        }
        Ok(last)
    }

    fn statistics(&self) -> Option<Sample> {
        let number = self.guest().samples;
        (number > 0).then(|| Sample {
            number,
            value: json!({ "sample": number }),
        })
    }

    fn start_hinting(&self) -> io::Result<Value> {
        self.needs_features()?.hinting = true;
        self.hinting_status()
    }

    fn stop_hinting(&self) -> io::Result<Value> {
        self.needs_features()?.hinting = false;
        self.hinting_status()
    }

    fn hinting_status(&self) -> io::Result<Value> {
        let guest = self.needs_features()?;
        Ok(json!({ "hinting": guest.hinting }))
    }

    fn pause(&self) -> io::Result<()> {
        self.guest().paused = true;
        Ok(())
    }

    fn resume(&self) {
        self.guest().paused = false;
    }

    fn stop(&self) {
        self.guest().stopped = true;
    }
}
