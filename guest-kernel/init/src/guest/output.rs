//! Where the JSON lines and the words for people go.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use rustix::termios::{ControlModes, OptionalActions, tcgetattr, tcsetattr};
use serde::Serialize;

use super::patient_writer::{PatientWriter, open_terminal};

/// The second serial port.
const RESULTS: &str = "/dev/ttyS1";
/// What the kernel's messages go to.
const CONSOLE: &str = "/dev/console";
/// Baud rate asked for; an emulated port ignores it, a real one drains by it.
const BAUD: u32 = 115_200;
/// Longest time without progress on a port.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the JSON lines and the words for people go.
#[derive(Debug)]
pub(crate) enum Output {
    /// JSON lines on stdout, words on stderr.
    Native,
    /// A guest.
    Guest {
        /// The second serial port, where it works.
        results: Option<PatientWriter>,
        /// Words, and JSON lines after `RESULT ` where `results` is missing.
        console: Option<PatientWriter>,
    },
}

impl Output {
    /// Opens what a guest has.
    pub(crate) fn of_guest() -> Self {
        let patient = |file| PatientWriter::new(file, PATIENCE);
        Self::Guest {
            results: open_raw(Path::new(RESULTS)).ok().map(patient),
            console: open_terminal(Path::new(CONSOLE)).ok().map(patient),
        }
    }

    /// Writes one JSON line.
    pub(crate) fn line(&mut self, line: &impl Serialize) {
        let Ok(mut text) = serde_json::to_string(line) else {
            return;
        };
        match self {
            Self::Native => {
                // Nobody reads any more: the exit code still tells.
                let _ = writeln!(io::stdout(), "{text}");
            }
            Self::Guest { results, .. } => {
                text.push('\n');
                if let Some(port) = results {
                    match port.write_all(text.as_bytes()) {
                        Ok(()) => return,
                        Err(error) => {
                            *results = None;
                            self.say(&format!("cannot write to {RESULTS}: {error}"));
                        }
                    }
                }
                self.console(format!("RESULT {text}").as_bytes());
            }
        }
    }

    /// Writes one line for people.
    pub(crate) fn say(&mut self, text: &str) {
        self.console(format!("guest-init: {text}\n").as_bytes());
    }

    /// Writes `bytes` to the console as they are.
    pub(crate) fn console(&mut self, bytes: &[u8]) {
        match self {
            Self::Native => {
                let _ = io::stderr().write_all(bytes);
            }
            Self::Guest { console, .. } => {
                if let Some(port) = console {
                    let _ = port.write_all(bytes);
                }
            }
        }
    }

    /// Waits until everything has left the machine.
    pub(crate) fn drain(&mut self) {
        if let Self::Guest { results, console } = self {
            for port in [results, console].into_iter().flatten() {
                port.drain();
            }
        }
    }
}

/// Opens a serial port so that bytes pass as they are. A port that the driver
/// lists but the machine lacks fails here, with EIO.
fn open_raw(path: &Path) -> io::Result<File> {
    let file = open_terminal(path)?;
    let mut modes = tcgetattr(&file)?;
    modes.make_raw();
    modes.control_modes |= ControlModes::CLOCAL;
    modes.set_speed(BAUD)?;
    tcsetattr(&file, OptionalActions::Now, &modes)?;
    Ok(file)
}
