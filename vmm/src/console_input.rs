//! The console's way in: bytes go to the serial port as fast as the guest
//! takes them, and no faster.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use devices::serial::SerialPort;

/// Bytes read at once; a 16550's receive FIFO has 16, larger ones are rare.
const CHUNK: usize = 64;

/// What is to be done about the input next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait until there is input.
    WhenReadable,
    /// The guest's FIFO is full: try again in a moment, and do not look for
    /// input until then.
    WhenTaken,
    /// There will be no more input.
    Never,
}

/// Input on its way to a serial port.
pub struct ConsoleInput {
    file: File,
    port: Arc<SerialPort>,
}

impl ConsoleInput {
    /// From `file` to `port`.
    #[must_use]
    pub fn new(file: File, port: Arc<SerialPort>) -> Self {
        Self { file, port }
    }

    /// Reads once, what the guest can take; to be called when the file is
    /// readable, or is a file that always is.
    pub fn forward(&mut self) -> Next {
        let mut buffer = [0; CHUNK];
        let room = self.port.receive_capacity().min(CHUNK);
        let Some(buffer) = buffer.get_mut(..room).filter(|b| !b.is_empty()) else {
            return Next::WhenTaken;
        };
        let bytes = match self.file.read(buffer) {
            Ok(0) => return Next::Never,
            Ok(n) => buffer.get(..n).unwrap_or_default(),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {
                    return Next::WhenReadable;
                }
                _ => {
                    log::warn!("console input ends: {error}");
                    return Next::Never;
                }
            },
        };
        match self.port.receive(bytes) {
            // There was room for all of it, and only the guest makes room.
            Ok(_) => Next::WhenReadable,
            Err(error) => {
                log::warn!("console input ends: {error}");
                Next::Never
            }
        }
    }
}

impl AsRawFd for ConsoleInput {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
