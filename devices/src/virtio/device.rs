//! What the transport asks of a device type.

use std::fmt;

use super::features::Features;

/// The driver-visible side of a device: everything but its queues' contents.
///
/// The transport calls all of it with its registers locked, on whichever
/// thread accesses them, so an implementation must neither block nor touch
/// guest memory. No argument is trusted: every one comes from the guest.
pub(crate) trait VirtioDevice: Send {
    /// Number of queue indices the device answers for. An index is a place in
    /// the numbering, not a queue: some may not exist in a given negotiation.
    const QUEUES: usize;
    /// Device type (virtio 1.3, section 5).
    const DEVICE_ID: u32;

    /// What the worker needs to know of an agreed negotiation; it gets a copy
    /// with each batch of work.
    type Active: Copy + Send;

    /// The offered set, the transport's own features included. Never changes.
    fn offered(&self) -> Features;

    /// Called when the driver sets FEATURES_OK, with a set that is not yet
    /// known to be a subset of the offered one.
    ///
    /// # Errors
    /// Why the set is refused; FEATURES_OK then stays clear.
    fn check_accepted(&self, accepted: Features) -> Result<(), Refused>;

    /// QueueSizeMax of `index`, 0 if there is no such queue. `accepted` is
    /// `None` until FEATURES_OK.
    fn queue_size_max(&self, index: usize, accepted: Option<Features>) -> u16;

    /// Called when the driver sets DRIVER_OK; `ready` yields the indices of
    /// the queues it handed over, ascending.
    ///
    /// # Errors
    /// Why the device cannot run so; it then needs a reset.
    fn activate(
        &mut self,
        accepted: Features,
        ready: &mut dyn Iterator<Item = usize>,
    ) -> Result<Self::Active, Refused>;

    /// Fills `data` from the configuration space at `offset`; bytes past its
    /// end read 0.
    fn read_config(&self, offset: u64, data: &mut [u8]);

    /// Takes `data` written into the configuration space; what is not writable
    /// there is dropped.
    fn write_config(&mut self, offset: u64, data: &[u8]);

    /// Forgets what the driver told; must be idempotent.
    fn reset(&mut self);
}

/// Why the device refuses what the driver negotiated, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
