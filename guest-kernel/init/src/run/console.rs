//! Flooding the console, to see who blocks.

use rustix::time::ClockId;

use crate::guest::output::Output;
use crate::lines::SpinLine;
use crate::measure::perf::now_ns;

/// One line of 64 bytes.
const LINE: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.\n";
/// Lines per write.
const LINES: usize = 64;

/// Writes so many bytes to the console, rounded down to whole blocks of 4 KiB.
pub(crate) fn spin(output: &mut Output, bytes: u64) -> SpinLine {
    let block = LINE.repeat(LINES);
    let blocks = bytes / block.len() as u64;
    let start = now_ns(ClockId::Monotonic);
    for _ in 0..blocks {
        output.console(&block);
    }
    SpinLine {
        bytes: blocks * block.len() as u64,
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
    }
}
