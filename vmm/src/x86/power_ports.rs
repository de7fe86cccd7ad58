//! The ports by which a guest powers off or resets the machine.
//!
//! A hardware-reduced ACPI machine has a sleep control and a sleep status
//! register and a reset register (ACPI 6.5, 4.8.3.7, 4.8.3.6), which the FADT
//! points to. Kernels told `reboot=k` use the keyboard controller's reset line
//! instead, so that much of one exists too.

use std::sync::Arc;

use devices::mmio_bus::BusDevice;

use crate::ending::{StopCause, Stopper};

/// Offset of the sleep control register.
pub const SLEEP_CONTROL: u16 = 0;
/// Offset of the sleep status register.
pub const SLEEP_STATUS: u16 = 1;
/// Offset of the reset register.
pub const RESET: u16 = 2;
/// How many ports there are.
pub const POWER_PORTS: u16 = 3;

/// What a guest writes to the reset register to reset; any value would do.
pub const RESET_VALUE: u8 = 1;

/// The sleep type our `\_S5` names, "soft off".
pub const SLEEP_TYPE_OFF: u8 = 5;
/// Bit 5 of sleep control, SLP_EN: enter the sleep state in bits 4:2, SLP_TYP.
const SLEEP_ENABLE: u8 = 1 << 5;
const SLEEP_TYPE_SHIFT: u8 = 2;
const SLEEP_TYPE_MASK: u8 = 0b111;

/// Pulse the lines whose bits are 0, of which bit 0 is the CPU's reset line.
const PULSE_RESET_LINE: u8 = 0xfe;

/// Sleep control, sleep status and reset.
pub struct PowerPorts(pub Arc<Stopper>);

impl BusDevice for PowerPorts {
    /// Nothing ever pends: the guest does not wake up here again.
    fn read(&self, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let Some(value) = data.first() else { return };
        if offset == u64::from(RESET) && *value == RESET_VALUE {
            self.0.request(StopCause::Reset);
        }
        let sleep_type = (value >> SLEEP_TYPE_SHIFT) & SLEEP_TYPE_MASK;
        if offset == u64::from(SLEEP_CONTROL)
            && value & SLEEP_ENABLE != 0
            && sleep_type == SLEEP_TYPE_OFF
        {
            self.0.request(StopCause::PowerOff);
        }
    }
}

/// Port 0x64 of a keyboard controller that has nothing but a reset line.
pub struct KeyboardResetPort(pub Arc<Stopper>);

impl BusDevice for KeyboardResetPort {
    /// Both buffers empty: a kernel that waits for that goes on at once.
    fn read(&self, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _offset: u64, data: &[u8]) {
        if data.first() == Some(&PULSE_RESET_LINE) {
            self.0.request(StopCause::Reset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause_of(write: impl Fn(Arc<Stopper>)) -> Option<StopCause> {
        let stopper = Arc::new(Stopper::new().unwrap());
        write(Arc::clone(&stopper));
        stopper.cause().cloned()
    }

    #[test]
    fn only_entering_s5_powers_off() {
        let write = |value: u8| cause_of(|s| PowerPorts(s).write(0, &[value]));
        assert_eq!(write((5 << 2) | (1 << 5)), Some(StopCause::PowerOff));
        assert_eq!(write(5 << 2), None, "SLP_EN is not set");
        assert_eq!(write((3 << 2) | (1 << 5)), None, "not S5");
        assert_eq!(write(1 << 7), None, "clears WAK_STS");
    }

    #[test]
    fn only_the_reset_value_resets() {
        let write = |offset, value: u8| cause_of(|s| PowerPorts(s).write(offset, &[value]));
        assert_eq!(write(2, 1), Some(StopCause::Reset));
        assert_eq!(write(2, 0), None);
        assert_eq!(write(1, 1), None);
    }

    #[test]
    fn the_keyboard_controller_resets_and_is_never_busy() {
        let write = |value: u8| cause_of(|s| KeyboardResetPort(s).write(0, &[value]));
        assert_eq!(write(0xfe), Some(StopCause::Reset));
        assert_eq!(write(0xd1), None);
        let mut status = [0xff];
        KeyboardResetPort(Arc::new(Stopper::new().unwrap())).read(0, &mut status);
        assert_eq!(status, [0], "input and output buffer empty");
    }

    #[test]
    fn empty_writes_do_nothing() {
        assert_eq!(cause_of(|s| PowerPorts(s).write(0, &[])), None);
        assert_eq!(cause_of(|s| KeyboardResetPort(s).write(0, &[])), None);
    }
}
