//! An interrupt line of the guest's I/O APIC, raised through an event file
//! descriptor so that a device needs to know nothing of KVM.

use std::io;

use devices::interrupt::Interrupt;
use vmm_sys_util::eventfd::EventFd;

/// One edge-triggered line. Made by [`super::vm::Vm::irq_line`].
pub struct IrqLine {
    event: EventFd,
}

impl IrqLine {
    pub(super) fn new(event: EventFd) -> Self {
        Self { event }
    }
}

impl Interrupt for IrqLine {
    fn trigger(&self) -> io::Result<()> {
        self.event.write(1)
    }
}
