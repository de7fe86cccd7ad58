//! The 16550 as a guest's driver sees it.

use std::sync::{Arc, Mutex};

use devices::mmio_bus::BusDevice;
use devices::serial::{SERIAL_PORTS, SerialPort, SerialSink};

use crate::fake_guest::FakeLine;

/// Data, interrupt enable and identification, line and modem control, line
/// status, scratch.
const DATA: u64 = 0;
const IER: u64 = 1;
const IIR: u64 = 2;
const MCR: u64 = 4;
const LSR: u64 = 5;
const SCRATCH: u64 = 7;

const IER_RECEIVED: u8 = 1;
const IER_TRANSMITTED: u8 = 2;
const IIR_NONE: u8 = 1;
const IIR_TRANSMITTED: u8 = 2;
const IIR_RECEIVED: u8 = 4;
const LSR_DATA_READY: u8 = 1;
const LSR_TRANSMITTER_EMPTY: u8 = 0x60;
const MCR_LOOP: u8 = 0x10;
const FIFO: usize = 64;

#[derive(Default, Clone)]
struct Sink {
    bytes: Arc<Mutex<Vec<u8>>>,
    emptied: Arc<Mutex<usize>>,
}

impl SerialSink for Sink {
    fn transmit(&mut self, bytes: &[u8]) {
        self.bytes.lock().unwrap().extend_from_slice(bytes);
    }
    fn received_all(&mut self) {
        *self.emptied.lock().unwrap() += 1;
    }
}

fn port() -> (SerialPort, Arc<FakeLine>, Sink) {
    let (line, sink) = (Arc::new(FakeLine::default()), Sink::default());
    let port = SerialPort::new(line.clone(), Box::new(sink.clone()));
    (port, line, sink)
}

fn inb(port: &SerialPort, register: u64) -> u8 {
    let mut byte = [0xee];
    port.read(register, &mut byte);
    byte[0]
}

fn outb(port: &SerialPort, register: u64, value: u8) {
    port.write(register, &[value]);
}

#[test]
fn what_the_guest_transmits_comes_out_and_the_transmitter_is_always_empty() {
    let (port, line, sink) = port();
    for byte in *b"hello" {
        assert_eq!(
            inb(&port, LSR) & LSR_TRANSMITTER_EMPTY,
            LSR_TRANSMITTER_EMPTY
        );
        outb(&port, DATA, byte);
    }
    assert_eq!(*sink.bytes.lock().unwrap(), b"hello");
    assert_eq!(line.raised(), 0, "no interrupt that was not enabled");
}

#[test]
fn an_enabled_transmitter_interrupt_is_raised_and_identified() {
    let (port, line, _sink) = port();
    outb(&port, IER, IER_TRANSMITTED);
    assert_eq!(line.raised(), 1, "the transmitter is empty already");
    assert_eq!(inb(&port, IIR) & 7, IIR_TRANSMITTED);
    assert_eq!(inb(&port, IIR) & 7, IIR_NONE, "reading acknowledges");
    outb(&port, DATA, b'x');
    assert_eq!(line.raised(), 2);
}

#[test]
fn input_fills_the_fifo_up_to_its_capacity_and_is_read_in_order() {
    let (port, line, sink) = port();
    outb(&port, IER, IER_RECEIVED);
    let input: Vec<u8> = (0..100).collect();
    assert_eq!(port.receive_capacity(), FIFO);
    assert_eq!(port.receive(&input).unwrap(), FIFO);
    assert_eq!(port.receive_capacity(), 0);
    assert_eq!(
        port.receive(&input).unwrap(),
        0,
        "a full FIFO takes nothing"
    );
    assert_eq!(line.raised(), 1);
    assert_eq!(inb(&port, IIR) & 7, IIR_RECEIVED);
    let mut read = Vec::new();
    while inb(&port, LSR) & LSR_DATA_READY != 0 {
        assert_eq!(*sink.emptied.lock().unwrap(), 0);
        read.push(inb(&port, DATA));
    }
    assert_eq!(read, input[..FIFO]);
    assert_eq!(port.receive_capacity(), FIFO);
    assert_eq!(
        *sink.emptied.lock().unwrap(),
        1,
        "the owner learns of the room"
    );
    inb(&port, DATA);
    assert_eq!(
        *sink.emptied.lock().unwrap(),
        1,
        "an empty FIFO is not news"
    );
}

#[test]
fn input_that_came_before_its_interrupt_was_enabled_raises_it_then() {
    let (port, line, _sink) = port();
    assert_eq!(port.receive(b"x").unwrap(), 1);
    assert_eq!(line.raised(), 0);
    outb(&port, IER, IER_RECEIVED);
    assert_eq!(line.raised(), 1);
}

#[test]
fn in_loopback_bytes_come_back_to_the_guest_and_none_get_in_or_out() {
    let (port, _line, sink) = port();
    outb(&port, MCR, MCR_LOOP);
    outb(&port, DATA, b'l');
    assert_eq!(port.receive_capacity(), 0);
    assert_eq!(port.receive(b"input").unwrap(), 0);
    assert_eq!(inb(&port, DATA), b'l');
    assert!(sink.bytes.lock().unwrap().is_empty());
    for _ in 0..2 * FIFO {
        outb(&port, DATA, b'l');
    }
    outb(&port, MCR, 0);
    assert_eq!(port.receive_capacity(), 0, "a FIFO is full at its capacity");
}

#[test]
fn an_access_that_is_not_one_byte_wide_is_harmless() {
    let (port, line, sink) = port();
    for len in [0, 2, 3, 4, 8, 100] {
        for offset in [0, 1, SERIAL_PORTS - 1, SERIAL_PORTS, u64::MAX] {
            let mut data = vec![0xee; len];
            port.read(offset, &mut data);
            assert_eq!(data, vec![0; len]);
            port.write(offset, &data);
        }
    }
    for offset in [SERIAL_PORTS, 0x100, u64::MAX] {
        outb(&port, offset, 1);
        assert_eq!(inb(&port, offset), 0, "{offset:#x} is no register");
    }
    assert!(sink.bytes.lock().unwrap().is_empty());
    assert_eq!(line.raised(), 0);
}

#[test]
fn every_register_takes_every_value() {
    let (port, _line, _sink) = port();
    for register in 0..SERIAL_PORTS {
        for value in 0..=u8::MAX {
            outb(&port, register, value);
            inb(&port, register);
        }
    }
    outb(&port, SCRATCH, 0x5a);
    assert_eq!(inb(&port, SCRATCH), 0x5a);
}
