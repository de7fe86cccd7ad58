//! The device as its owner sees it: made, mapped on a bus, read, stopped.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use super::counters::CountersSnapshot;
use super::host_zeroes::{ZeroBy, ZeroGuestRange};
use crate::interrupt::Interrupt;
use crate::mmio_bus::BusDevice;

/// Length of the virtio-mmio register window: 0x100 of registers and the
/// configuration space behind them (virtio 1.3, 4.2.2).
pub const MMIO_LEN: u64 = 0x200;

/// What is done with memory the guest reports free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnReport {
    /// Give the memory back; the host clears it once, at refault.
    Discard,
    /// Clear it in place; nobody clears at refault.
    Zero,
    /// Only count it; nothing is ever promised.
    Keep,
}

impl OnReport {
    /// How a report is made zero, or `None` if it is only counted.
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
    pub on_report: OnReport,
    /// Offer DEFLATE_ON_OOM (bit 2).
    pub deflate_on_oom: bool,
    /// Balloon size the guest is asked for at boot, in 4 KiB pages.
    pub target_pages: u32,
}

/// Feature bits by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeaturesSnapshot {
    /// Offered by the device.
    pub offered: Vec<String>,
    /// Acknowledged by the driver; `None` until it set FEATURES_OK.
    pub acknowledged: Option<Vec<String>>,
}

/// A balloon device with its thread.
pub struct Balloon;

impl Balloon {
    /// Makes the device and starts its thread.
    ///
    /// # Errors
    /// `InvalidInput` for an unsound `spec`; the errors of eventfd, epoll and
    /// thread creation.
    pub fn new(
        _spec: BalloonSpec,
        _memory: GuestMemoryMmap,
        _ram: Arc<dyn ZeroGuestRange>,
        _interrupt: Arc<dyn Interrupt>,
    ) -> io::Result<Self> {
        Ok(Self)
    }

    /// The register window, [`MMIO_LEN`] bytes, for the MMIO bus.
    #[must_use]
    pub fn mmio(&self) -> Arc<dyn BusDevice> {
        struct Nothing;
        impl BusDevice for Nothing {
            fn read(&self, _offset: u64, data: &mut [u8]) {
                data.fill(0);
            }
            fn write(&self, _offset: u64, _data: &[u8]) {}
        }
        Arc::new(Nothing)
    }

    /// One event per queue index: the owner may bind number N to a write of N
    /// to QueueNotify (offset 0x50) so that a kick never leaves the kernel.
    /// Without that, writes to [`Balloon::mmio`] do the same.
    #[must_use]
    pub fn queue_notify_events(&self) -> &[EventFd] {
        &[]
    }

    /// Reads the counters.
    #[must_use]
    pub fn counters(&self) -> CountersSnapshot {
        CountersSnapshot::default()
    }

    /// Features offered and acknowledged.
    #[must_use]
    pub fn features(&self) -> FeaturesSnapshot {
        FeaturesSnapshot::default()
    }

    /// Stops the thread and waits for it. After this no guest memory is touched.
    pub fn stop(&mut self) {}
}
