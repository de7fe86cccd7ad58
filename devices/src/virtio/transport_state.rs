//! The registers of the transport as plain state: nothing here blocks or
//! touches guest memory.

use thiserror::Error;

use super::device::{Refused, VirtioDevice};
use super::features::{FeatureRegisters, Features};
use super::mmio_registers::{self as reg, status};
use super::queue_slot::{Area, Half, QueueSlot};

/// Why a status write did not do all it asked for.
#[derive(Debug, Error)]
pub(crate) enum StatusError {
    #[error("a status write of {value:#x} lacks bits {missing:#x} that are set: dropped")]
    Lacks { value: u32, missing: u32 },
    #[error("FEATURES_OK refused: the driver accepts feature bits above 63")]
    FeaturesBeyond,
    #[error("FEATURES_OK refused: {0}")]
    Features(Refused),
    #[error("DRIVER_OK without FEATURES_OK: dropped")]
    NotAgreed,
    #[error("{0}")]
    NeedsReset(Refused),
}

/// Everything behind the transport's lock.
#[derive(Debug)]
pub(crate) struct State<D: VirtioDevice> {
    pub(crate) device: D,
    pub(crate) status: u32,
    pub(crate) features: FeatureRegisters,
    pub(crate) queue_sel: u32,
    pub(crate) slots: Vec<QueueSlot>,
    pub(crate) interrupt_status: u32,
    pub(crate) config_generation: u32,
    /// What was agreed at DRIVER_OK.
    pub(crate) active: Option<D::Active>,
    /// Index of the queue the worker has in its hands.
    pub(crate) busy: Option<usize>,
    /// Resets that wait for the worker.
    pub(crate) resetting: u32,
    /// The owner stopped the device; it stays stopped.
    pub(crate) stopped: bool,
}

impl<D: VirtioDevice> State<D> {
    /// A device just powered on.
    pub(crate) fn new(device: D) -> Self {
        Self {
            device,
            status: 0,
            features: FeatureRegisters::default(),
            queue_sel: 0,
            slots: std::iter::repeat_with(QueueSlot::default)
                .take(D::QUEUES)
                .collect(),
            interrupt_status: 0,
            config_generation: 0,
            active: None,
            busy: None,
            resetting: 0,
            stopped: false,
        }
    }

    /// The agreed features, from FEATURES_OK on.
    pub(crate) fn accepted(&self) -> Option<Features> {
        self.features
            .accepted()
            .filter(|_| self.status & status::FEATURES_OK != 0)
    }

    /// Whether the worker may touch rings: between DRIVER_OK and whatever ends
    /// it.
    pub(crate) fn running(&self) -> Option<D::Active> {
        const ENDED: u32 = status::FAILED | status::NEEDS_RESET;
        let runs = self.status & (status::DRIVER_OK | ENDED) == status::DRIVER_OK
            && self.resetting == 0
            && !self.stopped;
        self.active.filter(|_| runs)
    }

    /// The queue index in QueueSel, if the device answers for it.
    pub(crate) fn selected(&self) -> Option<usize> {
        let index = usize::try_from(self.queue_sel).ok()?;
        (index < self.slots.len()).then_some(index)
    }

    fn queue_size_max(&self) -> u16 {
        self.selected().map_or(0, |index| {
            self.device.queue_size_max(index, self.accepted())
        })
    }

    /// The selected queue with its maximum size, if it exists and may be
    /// configured now: after FEATURES_OK, before DRIVER_OK, and while it is
    /// not ready (4.2.2.2).
    pub(crate) fn configurable_queue(&mut self) -> Option<(&mut QueueSlot, u16, Features)> {
        let accepted = self.accepted()?;
        let max = self.queue_size_max();
        let index = self.selected().filter(|_| max > 0)?;
        let open = self.status & status::DRIVER_OK == 0;
        let slot = self.slots.get_mut(index)?;
        (open && !slot.is_ready()).then_some((slot, max, accepted))
    }

    /// What a register reads.
    pub(crate) fn read(&self, register: u32) -> u32 {
        match register {
            reg::MAGIC_VALUE => reg::MAGIC,
            reg::VERSION => reg::LAYOUT_VERSION,
            reg::DEVICE_ID => D::DEVICE_ID,
            reg::VENDOR_ID => reg::VENDOR,
            reg::DEVICE_FEATURES => self.features.read(self.device.offered()),
            reg::QUEUE_SIZE_MAX => self.queue_size_max().into(),
            reg::QUEUE_READY => {
                let slot = self.selected().and_then(|index| self.slots.get(index));
                slot.is_some_and(QueueSlot::is_ready).into()
            }
            reg::INTERRUPT_STATUS => self.interrupt_status,
            reg::STATUS => self.status,
            reg::SHM_LEN_LOW | reg::SHM_LEN_HIGH | reg::SHM_BASE_LOW | reg::SHM_BASE_HIGH => {
                reg::NO_SHARED_MEMORY
            }
            reg::CONFIG_GENERATION => self.config_generation,
            // Write-only registers, and holes in the map.
            _ => 0,
        }
    }

    /// A write to a register without side effects outside of this state.
    pub(crate) fn write(&mut self, register: u32, value: u32) {
        let agreed = self.status & status::FEATURES_OK != 0;
        match register {
            reg::DEVICE_FEATURES_SEL => self.features.select_device_page(value),
            reg::DRIVER_FEATURES_SEL => self.features.select_driver_page(value),
            reg::DRIVER_FEATURES if !agreed => self.features.write(value),
            reg::QUEUE_SEL => self.queue_sel = value,
            reg::INTERRUPT_ACK => self.interrupt_status &= !value,
            reg::QUEUE_SIZE => {
                if let Some((slot, ..)) = self.configurable_queue() {
                    slot.set_size(value);
                }
            }
            reg::QUEUE_DESC_LOW => self.set_address(Area::Descriptors, Half::Low, value),
            reg::QUEUE_DESC_HIGH => self.set_address(Area::Descriptors, Half::High, value),
            reg::QUEUE_DRIVER_LOW => self.set_address(Area::Available, Half::Low, value),
            reg::QUEUE_DRIVER_HIGH => self.set_address(Area::Available, Half::High, value),
            reg::QUEUE_DEVICE_LOW => self.set_address(Area::Used, Half::Low, value),
            reg::QUEUE_DEVICE_HIGH => self.set_address(Area::Used, Half::High, value),
            // Read-only registers, and holes in the map.
            _ => {}
        }
    }

    fn set_address(&mut self, area: Area, half: Half, value: u32) {
        if let Some((slot, ..)) = self.configurable_queue() {
            slot.set_address(area, half, value);
        }
    }

    /// Sets status bits. The driver cannot clear one except by a reset, so a
    /// write that lacks a bit which is set is dropped.
    ///
    /// # Errors
    /// Which bits were not set and why, or why the device now needs a reset.
    pub(crate) fn set_status(&mut self, value: u32) -> Result<(), StatusError> {
        let value = value & status::OF_DRIVER;
        let missing = self.status & status::OF_DRIVER & !value;
        if missing != 0 {
            return Err(StatusError::Lacks { value, missing });
        }
        let set = value & !self.status;
        self.status |= set & !(status::FEATURES_OK | status::DRIVER_OK);
        if set & status::FEATURES_OK != 0 {
            let accepted = self.features.accepted();
            let accepted = accepted.ok_or(StatusError::FeaturesBeyond)?;
            let checked = self.device.check_accepted(accepted);
            checked.map_err(StatusError::Features)?;
            self.status |= status::FEATURES_OK;
        }
        if set & status::DRIVER_OK != 0 {
            let accepted = self.accepted().ok_or(StatusError::NotAgreed)?;
            self.status |= status::DRIVER_OK;
            let slots = self.slots.iter().enumerate();
            let mut ready = slots.filter(|(_, slot)| slot.is_ready()).map(|(i, _)| i);
            let active = self.device.activate(accepted, &mut ready);
            self.active = Some(active.map_err(StatusError::NeedsReset)?);
        }
        Ok(())
    }

    /// Everything as just powered on, but for what belongs to the owner. The
    /// configuration generation goes on, so that no change can be missed.
    pub(crate) fn reset(&mut self) {
        self.device.reset();
        self.status = 0;
        self.features = FeatureRegisters::default();
        self.queue_sel = 0;
        self.slots.fill_with(QueueSlot::default);
        self.interrupt_status = 0;
        self.active = None;
    }
}
