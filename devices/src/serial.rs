//! A 16550 UART on port I/O, whose output never blocks the vCPU that writes it.

use std::io;
use std::sync::Arc;

use crate::interrupt::Interrupt;
use crate::mmio_bus::BusDevice;

/// Where the bytes go that the guest transmits.
///
/// Called on a vCPU thread for each transmitted byte: it must only queue them
/// (bounded), never block and never panic.
pub trait SerialSink: Send {
    /// Takes bytes the guest transmitted.
    fn transmit(&mut self, bytes: &[u8]);
}

/// Length of the UART's register window on the port I/O bus, in ports.
pub const SERIAL_PORTS: u64 = 8;

/// One serial port: registers for the guest, [`SerialPort::receive`] for input.
pub struct SerialPort;

impl SerialPort {
    /// A port that raises `interrupt` and hands output to `sink`.
    #[must_use]
    pub fn new(_interrupt: Arc<dyn Interrupt>, _sink: Box<dyn SerialSink>) -> Self {
        Self
    }

    /// How many input bytes the receive FIFO takes now.
    #[must_use]
    pub fn receive_capacity(&self) -> usize {
        0
    }

    /// Puts input bytes into the receive FIFO; returns how many were taken.
    ///
    /// # Errors
    /// The error of the interrupt.
    pub fn receive(&self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl BusDevice for SerialPort {
    fn read(&self, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }
    fn write(&self, _offset: u64, _data: &[u8]) {}
}
