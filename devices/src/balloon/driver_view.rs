//! The device as its driver sees it: features, queues, configuration.

use std::sync::Arc;

use super::config_space::ConfigSpace;
use super::negotiation;
use super::poison::Poison;
use super::queue_map::QueueMap;
use super::requests::Requests;
use super::spec::{DEVICE_ID, PAGE_POISON, QUEUE_SIZE, QUEUES};
use crate::virtio::device::{Refused, VirtioDevice};
use crate::virtio::features::Features;
use crate::virtio::log_budget::LogBudget;

/// What the registers of the balloon device answer from.
#[derive(Debug)]
pub(crate) struct DriverView {
    offered: Features,
    /// How often a driver got ready.
    activations: u64,
    /// The configuration space.
    pub(crate) config: ConfigSpace,
    requests: Arc<Requests>,
    log: Arc<LogBudget>,
    late_poison_logged: bool,
    last_agreed: Option<Agreed>,
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
    /// What the guest fills free pages with.
    pub(crate) poison: Poison,
}

impl DriverView {
    /// A view that offers `offered` and asks for `target_pages`.
    pub(crate) fn new(
        offered: Features,
        target_pages: u32,
        requests: Arc<Requests>,
        log: Arc<LogBudget>,
    ) -> Self {
        let poison_offered = offered.contains(PAGE_POISON);
        Self {
            offered,
            activations: 0,
            config: ConfigSpace::new(target_pages, poison_offered),
            requests,
            log,
            late_poison_logged: false,
            last_agreed: None,
        }
    }

    /// Shows the driver the hinting command of the moment; returns whether that
    /// is a change. For the worker alone: DONE says that it has let go of what
    /// was hinted at.
    pub(crate) fn show_hint_command(&mut self) -> bool {
        let command = self.requests.hints.command_id();
        self.config.set_cmd_id(command)
    }

    /// What was agreed by the driver that last set DRIVER_OK, also after it
    /// reset the device.
    pub(crate) fn last_agreed(&self) -> Option<Agreed> {
        self.last_agreed
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
        let poison = self.config.take_poison();
        let queues = QueueMap::decide(accepted, ready)?;
        self.activations = self.activations.wrapping_add(1);
        let agreed = Agreed {
            features: accepted,
            queues,
            activation: self.activations,
            poison: Poison(accepted.contains(PAGE_POISON).then_some(poison)),
        };
        self.last_agreed = Some(agreed);
        self.requests.changes.add();
        Ok(agreed)
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        self.config.read(offset, data);
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        let written = self.config.write(offset, data);
        if written.new_actual {
            self.requests.changes.add();
        }
        if written.late_poison && !std::mem::replace(&mut self.late_poison_logged, true) {
            self.log.warn(format_args!(
                "poison_val was written after DRIVER_OK: dropped, as all such writes are"
            ));
        }
    }

    fn reset(&mut self) {
        self.config.reset();
        self.requests.reset();
    }
}
