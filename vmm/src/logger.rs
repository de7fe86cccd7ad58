//! The log: lines on stderr, stamped with the time since Aerostat was executed.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use log::{LevelFilter, Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long the reader of stderr may take to make room for a line.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// The reader of stderr took too long the last time.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes to stderr; a stderr that is gone loses lines and nothing else.
struct StderrLog {
    exec: Instant,
}

/// Starts logging: `exec` is when Aerostat was executed.
///
/// A second call changes nothing but the level.
pub fn start(level: LevelFilter, exec: Instant) {
    // The error is that there is a logger already.
    let _ = log::set_boxed_logger(Box::new(StderrLog { exec }));
    log::set_max_level(level);
}

/// What is logged: warnings and progress by default, errors only when quiet.
#[must_use]
pub fn level(verbose: u8, quiet: bool) -> LevelFilter {
    match (quiet, verbose) {
        (true, _) => LevelFilter::Error,
        (false, 0) => LevelFilter::Info,
        (false, 1) => LevelFilter::Debug,
        (false, _) => LevelFilter::Trace,
    }
}

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = line(self.exec.elapsed().as_secs_f64(), record);
            to_stderr(&line);
        }
    }

    fn flush(&self) {}
}

/// Writes one line to stderr, if whoever reads it takes it: vCPUs log, too, and
/// must not wait for a reader. A line it does not take within [`PATIENCE`] is
/// lost, and then all are until it reads again.
pub fn to_stderr(line: &str) {
    let stderr = io::stderr();
    let patience = match STUCK.load(Ordering::Relaxed) {
        true => Timespec::default(),
        false => PATIENCE,
    };
    let mut wanted = [PollFd::new(&stderr, PollFlags::OUT)];
    // A pipe is ready when a page fits, which is more than most lines have.
    let stuck = matches!(poll(&mut wanted, Some(&patience)), Ok(0));
    STUCK.store(stuck, Ordering::Relaxed);
    if !stuck {
        // One write per line, so that lines of threads do not mix.
        let _ = stderr.lock().write_all(line.as_bytes());
    }
}

fn line(seconds: f64, record: &Record<'_>) -> String {
    let level = match record.level() {
        log::Level::Error => "error",
        log::Level::Warn => "warn",
        log::Level::Info => "info",
        log::Level::Debug => "debug",
        log::Level::Trace => "trace",
    };
    format!("aerostat: [{seconds:>7.3}] {level}: {}\n", record.args())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_level_and_message() {
        let args = format_args!("pool empty");
        let record = Record::builder().level(log::Level::Warn).args(args).build();
        assert_eq!(
            line(0.1234, &record),
            "aerostat: [  0.123] warn: pool empty\n"
        );
        assert_eq!(
            line(1234.5, &record),
            "aerostat: [1234.500] warn: pool empty\n"
        );
    }

    #[test]
    fn quiet_wins_over_verbose() {
        assert_eq!(level(0, false), LevelFilter::Info);
        assert_eq!(level(1, false), LevelFilter::Debug);
        assert_eq!(level(9, false), LevelFilter::Trace);
        assert_eq!(level(2, true), LevelFilter::Error);
    }
}
