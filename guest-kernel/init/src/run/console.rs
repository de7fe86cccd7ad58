//! Flooding the console, to see who blocks.

use rustix::time::ClockId;

use crate::guest::output::Output;
use crate::lines::SpinLine;
use crate::measure::perf::now_ns;

/// One line of 64 bytes.
const LINE: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.\n";
/// Lines per write.
const LINES: usize = 64;

/// Writes so many MiB to the console.
pub(crate) fn spin(output: &mut Output, mebibytes: u32) -> SpinLine {
    let block = LINE.repeat(LINES);
    let bytes = u64::from(mebibytes) << 20;
    let start = now_ns(ClockId::Monotonic);
    for _ in 0..bytes / block.len() as u64 {
        output.console(&block);
    }
    SpinLine {
        bytes,
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
    }
}
