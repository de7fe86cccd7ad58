//! Allocating memory, measured or only to be dirtied.

use rustix::time::ClockId;

use super::session::Outcome;
use crate::failure::StepError;
use crate::lines::{Line, PopulateLine, RegionLine, WriteCost};
use crate::measure::meminfo::{Meminfo, require_available};
use crate::measure::memory::Memory;
use crate::measure::page_settings::PageSettings;
use crate::measure::perf::{measure, now_ns};
use crate::measure::vmstat::Vmstat;
use crate::steps::page_kind::{BASE_PAGE_BYTES, PageKind};
use crate::steps::table::{FileState, Region};

/// How to allocate, and what to do then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// Write every page afterwards.
    pub(crate) write: bool,
    /// Read every byte afterwards.
    pub(crate) check: bool,
    /// Fault in each page at this offset within it, not the whole in one call.
    pub(crate) fault_at: Option<u64>,
    /// What the file behind shared memory holds before.
    pub(crate) file: FileState,
}

/// Allocates `region`, measured, and frees it.
pub(crate) fn populate(region: Region, how: How) -> Result<Outcome, StepError> {
    let _settings = prepare(region)?;
    let before = Vmstat::now()?;
    let (map_wall, map_cpu) = clocks();
    let mut memory = Memory::map(region, how.file)?;
    let (mapped_wall, mapped_cpu) = clocks();
    let (populated, cost) = measure(|| match how.fault_at {
        None => memory.populate(),
        Some(offset) => memory.populate_at(offset, region.kind.page_bytes()),
    });
    populated?;
    let vmstat = Vmstat::now()?.since(&before);
    let check = how.check.then(|| memory.scan()).transpose()?;
    let write = how.write.then(|| write_pages(&mut memory));
    let not_zero = check.is_some_and(|found| found.nonzero_bytes != 0);
    let line = Line::Populate(Box::new(PopulateLine {
        size_bytes: region.bytes,
        kind: region.kind.to_string(),
        page_bytes: region.kind.page_bytes(),
        pages: region.bytes / BASE_PAGE_BYTES,
        pages_cleared: vmstat.total("pgzero_done"),
        pages_skipped: vmstat.total("pgzero_skipped"),
        map_wall_ns: mapped_wall.saturating_sub(map_wall),
        map_cpu_ns: mapped_cpu.saturating_sub(map_cpu),
        cost,
        vmstat: vmstat.into_counters(),
        check,
        write,
    }));
    Ok(if not_zero {
        Outcome::NotZero(line)
    } else {
        Outcome::Report(line)
    })
}

/// Allocates `region` and fills it with non-zero bytes.
pub(crate) fn dirty(region: Region) -> Result<(RegionLine, Memory), StepError> {
    let _settings = prepare(region)?;
    let start = now_ns(ClockId::Monotonic);
    let mut memory = Memory::map(region, FileState::Hole)?;
    memory.populate()?;
    memory.dirty()?;
    let line = RegionLine {
        size_bytes: region.bytes,
        kind: region.kind.to_string(),
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
    };
    Ok((line, memory))
}

fn prepare(region: Region) -> Result<PageSettings, StepError> {
    // hugetlb pages are reserved by mmap, which fails where there are too few.
    if !matches!(region.kind, PageKind::Hugetlb(_)) {
        require_available(region.bytes)?;
    }
    PageSettings::apply(region)
}

fn clocks() -> (u64, u64) {
    (now_ns(ClockId::Monotonic), now_ns(ClockId::ThreadCPUTime))
}

fn write_pages(memory: &mut Memory) -> WriteCost {
    let (wall, cpu) = clocks();
    memory.write_pages();
    let (wall_end, cpu_end) = clocks();
    WriteCost {
        wall_ns: wall_end.saturating_sub(wall),
        cpu_ns: cpu_end.saturating_sub(cpu),
    }
}
