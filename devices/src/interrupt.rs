//! How a device raises its interrupt line.

use std::io;

/// One interrupt line of a device.
///
/// Called by a device from any of its threads after it published a used entry,
/// changed its configuration, or has a byte to be read. Edge triggered: the
/// receiver must not lose a trigger, and may fold several into one.
///
/// The device may have its registers locked meanwhile, so that no interrupt
/// follows a reset: the receiver must neither block nor call back into it.
pub trait Interrupt: Send + Sync {
    /// Raises the line once.
    ///
    /// # Errors
    /// The error of the write that carries the interrupt (an irqfd in Aerostat).
    fn trigger(&self) -> io::Result<()>;
}
