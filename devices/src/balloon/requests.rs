//! What the owner asks of the guest while it runs: statistics and hints. The
//! device keeps the request; its thread carries it out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use vmm_sys_util::eventfd::EventFd;

use super::changes::Changes;
use super::device::Balloon;
use super::driver_view::DriverView;
use super::hinting::{HintingEnd, HintingStatus, Hints};
use super::negotiation;
use super::queue_map::QueueNumbering;
use super::spec::{FREE_PAGE_HINT, STATS_VQ};
use super::statistics::{Statistics, StatisticsSample};
use crate::virtio::device::VirtioDevice;
use crate::virtio::features::Features;
use crate::virtio::mmio_transport::new_event;
use crate::virtio::transport_state::State;

/// Requests of the owner, shared with the registers and with the thread.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Statistics.
    pub(crate) statistics: Statistics,
    /// Free page hinting.
    pub(crate) hints: Hints,
    /// What the guest told.
    pub(crate) changes: Arc<Changes>,
    /// Wakes the thread: there is a request.
    pub(crate) made: EventFd,
}

impl Requests {
    /// None so far. A hinting run may take `hinting_limit`.
    ///
    /// # Errors
    /// The error of creating an event.
    pub(crate) fn new(hinting_limit: Duration) -> io::Result<Self> {
        let changes = Arc::new(Changes::default());
        Ok(Self {
            statistics: Statistics::new(Arc::clone(&changes)),
            hints: Hints::new(hinting_limit, Arc::clone(&changes)),
            changes,
            made: new_event()?,
        })
    }

    /// The driver went, and nothing is asked of the next one.
    pub(crate) fn reset(&self) {
        self.statistics.reset();
        self.hints.reset();
        self.changes.add();
    }
}

/// What the owner asks of the guest.
impl Balloon {
    /// Asks the guest for new statistics, and returns the number of the last
    /// sample, or 0: the answer is the next [`Balloon::statistics`] with a
    /// higher one. A guest that hangs never answers. A request that comes while
    /// another is under way is answered with it; a reset of the device ends it.
    ///
    /// # Errors
    /// `InvalidInput` if statistics are not offered; `NotConnected` if there is
    /// no driver, `Unsupported` if it did not accept them.
    pub fn request_statistics(&self) -> io::Result<u64> {
        let state = self.transport.lock();
        check_driver(&state, STATS_VQ)?;
        let last = self.requests.statistics.want();
        drop(state);
        self.requests.made.write(1)?;
        Ok(last)
    }

    /// The last sample of statistics, if there has been one. The first comes
    /// without a request when the driver starts; none is lost with a reset.
    #[must_use]
    pub fn statistics(&self) -> Option<StatisticsSample> {
        self.requests.statistics.last()
    }

    /// Asks the guest to hint at its free pages, and returns the command id of
    /// the run. A run that is on gives way to it.
    ///
    /// # Errors
    /// `InvalidInput` if hinting is not offered; `NotConnected` if there is no
    /// driver, `Unsupported` if it did not accept it; `ResourceBusy` if the
    /// guest confirmed none of some 4 billion runs.
    pub fn start_hinting(&self) -> io::Result<u32> {
        let state = self.transport.lock();
        check_driver(&state, FREE_PAGE_HINT)?;
        let id = self.requests.hints.start()?;
        drop(state);
        self.requests.made.write(1)?;
        Ok(id)
    }

    /// Ends the hinting run that is on, if one is: no hint is acted on any
    /// more, and soon the guest is told that it may use its pages.
    ///
    /// # Errors
    /// `InvalidInput` if hinting is not offered.
    pub fn stop_hinting(&self) -> io::Result<()> {
        check_offered(&self.transport.lock(), FREE_PAGE_HINT)?;
        self.requests.hints.end(HintingEnd::Stopped);
        self.requests.made.write(1)
    }

    /// How far the last hinting run has come.
    #[must_use]
    pub fn hinting_status(&self) -> HintingStatus {
        self.requests.hints.status()
    }

    /// How the driver that last set DRIVER_OK numbers its queues, also after it
    /// reset the device; `None` until then.
    #[must_use]
    pub fn queue_numbering(&self) -> Option<QueueNumbering> {
        let agreed = self.transport.lock().device.last_agreed();
        agreed.map(|agreed| agreed.queues.numbering())
    }

    /// What the guest of the driver that last set DRIVER_OK fills its free
    /// pages with, also after it reset the device; `None` until then, and if it
    /// did not accept PAGE_POISON.
    #[must_use]
    pub fn poison(&self) -> Option<u32> {
        let agreed = self.transport.lock().device.last_agreed();
        agreed.and_then(|agreed| agreed.poison.0)
    }

    /// Counts what the guest tells; to wait for the next
    /// [`Balloon::statistics`], [`Balloon::hinting_status`] or
    /// [`Balloon::actual_pages`].
    #[must_use]
    pub fn changes(&self) -> Arc<Changes> {
        Arc::clone(&self.requests.changes)
    }
}

/// Whether there is a driver, and one that accepted `feature`.
fn check_driver(state: &State<DriverView>, feature: Features) -> io::Result<()> {
    check_offered(state, feature)?;
    let (kind, what) = match state.running() {
        Some(agreed) if agreed.features.contains(feature) => return Ok(()),
        Some(_) => (
            io::ErrorKind::Unsupported,
            "not accepted by the guest's driver",
        ),
        None => (
            io::ErrorKind::NotConnected,
            "to be asked of a driver, but none runs the balloon",
        ),
    };
    Err(refused(kind, feature, what))
}

fn check_offered(state: &State<DriverView>, feature: Features) -> io::Result<()> {
    if state.device.offered().contains(feature) {
        return Ok(());
    }
    Err(refused(
        io::ErrorKind::InvalidInput,
        feature,
        "not offered by this balloon",
    ))
}

fn refused(kind: io::ErrorKind, feature: Features, what: &str) -> io::Error {
    let feature = negotiation::names(feature).join(" ");
    io::Error::new(kind, format!("{feature} is {what}"))
}
