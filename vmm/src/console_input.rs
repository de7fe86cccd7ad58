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
    /// Read, and not taken by the port yet.
    pending: Vec<u8>,
}

impl ConsoleInput {
    /// From `file` to `port`.
    #[must_use]
    pub fn new(file: File, port: Arc<SerialPort>) -> Self {
        Self {
            file,
            port,
            pending: Vec::with_capacity(CHUNK),
        }
    }

    /// Reads once, what the guest can take; to be called when the file is
    /// readable, or is a file that always is.
    pub fn forward(&mut self) -> Next {
        if self.pending.is_empty() {
            let room = self.port.receive_capacity().min(CHUNK);
            if room == 0 {
                return Next::WhenTaken;
            }
            self.pending.resize(room, 0);
            let read = self.file.read(&mut self.pending);
            self.pending.truncate(*read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Next::Never,
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {
                        return Next::WhenReadable;
                    }
                    _ => return Self::ends(&error),
                },
            }
        }
        match self.port.receive(&self.pending) {
            Ok(taken) => {
                self.pending.drain(..taken.min(self.pending.len()));
                match self.pending.is_empty() {
                    true => Next::WhenReadable,
                    // The guest changed the port's mode since we asked for room.
                    false => Next::WhenTaken,
                }
            }
            Err(error) => Self::ends(&error),
        }
    }

    fn ends(error: &io::Error) -> Next {
        log::warn!("console input ends: {error}");
        Next::Never
    }
}

impl AsRawFd for ConsoleInput {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
