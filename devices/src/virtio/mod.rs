//! Virtio 1.x over MMIO with split rings, for any in-process device. A device
//! implements [`device::VirtioDevice`] for its registers and
//! [`drain_queue::QueueWork`] for its queues.

pub(crate) mod chain;
pub(crate) mod device;
pub(crate) mod drain_queue;
pub(crate) mod features;
pub(crate) mod log_budget;
pub(crate) mod mmio_registers;
pub(crate) mod mmio_transport;
pub(crate) mod popped;
pub(crate) mod queue_slot;
pub(crate) mod transport_state;
