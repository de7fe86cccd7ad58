//! Feature bits, and the registers through which they are negotiated.

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// A set of feature bits (virtio 1.3, 2.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Features(u64);

/// The driver and the device suppress kicks and interrupts by ring index
/// (2.7.7 and 2.7.10).
pub(crate) const RING_EVENT_IDX: Features = Features::bit(VIRTIO_RING_F_EVENT_IDX);
/// Not a legacy device (6.1).
pub(crate) const VERSION_1: Features = Features::bit(VIRTIO_F_VERSION_1);

impl Features {
    /// No feature at all.
    pub(crate) const NONE: Self = Self(0);

    /// The set of one bit, 0 to 63.
    pub(crate) const fn bit(number: u32) -> Self {
        Self(1 << number)
    }

    /// Both sets together.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Both sets together if `wanted`, else this one.
    pub(crate) const fn with_if(self, other: Self, wanted: bool) -> Self {
        if wanted { self.with(other) } else { self }
    }

    /// Whether all of `other` is in this set.
    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in this set and not in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set is empty.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The numbers of the bits in the set, ascending.
    pub(crate) fn bits(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |number| self.contains(Self::bit(*number)))
    }

    /// Bits 32 * `page` to 32 * `page` + 31; none above bit 63.
    fn page(self, page: u32) -> u32 {
        let [low, high] = self.pages();
        match page {
            0 => low,
            1 => high,
            _ => 0,
        }
    }

    fn pages(self) -> [u32; 2] {
        let [a, b, c, d, e, f, g, h] = self.0.to_le_bytes();
        [
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        ]
    }

    fn from_pages([low, high]: [u32; 2]) -> Self {
        Self(u64::from(low) | u64::from(high) << 32)
    }
}

/// The four feature registers (4.2.2): two select a page, two carry it.
#[derive(Debug, Default)]
pub(crate) struct FeatureRegisters {
    device_page: u32,
    driver_page: u32,
    accepted: Features,
    /// The driver wrote a bit above 63; none is offered there, so the set it
    /// wants cannot be accepted any more.
    beyond: bool,
}

impl FeatureRegisters {
    /// DeviceFeaturesSel.
    pub(crate) fn select_device_page(&mut self, page: u32) {
        self.device_page = page;
    }

    /// DriverFeaturesSel.
    pub(crate) fn select_driver_page(&mut self, page: u32) {
        self.driver_page = page;
    }

    /// DeviceFeatures: the selected page of `offered`.
    pub(crate) fn read(&self, offered: Features) -> u32 {
        offered.page(self.device_page)
    }

    /// DriverFeatures: the selected page of what the driver accepts.
    pub(crate) fn write(&mut self, value: u32) {
        let [low, high] = self.accepted.pages();
        match self.driver_page {
            0 => self.accepted = Features::from_pages([value, high]),
            1 => self.accepted = Features::from_pages([low, value]),
            _ => self.beyond |= value != 0,
        }
    }

    /// What the driver wants, or `None` if it wants a bit no device has.
    pub(crate) fn accepted(&self) -> Option<Features> {
        (!self.beyond).then_some(self.accepted)
    }
}
