//! The device as its driver sees it: features, queues, configuration.

use super::config_space::ConfigSpace;
use super::negotiation;
use super::queue_map::QueueMap;
use super::spec::{DEVICE_ID, QUEUE_SIZE, QUEUES};
use crate::virtio::device::{Refused, VirtioDevice};
use crate::virtio::features::Features;

/// What the registers of the balloon device answer from.
#[derive(Debug)]
pub(crate) struct DriverView {
    offered: Features,
    /// How often a driver got ready.
    activations: u64,
    /// The configuration space.
    pub(crate) config: ConfigSpace,
}

/// What was agreed at DRIVER_OK.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    /// The accepted features.
    pub(crate) features: Features,
    /// What each queue index means.
    pub(crate) queues: QueueMap,
    /// Another number than before means that the device was reset in between.
    pub(crate) activation: u64,
}

impl DriverView {
    /// A view that offers `offered` and asks for `target_pages`.
    pub(crate) fn new(offered: Features, target_pages: u32) -> Self {
        Self {
            offered,
            activations: 0,
            config: ConfigSpace::new(target_pages),
        }
    }
}

impl VirtioDevice for DriverView {
    const QUEUES: usize = QUEUES;
    const DEVICE_ID: u32 = DEVICE_ID;

    type Active = Agreed;

    fn offered(&self) -> Features {
        self.offered
    }

    fn check_accepted(&self, accepted: Features) -> Result<(), Refused> {
        negotiation::check_accepted(self.offered, accepted)
    }

    fn queue_size_max(&self, index: usize, accepted: Option<Features>) -> u16 {
        // A driver may look before it negotiates: then all that may come is
        // answered for.
        let set = accepted.unwrap_or(self.offered);
        if QueueMap::may_exist(set, index) {
            QUEUE_SIZE
        } else {
            0
        }
    }

    fn activate(
        &mut self,
        accepted: Features,
        ready: &mut dyn Iterator<Item = usize>,
    ) -> Result<Agreed, Refused> {
        let queues = QueueMap::decide(accepted, ready)?;
        self.activations = self.activations.wrapping_add(1);
        Ok(Agreed {
            features: accepted,
            queues,
            activation: self.activations,
        })
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        self.config.read(offset, data);
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        self.config.write(offset, data);
    }

    fn reset(&mut self) {
        self.config.reset();
    }
}
