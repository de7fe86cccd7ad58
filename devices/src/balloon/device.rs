//! The device as its owner sees it: made, mapped on a bus, read, stopped.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use super::counters::{Counters, CountersSnapshot};
use super::driver_view::DriverView;
use super::epoll_glue::BalloonThread;
pub use super::epoll_glue::BalloonWorker;
use super::guest_range::GuestRange;
use super::host_zeroes::{ZeroBy, ZeroGuestRange};
use super::negotiation;
use super::queue_work::{BalloonWork, pages_of};
use super::requests::Requests;
use crate::interrupt::Interrupt;
use crate::mmio_bus::BusDevice;
use crate::virtio::device::VirtioDevice;
use crate::virtio::log_budget::LogBudget;
use crate::virtio::mmio_transport::{MmioTransport, new_event};

/// Length of the virtio-mmio register window: 0x100 of registers and the
/// configuration space behind them (virtio 1.3, 4.2.2).
pub const MMIO_LEN: u64 = 0x200;

/// What is done with memory the guest does not use: reported free, or in the
/// balloon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reclaim {
    /// Give the memory back; the host clears it once, at refault.
    Discard,
    /// Clear it in place; nobody clears at refault.
    Zero,
    /// Only count it; nothing is ever promised.
    Keep,
}

/// What is done with the memory the guest hints at (free page hinting, bit 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hinting {
    /// Bit 3 is not offered.
    Off,
    /// Only count it.
    Count,
    /// Discard it. **A guest may have taken a hinted page back and written to it
    /// before the device sees the hint** (virtio 1.3, 5.5.6.5); what it wrote is
    /// then lost.
    Discard,
}

impl Hinting {
    /// As written in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Count => "count",
            Self::Discard => "discard",
        }
    }
}

impl Reclaim {
    /// As written in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Zero => "zero",
            Self::Keep => "keep",
        }
    }

    /// How memory is made zero, or `None` if it is only counted.
    #[must_use]
    pub fn zero_by(self) -> Option<ZeroBy> {
        match self {
            Self::Discard => Some(ZeroBy::Discarding),
            Self::Zero => Some(ZeroBy::Writing),
            Self::Keep => None,
        }
    }
}

/// What the device offers and does. [`Balloon::new`] checks that it is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalloonSpec {
    /// Offer free page reporting (bit 5).
    pub reporting: bool,
    /// Offer DEVICE_INIT_REPORTED (bit 6). Needs `reporting`, and an
    /// `on_report` that makes every report zero.
    pub device_init_reported: bool,
    /// What happens to reported memory.
    pub on_report: Reclaim,
    /// What happens to memory in the balloon.
    pub on_inflate: Reclaim,
    /// Offer DEVICE_INIT_ON_INFLATE (bit 7). Needs an `on_inflate` that zeroes.
    pub device_init_on_inflate: bool,
    /// Offer MUST_TELL_HOST (bit 0).
    pub must_tell_host: bool,
    /// Offer the statistics queue (bit 1).
    pub statistics: bool,
    /// Offer DEFLATE_ON_OOM (bit 2).
    pub deflate_on_oom: bool,
    /// What happens to hinted memory, and whether hinting is offered (bit 3).
    pub hinting: Hinting,
    /// `hinting` may discard, although the guest can lose what it writes to a
    /// page between hinting at it and the discard. Required for
    /// [`Hinting::Discard`].
    pub accept_hint_race: bool,
    /// `hinting` and `device_init_reported` may be offered together, although
    /// another proposal gives bit 6 the meaning HINT_WAIT_ON_ACK: with bits 3,
    /// 5 and 6 acknowledged it cannot be told which of the two the guest means.
    /// The device serves both; only its owner may be wrong about it.
    pub accept_bit6_ambiguity: bool,
    /// How long a hinting run may take before it is given up.
    pub hinting_limit: Duration,
    /// Offer PAGE_POISON (bit 4).
    pub page_poison: bool,
    /// Most bytes that are cleared in place per second; `None` is no limit.
    pub zero_rate: Option<NonZeroU64>,
    /// Balloon size the guest is asked for at boot, in 4 KiB pages.
    pub target_pages: u32,
}

/// Offers nothing that is optional; a hinting run may take a minute.
impl Default for BalloonSpec {
    fn default() -> Self {
        Self {
            reporting: false,
            device_init_reported: false,
            on_report: Reclaim::Discard,
            on_inflate: Reclaim::Discard,
            device_init_on_inflate: false,
            must_tell_host: false,
            statistics: false,
            deflate_on_oom: false,
            hinting: Hinting::Off,
            accept_hint_race: false,
            accept_bit6_ambiguity: false,
            hinting_limit: Duration::from_secs(60),
            page_poison: false,
            zero_rate: None,
            target_pages: 0,
        }
    }
}

/// Feature bits by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeaturesSnapshot {
    /// Offered by the device.
    pub offered: Vec<String>,
    /// Acknowledged by the driver that last set FEATURES_OK, also after it reset
    /// the device; `None` until then.
    pub acknowledged: Option<Vec<String>>,
}

/// A balloon device with its thread.
pub struct Balloon {
    pub(super) transport: Arc<MmioTransport<DriverView>>,
    pub(super) requests: Arc<Requests>,
    counters: Arc<Counters>,
    guest_pages: u64,
    stop: EventFd,
    /// Its own thread, if it has one.
    thread: Option<JoinHandle<()>>,
}

impl Balloon {
    /// Makes the device and starts its thread.
    ///
    /// # Errors
    /// `InvalidInput` for an unsound `spec`; the errors of eventfd, epoll and
    /// thread creation.
    pub fn new(
        spec: BalloonSpec,
        memory: GuestMemoryMmap,
        ram: Arc<dyn ZeroGuestRange>,
        interrupt: Arc<dyn Interrupt>,
    ) -> io::Result<Self> {
        let (mut balloon, worker) = Self::with_worker(spec, memory, ram, interrupt)?;
        let thread = Builder::new()
            .name("balloon".to_owned())
            .spawn(|| worker.run())?;
        balloon.thread = Some(thread);
        Ok(balloon)
    }

    /// As [`Balloon::new`], for an owner that runs the worker itself: on a
    /// thread with its own placement or sandbox, or step by step. The device
    /// does nothing until it runs.
    ///
    /// # Errors
    /// As [`Balloon::new`].
    pub fn with_worker(
        spec: BalloonSpec,
        memory: GuestMemoryMmap,
        ram: Arc<dyn ZeroGuestRange>,
        interrupt: Arc<dyn Interrupt>,
    ) -> io::Result<(Self, BalloonWorker)> {
        let offered = negotiation::offered(&spec)?;
        let guest_pages = pages_of(&memory);
        check_target(spec.target_pages, guest_pages)?;

        let log = Arc::new(LogBudget::new());
        let counters = Arc::new(Counters::default());
        let requests = Arc::new(Requests::new(spec.hinting_limit)?);
        let (of_view, log_of_view) = (Arc::clone(&requests), Arc::clone(&log));
        let view = DriverView::new(offered, spec.target_pages, of_view, log_of_view);
        let host = Arc::clone(&ram);
        let make_present = Box::new(move |addr, len| {
            GuestRange::new(addr, len).is_some_and(|range| host.make_present(range).is_ok())
        });
        let log_of_transport = Arc::clone(&log);
        let transport = MmioTransport::new(
            view,
            memory.clone(),
            make_present,
            interrupt,
            log_of_transport,
        )?;
        let transport = Arc::new(transport);
        let counted = Arc::clone(&counters);
        let of_work = Arc::clone(&requests);
        let log_of_work = Arc::clone(&log);
        let work = BalloonWork::new(&spec, memory, ram, counted, of_work, log_of_work)?;
        let stop = new_event()?;
        let of_thread = Arc::clone(&requests);
        let thread = BalloonThread::new(Arc::clone(&transport), work, of_thread, log)?;
        let worker = thread.prepare(stop.try_clone()?)?;
        let balloon = Self {
            transport,
            requests,
            counters,
            guest_pages,
            stop,
            thread: None,
        };
        Ok((balloon, worker))
    }

    /// The register window, [`MMIO_LEN`] bytes, for the MMIO bus.
    #[must_use]
    pub fn mmio(&self) -> Arc<dyn BusDevice> {
        Arc::clone(&self.transport) as Arc<dyn BusDevice>
    }

    /// One event per queue index: the owner may bind number N to a write of N
    /// to QueueNotify (offset 0x50) so that a kick never leaves the kernel.
    /// Without that, writes to [`Balloon::mmio`] do the same.
    #[must_use]
    pub fn queue_notify_events(&self) -> &[EventFd] {
        self.transport.kicks()
    }

    /// Reads the counters, all at the same moment.
    #[must_use]
    pub fn counters(&self) -> CountersSnapshot {
        self.counters.snapshot()
    }

    /// Features offered and acknowledged.
    #[must_use]
    pub fn features(&self) -> FeaturesSnapshot {
        let state = self.transport.lock();
        FeaturesSnapshot {
            offered: negotiation::names(state.device.offered()),
            acknowledged: state.last_agreed.map(negotiation::names),
        }
    }

    /// Asks the guest for another balloon size, in 4 KiB pages.
    ///
    /// # Errors
    /// `InvalidInput` for a size above that of guest RAM.
    pub fn set_target_pages(&self, pages: u32) -> io::Result<()> {
        check_target(pages, self.guest_pages)?;
        self.transport
            .change_config(|view| view.config.set_num_pages(pages));
        Ok(())
    }

    /// Balloon size the guest says it has, in 4 KiB pages; more than it has
    /// RAM is shown as all of it.
    #[must_use]
    pub fn actual_pages(&self) -> u64 {
        let actual = self.transport.lock().device.config.actual();
        u64::from(actual).min(self.guest_pages)
    }

    /// Stops the worker and waits for the device's own thread. After this no
    /// guest memory is touched.
    pub fn stop(&mut self) {
        self.transport.stop();
        if let Err(error) = self.stop.write(1) {
            // It sleeps for ever now; but it touches nothing any more.
            log::error!("the balloon thread was not woken to end: {error}");
            return;
        }
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            log::error!("the balloon thread had panicked");
        }
    }
}

impl Drop for Balloon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn check_target(pages: u32, guest_pages: u64) -> io::Result<()> {
    if u64::from(pages) <= guest_pages {
        return Ok(());
    }
    let what = format!(
        "a balloon of {pages} pages is larger than the guest's RAM of {guest_pages} pages (4 KiB)"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
