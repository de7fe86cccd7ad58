//! Every JSON line. `README.md` documents them; a reader skips keys it does
//! not know, and units are part of the key.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::guest::facts::{Balloon, InitLine, PageZeroed, Reporting};
use crate::measure::perf::Cost;
use crate::measure::zero_scan::ZeroScan;

/// One line; its `type` comes first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub(crate) enum Line {
    Init(InitLine),
    Populate(Box<PopulateLine>),
    Fallocate(Box<FallocateLine>),
    Dirty(RegionLine),
    Fill(RegionLine),
    Hold(RegionLine),
    Pool(PoolLine),
    Flush(FlushLine),
    Verify(SettingLine),
    Off(SettingLine),
    ZeroMode(SettingLine),
    ZeroBatch(SettingLine),
    DropCaches(DoneLine),
    Compact(DoneLine),
    Sleep(DoneLine),
    SpinConsole(SpinLine),
    Print(EmptyLine),
    Stress(StressLine),
    WaitBalloon(WaitBalloonLine),
    Balloon(BindingLine),
    Pressure(PressureLine),
    Write(DoneLine),
    Exec(ExecLine),
    Info(Box<InfoLine>),
    /// The kernel is about to crash.
    Panic(EmptyLine),
    /// Nothing follows.
    Hang(EmptyLine),
    Error(ErrorLine),
    Exit(ExitLine),
}

/// A line of a step, with the step's place in the run.
#[derive(Debug, Serialize)]
pub(crate) struct StepLine {
    #[serde(flatten)]
    pub(crate) line: Line,
    /// Counts the steps that ran, from 1.
    pub(crate) step: u64,
    /// Round of the innermost loop, from 1.
    pub(crate) iteration: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(crate) struct EmptyLine {}

#[derive(Debug, Serialize)]
pub(crate) struct PopulateLine {
    pub(crate) size_bytes: u64,
    pub(crate) kind: String,
    pub(crate) page_bytes: u64,
    /// 4 KiB pages of the region.
    pub(crate) pages: u64,
    /// 4 KiB pages the kernel cleared meanwhile; null where it does not count.
    pub(crate) pages_cleared: Option<u64>,
    /// 4 KiB pages the kernel knew to be zero meanwhile.
    pub(crate) pages_skipped: Option<u64>,
    /// The `mmap` call; surplus hugetlb pages are allocated here.
    pub(crate) map_wall_ns: u64,
    pub(crate) map_cpu_ns: u64,
    #[serde(flatten)]
    pub(crate) cost: Cost,
    /// Counters over `mmap` and `madvise`.
    pub(crate) vmstat: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<ZeroScan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write: Option<WriteCost>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FallocateLine {
    pub(crate) size_bytes: u64,
    pub(crate) kind: String,
    pub(crate) page_bytes: u64,
    /// As for a populated region.
    pub(crate) pages: u64,
    pub(crate) pages_cleared: Option<u64>,
    pub(crate) pages_skipped: Option<u64>,
    #[serde(flatten)]
    pub(crate) cost: Cost,
    pub(crate) vmstat: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<ZeroScan>,
}

/// Writing 8 bytes to each page.
#[derive(Debug, Serialize)]
pub(crate) struct WriteCost {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct RegionLine {
    pub(crate) size_bytes: u64,
    pub(crate) kind: String,
    pub(crate) wall_ns: u64,
    pub(crate) mem_free_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct PoolLine {
    pub(crate) kind: String,
    pub(crate) page_bytes: u64,
    /// Pages of this size the pool should have.
    pub(crate) wanted: u64,
    /// What it has, surplus pages included.
    pub(crate) total: Option<u64>,
    pub(crate) free: Option<u64>,
    pub(crate) wall_ns: u64,
    pub(crate) mem_free_bytes: u64,
    pub(crate) vmstat: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FlushLine {
    /// Whether the kernel flushed. If not it either slept or has no one to
    /// report to, as `reason` says.
    pub(crate) supported: bool,
    pub(crate) reason: Option<&'static str>,
    /// As the kernel's parameter reads back; null where it cannot be read.
    pub(crate) blocks_reported: Option<u64>,
    /// 4 KiB pages reported meanwhile; null where the kernel does not count.
    pub(crate) pages_reported: Option<u64>,
    /// 4 KiB pages of those that the host said are zero.
    pub(crate) pages_zeroed: Option<u64>,
    pub(crate) wall_ns: u64,
    pub(crate) mem_free_bytes: u64,
    pub(crate) vmstat: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SettingLine {
    /// Whether this kernel has the setting.
    pub(crate) supported: bool,
    /// As it reads back.
    pub(crate) value: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DoneLine {
    /// Whether this kernel can do it.
    pub(crate) supported: bool,
    pub(crate) wall_ns: u64,
    pub(crate) mem_free_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ExecLine {
    pub(crate) program: String,
    pub(crate) wall_ns: u64,
    /// The last of what it said.
    pub(crate) output: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct SpinLine {
    pub(crate) bytes: u64,
    pub(crate) wall_ns: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct StressLine {
    pub(crate) threads: u32,
    pub(crate) wall_ns: u64,
    pub(crate) iterations: u64,
    pub(crate) checked_bytes: u64,
    pub(crate) nonzero_bytes: u64,
    /// Allocations that failed; the thread went on.
    pub(crate) failed: u64,
    pub(crate) flushes: u64,
    /// How often the balloon's driver was unbound and bound; null if it was
    /// left alone.
    pub(crate) balloon_unbinds: Option<u64>,
    pub(crate) balloon_binds: Option<u64>,
    pub(crate) vmstat: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct WaitBalloonLine {
    pub(crate) size_bytes: u64,
    pub(crate) wall_ns: u64,
    pub(crate) mem_free_bytes: u64,
    /// Over the wait.
    pub(crate) vmstat: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct BindingLine {
    /// Whether a driver has the balloon now.
    pub(crate) driver_bound: bool,
    /// Of the device, as negotiated by the driver that has or had it.
    pub(crate) features: Vec<u8>,
    pub(crate) wall_ns: u64,
    pub(crate) mem_free_bytes: u64,
    pub(crate) vmstat: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PressureLine {
    pub(crate) size_bytes: u64,
    /// Whether the process got all of it; else the kernel killed it.
    pub(crate) survived: bool,
    pub(crate) wall_ns: u64,
    pub(crate) mem_free_bytes: u64,
    pub(crate) vmstat: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct InfoLine {
    pub(crate) uptime_ms: u64,
    pub(crate) meminfo_bytes: BTreeMap<String, u64>,
    pub(crate) meminfo_counts: BTreeMap<String, u64>,
    /// Since boot.
    pub(crate) vmstat: BTreeMap<String, u64>,
    pub(crate) balloon: Balloon,
    pub(crate) page_zeroed: PageZeroed,
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Serialize)]
pub(crate) struct ErrorLine {
    /// The word; null if the error is not of a step.
    pub(crate) text: Option<String>,
    /// One line for people.
    pub(crate) message: String,
}

/// The last line.
#[derive(Debug, Serialize)]
pub(crate) struct ExitLine {
    pub(crate) code: i32,
    /// Pages the kernel's verifier found not zero since boot; null without one.
    pub(crate) pgzero_bad: Option<u64>,
    /// Steps that ran, each round of a loop counted.
    pub(crate) steps: u64,
    /// How the machine stops; null if this is not a guest.
    pub(crate) action: Option<Action>,
}

/// How a machine stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    PowerOff,
    Reboot,
}
