//! Having free memory reported to the host.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::ClockId;

use crate::failure::StepError;
use crate::guest::facts::PAGE_REPORTING;
use crate::kernel_file;
use crate::lines::FlushLine;
use crate::measure::meminfo::Meminfo;
use crate::measure::perf::now_ns;
use crate::measure::vmstat::Vmstat;

/// Linux reports 2 s after memory became free (`PAGE_REPORTING_DELAY`).
const STOCK_DELAY: Duration = Duration::from_secs(3);

/// What a flush came to.
pub(crate) enum Flushed {
    /// The kernel reported; how many blocks, where it tells.
    Yes(Option<u64>),
    /// This kernel has no such switch.
    NoSwitch,
    /// No device takes reports.
    NoBackend,
}

/// Has all free blocks reported in at most `passes`, or gives a stock kernel the time
/// in which it does that by itself.
pub(crate) fn flush(passes: u32) -> Result<FlushLine, StepError> {
    let before = Vmstat::now()?;
    let start = now_ns(ClockId::Monotonic);
    let (reason, blocks_reported) = match flush_now(passes)? {
        Flushed::Yes(count) => (None, count),
        Flushed::NoBackend => (Some("no device takes reports"), None),
        Flushed::NoSwitch => {
            std::thread::sleep(STOCK_DELAY);
            (Some("no flush in this kernel; slept instead"), None)
        }
    };
    let wall_ns = now_ns(ClockId::Monotonic).saturating_sub(start);
    let vmstat = Vmstat::now()?.since(&before);
    Ok(FlushLine {
        supported: reason.is_none(),
        reason,
        blocks_reported,
        pages_reported: vmstat.total("pgreport_pages"),
        pages_zeroed: vmstat.total("pgreport_zeroed"),
        wall_ns,
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
        vmstat: vmstat.into_counters(),
    })
}

/// Writes the kernel's flush parameter.
pub(crate) fn flush_now(passes: u32) -> Result<Flushed, StepError> {
    let path = Path::new(PAGE_REPORTING).join("flush");
    match kernel_file::write_raw(&path, &passes.to_string()) {
        Ok(()) => Ok(Flushed::Yes(
            kernel_file::read_if_any(&path).and_then(|text| text.parse().ok()),
        )),
        Err(source) => match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => Ok(Flushed::NoSwitch),
            Some(Errno::NODEV) => Ok(Flushed::NoBackend),
            _ => Err(StepError::File {
                action: "write",
                path: path.display().to_string(),
                source,
            }),
        },
    }
}
