//! A logger that writes nothing, but checks what would be written.

use log::{LevelFilter, Log, Metadata, Record};

/// No honest message is longer.
const LONGEST: usize = 4096;

struct OneLine;

/// Has every message formatted and checked from now on.
pub(crate) fn start() {
    if log::set_logger(&OneLine).is_ok() {
        log::set_max_level(LevelFilter::Trace);
    }
}

/// A message is one bounded line without control characters, whoever chose the
/// words in it: it ends up on a terminal.
pub(crate) fn assert_one_line(message: &str) {
    assert!(message.len() <= LONGEST, "{} bytes", message.len());
    let control = message.chars().find(|c| c.is_control());
    assert_eq!(control, None, "in {message:?}");
}

impl Log for OneLine {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        assert_one_line(&record.args().to_string());
    }

    fn flush(&self) {}
}
