//! A process that allocates more memory than there may be.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use rustix::time::ClockId;

use crate::failure::StepError;
use crate::kernel_file;
use crate::lines::PressureLine;
use crate::measure::anonymous_memory::AnonymousMemory;
use crate::measure::meminfo::Meminfo;
use crate::measure::perf::now_ns;
use crate::measure::vmstat::Vmstat;
use crate::steps::page_kind::PageKind;
use crate::steps::table::Region;

/// First argument of the process; the second is the number of bytes.
pub(crate) const ALLOCATE: &str = "--allocate-as-victim";
/// This process is killed before any other; see proc_pid_oom_score_adj(5).
const KILL_FIRST: &str = "1000";

/// Has another process allocate `bytes`, and waits for its end. PID 1 itself
/// cannot do it: it is never killed, the kernel would panic instead.
pub(crate) fn pressure(bytes: u64) -> Result<PressureLine, StepError> {
    let before = Vmstat::now()?;
    let start = now_ns(ClockId::Monotonic);
    let status = Command::new("/proc/self/exe")
        .arg(ALLOCATE)
        .arg(bytes.to_string())
        .status()
        .map_err(|source| StepError::File {
            action: "run",
            path: "/proc/self/exe".to_owned(),
            source,
        })?;
    // Killed or done: anything else says nothing about memory.
    if !status.success() && status.signal().is_none() {
        return Err(StepError::Victim { bytes, status });
    }
    Ok(PressureLine {
        size_bytes: bytes,
        survived: status.success(),
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
        vmstat: Vmstat::now()?.since(&before).into_counters(),
    })
}

/// What that process does.
pub(crate) fn allocate_as_victim(bytes: Option<&str>) -> ExitCode {
    let allocated = || -> Result<(), StepError> {
        let bytes = bytes.and_then(|text| text.parse().ok());
        let region = Region {
            bytes: bytes.ok_or_else(|| StepError::Missing("number of bytes".to_owned()))?,
            kind: PageKind::Small,
        };
        kernel_file::write("/proc/self/oom_score_adj", KILL_FIRST)?;
        AnonymousMemory::map(region)?.populate()
    };
    match allocated() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
