//! stdout is for data, stderr is for talk; neither being gone is a panic.

use std::fmt::Display;
use std::io::{self, Write};

use vmm::logger;
use vmm::outcome::{FailureClass, Verdict};

/// Says one line to the user.
pub(crate) fn say(line: &dyn Display) {
    logger::to_stderr(&format!("aerostat: {line}\n"));
}

/// Prints data; returns the exit code.
pub(crate) fn print(text: &str) -> u8 {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => 0,
        // Whoever read it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Verdict::Interrupted.exit_code(),
        Err(error) => {
            say(&format_args!("stdout: {error}"));
            FailureClass::Internal.exit_code()
        }
    }
}
