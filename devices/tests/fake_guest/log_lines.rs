//! What the device logs on the thread of a test: what registers make it log.

use std::cell::RefCell;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record};

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct ByThread;

impl Log for ByThread {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Runs `act` and returns what is logged on this thread meanwhile.
pub fn log_lines(act: impl FnOnce()) -> Vec<String> {
    static SET: Once = Once::new();
    SET.call_once(|| {
        log::set_logger(&ByThread).unwrap();
        log::set_max_level(LevelFilter::Warn);
    });
    LINES.take();
    act();
    LINES.take()
}
