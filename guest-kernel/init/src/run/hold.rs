//! Memory that another process holds for a while: it comes free while this one
//! does something else, even if that hangs in a page fault.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::time::ClockId;

use super::reporting;
use crate::failure::StepError;
use crate::lines::RegionLine;
use crate::measure::meminfo::Meminfo;
use crate::measure::perf::now_ns;
use crate::steps::table::Region;

/// Passes of the flush once it is free.
const PASSES: u32 = 1000;

/// Starts a process that fills `region`, holds it for `duration` and ends; what
/// came free is then reported. Returns as soon as it is filled.
pub(crate) fn hold(region: Region, duration: Duration) -> Result<RegionLine, StepError> {
    let start = now_ns(ClockId::Monotonic);
    let mut child = start_holder(region, duration).map_err(|source| StepError::File {
        action: "run",
        path: "/proc/self/exe".to_owned(),
        source,
    })?;
    let line = RegionLine {
        size_bytes: region.bytes,
        kind: region.kind.to_string(),
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
    };
    thread::spawn(move || {
        // It ends by itself; and without a flush the kernel reports in 2 s.
        let _ = child.wait();
        let _ = reporting::flush_now(PASSES);
    });
    Ok(line)
}

/// The same program with two steps, once it says that the first is done.
fn start_holder(region: Region, duration: Duration) -> io::Result<Child> {
    let mut child = Command::new("/proc/self/exe")
        .args([
            "--no-init".to_owned(),
            format!("fill={},{}", region.bytes, region.kind),
        ])
        .arg(format!("sleep={}", duration.as_secs_f64()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let lines = child.stdout.take().map(BufReader::new);
    for line in lines.into_iter().flat_map(BufRead::lines) {
        if line?.contains("\"type\":\"fill\"") {
            return Ok(child);
        }
    }
    child.wait()?;
    Err(io::Error::other("it could not fill its memory"))
}
