//! A 16550 UART on port I/O, whose output never blocks the vCPU that writes it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vm_superio::Trigger;
use vm_superio::serial::{Error, NoEvents, Serial};

use crate::interrupt::Interrupt;
use crate::mmio_bus::BusDevice;
use crate::virtio::log_budget::LogBudget;

/// Where the bytes go that the guest transmits.
///
/// Called on a vCPU thread for each transmitted byte: it must only queue them
/// (bounded), never block and never panic.
pub trait SerialSink: Send {
    /// Takes bytes the guest transmitted.
    fn transmit(&mut self, bytes: &[u8]);

    /// The guest took the last byte of the receive FIFO: more input fits.
    fn received_all(&mut self) {}
}

/// Length of the UART's register window on the port I/O bus, in ports.
pub const SERIAL_PORTS: u64 = 8;

/// Capacity of the UART's receive FIFO.
const FIFO_BYTES: usize = 64;

/// Modem control register, and its bit that connects the transmitter to the
/// receiver.
const MCR: u8 = 4;
const MCR_LOOP: u8 = 1 << 4;

/// One serial port: registers for the guest, [`SerialPort::receive`] for input.
///
/// Interrupts are edges: the line is raised when a condition the guest enabled
/// comes up, and again when it enables one that is already there.
pub struct SerialPort {
    uart: Mutex<Serial<Line, NoEvents, Output>>,
    log: LogBudget,
}

/// The interrupt line in the form the UART wants it.
struct Line(Arc<dyn Interrupt>);

impl Trigger for Line {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.trigger()
    }
}

/// The sink in the form the UART wants it. Writing never fails.
struct Output(Box<dyn SerialSink>);

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.transmit(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SerialPort {
    /// A port that raises `interrupt` and hands output to `sink`.
    #[must_use]
    pub fn new(interrupt: Arc<dyn Interrupt>, sink: Box<dyn SerialSink>) -> Self {
        Self {
            uart: Mutex::new(Serial::new(Line(interrupt), Output(sink))),
            log: LogBudget::new(),
        }
    }

    /// How many input bytes the receive FIFO takes now; none while the guest
    /// has the port looped back to itself.
    #[must_use]
    pub fn receive_capacity(&self) -> usize {
        let mut uart = self.lock();
        if uart.read(MCR) & MCR_LOOP == 0 {
            uart.fifo_capacity()
        } else {
            0
        }
    }

    /// Puts input bytes into the receive FIFO; returns how many were taken.
    ///
    /// # Errors
    /// The error of the interrupt. The bytes that fitted were taken.
    pub fn receive(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.lock().enqueue_raw_bytes(bytes) {
            Ok(taken) => Ok(taken),
            Err(Error::FullFifo) => Ok(0),
            Err(Error::Trigger(error) | Error::IOError(error)) => Err(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Serial<Line, NoEvents, Output>> {
        self.uart.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The register at `offset` for an access of `len` bytes. All of them are one
/// byte wide; wider accesses reach nothing.
fn register(offset: u64, len: usize) -> Option<u8> {
    let register = u8::try_from(offset).ok()?;
    (len == 1 && offset < SERIAL_PORTS).then_some(register)
}

impl BusDevice for SerialPort {
    fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let Some(register) = register(offset, data.len()) else {
            return;
        };
        let mut uart = self.lock();
        let room = uart.fifo_capacity();
        data.fill(uart.read(register));
        if uart.fifo_capacity() > room && uart.fifo_capacity() == FIFO_BYTES {
            uart.writer_mut().0.received_all();
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let Some(register) = register(offset, data.len()) else {
            return;
        };
        let written = data.first().map(|byte| self.lock().write(register, *byte));
        if let Some(Err(error)) = written {
            self.log
                .warn(format_args!("serial port register {register}: {error}"));
        }
    }
}
