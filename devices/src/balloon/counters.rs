//! What the device counted: bytes reported, zeroed and released are three
//! different things, and never mixed up.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A reading of the counters. All cumulative since the device was made.
///
/// Always `reported_bytes >= zeroed_bytes` and `reported_bytes >=
/// released_bytes`. Where DEVICE_INIT_REPORTED is negotiated, also
/// `zeroed_bytes >= released_bytes` and `zeroed_bytes >= promised_bytes`
/// unless a guest names the same byte twice in one report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersSnapshot {
    /// Reporting buffers completed.
    pub reports: u64,
    /// Bytes of guest RAM the guest reported free.
    pub reported_bytes: u64,
    /// Bytes of those that were made to read zero.
    pub zeroed_bytes: u64,
    /// Bytes of those that went back to the host.
    pub released_bytes: u64,
    /// Bytes promised zero through a used length.
    pub promised_bytes: u64,
    /// 4 KiB pages the guest put into the balloon. One that is in it already
    /// counts again.
    pub inflated_pages: u64,
    /// 4 KiB pages the guest took out of the balloon, in it or not.
    pub deflated_pages: u64,
    /// Bytes of inflated pages that were made to read zero for the sake of it:
    /// to promise them, or because `on_inflate` is [`Reclaim::Zero`].
    ///
    /// [`Reclaim::Zero`]: super::device::Reclaim::Zero
    pub inflate_zeroed_bytes: u64,
    /// Bytes of whole backing pages in the balloon that went back to the host.
    pub inflate_released_bytes: u64,
    /// Page numbers promised zero through the bitmap of an inflate request.
    pub inflate_promised_pages: u64,
    /// Bytes of guest RAM the guest hinted at (free page hinting) in a run that
    /// was on.
    pub hinted_bytes: u64,
    /// Bytes of those that went back to the host.
    pub hint_discarded_bytes: u64,
    /// Chains that were malformed; each was completed with length 0.
    pub malformed_chains: u64,
    /// Ranges or pages named by the guest that are not guest RAM.
    pub not_ram: u64,
    /// Ranges the host could not make zero or would not take back; nothing was
    /// promised of them.
    pub zero_failures: u64,
}

/// The counters of a device. A reading is a consistent moment of all of them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    now: Mutex<CountersSnapshot>,
}

impl Counters {
    /// Adds `amount` to one counter, which stops at its maximum: a guest can
    /// report the same memory for ever.
    pub(crate) fn add(&self, which: impl FnOnce(&mut CountersSnapshot) -> &mut u64, amount: u64) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = which(&mut now);
        *counter = counter.saturating_add(amount);
    }

    /// Reads all of them at once.
    pub(crate) fn snapshot(&self) -> CountersSnapshot {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
