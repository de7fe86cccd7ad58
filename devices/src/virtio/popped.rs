//! A chain that is in the device's hands.

use virtio_queue::{Error, Queue, QueueT};
use vm_memory::GuestMemoryMmap;

/// A chain taken from the available ring of a queue.
///
/// Completing consumes it, so that it is not completed twice. One that is kept
/// lives in the [`ReadyQueue`](super::queue_slot::ReadyQueue) it was taken from
/// and goes with it: a driver that resets the device, or takes the queue back,
/// takes its buffers back too.
#[derive(Debug)]
#[must_use]
pub(crate) struct Popped {
    head: u16,
}

impl Popped {
    /// The chain at `head`, which has just been taken and is inside the table.
    pub(crate) fn new(head: u16) -> Self {
        Self { head }
    }

    /// Publishes it with this used length (virtio 1.3, 2.7.8).
    ///
    /// # Errors
    /// The used ring cannot be written to.
    pub(crate) fn complete(
        self,
        ring: &mut Queue,
        memory: &GuestMemoryMmap,
        used: u32,
    ) -> Result<(), Error> {
        ring.add_used(memory, self.head, used)
    }
}
