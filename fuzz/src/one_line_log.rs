//! A logger that writes nothing, but checks what would be written.

use log::{LevelFilter, Log, Metadata, Record};

/// Bytes of a message without what it quotes.
const LONGEST: usize = 1024;
/// Bytes a quoted one may take, escaped: `\u{10ffff}` for what was one byte that
/// is not UTF-8, and twice where a message names the place and the value.
const ESCAPED: usize = 2 * 10;

struct OneLine;

/// Has every message formatted and checked from now on.
pub(crate) fn start() {
    if log::set_logger(&OneLine).is_ok() {
        log::set_max_level(LevelFilter::Trace);
    }
}

/// A message that may quote so many bytes is one bounded line without control
/// characters, whoever chose the words in it: it ends up on a terminal.
pub(crate) fn assert_one_line(message: &str, quoted: usize) {
    let longest = LONGEST + ESCAPED * quoted;
    assert!(message.len() <= longest, "{} bytes", message.len());
    let control = message.chars().find(|c| c.is_control());
    assert_eq!(control, None, "in {message:?}");
}

impl Log for OneLine {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        assert_one_line(&record.args().to_string(), 0);
    }

    fn flush(&self) {}
}
