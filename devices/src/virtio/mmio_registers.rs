//! The registers of virtio-mmio version 2 (virtio 1.3, 4.2.2), and the values
//! in them that do not depend on the device.

use virtio_bindings::{virtio_config as config, virtio_mmio as mmio};

/// "virt", little-endian.
pub(crate) const MAGIC: u32 = 0x7472_6976;
/// Version of the register layout; 1 was the legacy one.
pub(crate) const LAYOUT_VERSION: u32 = 2;
/// "AERO", little-endian. Drivers do not look at it.
pub(crate) const VENDOR: u32 = 0x4f52_4541;
/// What a register reads that belongs to a shared memory region which does not
/// exist (4.2.2.1: length -1 and address -1).
pub(crate) const NO_SHARED_MEMORY: u32 = u32::MAX;

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $value:ident;)*) => {
        $($(#[$doc])* pub(crate) const $name: u32 = mmio::$value;)*
    };
}

registers! {
    /// Reads [`MAGIC`].
    MAGIC_VALUE = VIRTIO_MMIO_MAGIC_VALUE;
    /// Reads [`LAYOUT_VERSION`].
    VERSION = VIRTIO_MMIO_VERSION;
    /// Type of the device.
    DEVICE_ID = VIRTIO_MMIO_DEVICE_ID;
    /// Reads [`VENDOR`].
    VENDOR_ID = VIRTIO_MMIO_VENDOR_ID;
    /// The selected page of offered features.
    DEVICE_FEATURES = VIRTIO_MMIO_DEVICE_FEATURES;
    /// Selects that page.
    DEVICE_FEATURES_SEL = VIRTIO_MMIO_DEVICE_FEATURES_SEL;
    /// The selected page of accepted features.
    DRIVER_FEATURES = VIRTIO_MMIO_DRIVER_FEATURES;
    /// Selects that page.
    DRIVER_FEATURES_SEL = VIRTIO_MMIO_DRIVER_FEATURES_SEL;
    /// Selects the queue the following registers are about.
    QUEUE_SEL = VIRTIO_MMIO_QUEUE_SEL;
    /// QueueSizeMax: 0 if the queue does not exist.
    QUEUE_SIZE_MAX = VIRTIO_MMIO_QUEUE_NUM_MAX;
    /// QueueSize, in descriptors.
    QUEUE_SIZE = VIRTIO_MMIO_QUEUE_NUM;
    /// Hands the queue to the device (1) or takes it back (0).
    QUEUE_READY = VIRTIO_MMIO_QUEUE_READY;
    /// Kick: the index of the queue with new buffers.
    QUEUE_NOTIFY = VIRTIO_MMIO_QUEUE_NOTIFY;
    /// Why the interrupt came.
    INTERRUPT_STATUS = VIRTIO_MMIO_INTERRUPT_STATUS;
    /// Clears the bits written.
    INTERRUPT_ACK = VIRTIO_MMIO_INTERRUPT_ACK;
    /// Device status; writing 0 resets.
    STATUS = VIRTIO_MMIO_STATUS;
    /// Descriptor table, low half of the address.
    QUEUE_DESC_LOW = VIRTIO_MMIO_QUEUE_DESC_LOW;
    /// Descriptor table, high half.
    QUEUE_DESC_HIGH = VIRTIO_MMIO_QUEUE_DESC_HIGH;
    /// Available ring, low half.
    QUEUE_DRIVER_LOW = VIRTIO_MMIO_QUEUE_AVAIL_LOW;
    /// Available ring, high half.
    QUEUE_DRIVER_HIGH = VIRTIO_MMIO_QUEUE_AVAIL_HIGH;
    /// Used ring, low half.
    QUEUE_DEVICE_LOW = VIRTIO_MMIO_QUEUE_USED_LOW;
    /// Used ring, high half.
    QUEUE_DEVICE_HIGH = VIRTIO_MMIO_QUEUE_USED_HIGH;
    /// Length of the selected shared memory region, low half.
    SHM_LEN_LOW = VIRTIO_MMIO_SHM_LEN_LOW;
    /// Length of it, high half.
    SHM_LEN_HIGH = VIRTIO_MMIO_SHM_LEN_HIGH;
    /// Address of it, low half.
    SHM_BASE_LOW = VIRTIO_MMIO_SHM_BASE_LOW;
    /// Address of it, high half.
    SHM_BASE_HIGH = VIRTIO_MMIO_SHM_BASE_HIGH;
    /// Changes whenever the configuration space does.
    CONFIG_GENERATION = VIRTIO_MMIO_CONFIG_GENERATION;
    /// The device's configuration space starts here.
    CONFIG = VIRTIO_MMIO_CONFIG;
    /// InterruptStatus: a used entry was published.
    INTERRUPT_USED = VIRTIO_MMIO_INT_VRING;
    /// InterruptStatus: the configuration or the status changed.
    INTERRUPT_CONFIG = VIRTIO_MMIO_INT_CONFIG;
}

/// Device status bits (2.1).
pub(crate) mod status {
    use super::config;

    /// The driver may drive the device: it has set everything up.
    pub(crate) const DRIVER_OK: u32 = config::VIRTIO_CONFIG_S_DRIVER_OK;
    /// Features are agreed upon.
    pub(crate) const FEATURES_OK: u32 = config::VIRTIO_CONFIG_S_FEATURES_OK;
    /// The device gave up until it is reset.
    pub(crate) const NEEDS_RESET: u32 = config::VIRTIO_CONFIG_S_NEEDS_RESET;
    /// The driver gave up.
    pub(crate) const FAILED: u32 = config::VIRTIO_CONFIG_S_FAILED;
    /// What a driver may set; all others are the device's or do not exist.
    pub(crate) const OF_DRIVER: u32 = config::VIRTIO_CONFIG_S_ACKNOWLEDGE
        | config::VIRTIO_CONFIG_S_DRIVER
        | DRIVER_OK
        | FEATURES_OK
        | FAILED;
}
