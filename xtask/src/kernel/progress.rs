//! One line per stage; on a terminal the running stage also shows its count.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Talks on standard error.
pub(crate) struct Progress {
    terminal: bool,
    last: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            last: Instant::now(),
        }
    }

    /// Announces a stage.
    pub(crate) fn stage(&self, what: &str) {
        self.erase();
        eprintln!("kernel: {what}");
    }

    /// Overwrites one line with a changing status, on a terminal only.
    pub(crate) fn status(&mut self, what: &str) {
        if self.terminal && self.last.elapsed() > Duration::from_millis(250) {
            self.last = Instant::now();
            eprint!("\r\x1b[Kkernel:   {what}");
            let _ = std::io::stderr().flush();
        }
    }

    /// Removes the status line.
    pub(crate) fn erase(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
