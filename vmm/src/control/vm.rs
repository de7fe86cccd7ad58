//! What the control thread needs of a VM.

use std::io;

use devices::balloon::counters::CountersSnapshot;
use serde_json::Value;

use super::reply::Info;

/// A sample of the guest's statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Counts the samples from 1.
    pub number: u64,
    /// The sample as the client gets it.
    pub value: Value,
}

/// A VM that is controlled. Nothing here waits for the guest, so that commands
/// are answered while it hangs.
///
/// An `io::Error` of kind `InvalidInput` is the client's mistake, or a feature
/// that is not offered; `NotConnected` or `Unsupported` means that the guest does
/// not have the feature, `TimedOut` that it takes longer than a client waits; any
/// other is a failure of the VM.
pub trait ControlledVm: Send {
    /// Guest RAM in bytes.
    fn memory_bytes(&self) -> u64;
    /// Balloon size the guest was asked for at boot, in pages of 4 KiB.
    fn boot_target(&self) -> u64;
    /// Asks the guest for another size, in pages of 4 KiB.
    ///
    /// # Errors
    /// `InvalidInput` for a size it cannot have.
    fn set_target(&self, pages: u64) -> io::Result<()>;
    /// Size the guest says the balloon has, in pages of 4 KiB.
    fn actual_pages(&self) -> u64;
    /// What the device counted.
    fn counters(&self) -> CountersSnapshot;
    /// What was negotiated, and how the VM is.
    fn info(&self) -> Info;
    /// Asks the guest for a new sample: the next one with a number above the
    /// returned one.
    ///
    /// # Errors
    /// The guest has no statistics queue.
    fn request_statistics(&self) -> io::Result<u64>;
    /// The last sample.
    fn statistics(&self) -> Option<Sample>;
    /// Begins a round of hinting, and says how far it is.
    ///
    /// # Errors
    /// The guest does not hint.
    fn start_hinting(&self) -> io::Result<Value>;
    /// Ends the round of hinting, and says how far it came.
    ///
    /// # Errors
    /// The guest does not hint.
    fn stop_hinting(&self) -> io::Result<Value>;
    /// How far hinting is.
    ///
    /// # Errors
    /// The guest does not hint.
    fn hinting_status(&self) -> io::Result<Value>;
    /// Stops the vCPUs; no change if they are.
    ///
    /// # Errors
    /// `TimedOut`: one did not come out of KVM in time; it stops as soon as it does.
    fn pause(&self) -> io::Result<()>;
    /// Lets the vCPUs run; no change if they do.
    fn resume(&self);
    /// Asks for the end of the run; returns at once.
    fn stop(&self);
}
