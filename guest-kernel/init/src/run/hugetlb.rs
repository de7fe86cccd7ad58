//! hugetlb pages: the size of their pool, and files of them.

use rustix::time::ClockId;

use super::session::Outcome;
use crate::failure::StepError;
use crate::kernel_file;
use crate::lines::{FallocateLine, Line, PoolLine};
use crate::measure::hugetlb_file::HugetlbFile;
use crate::measure::meminfo::Meminfo;
use crate::measure::page_settings::{PageSettings, hugetlb_pool};
use crate::measure::perf::{measure, now_ns};
use crate::measure::vmstat::Vmstat;
use crate::steps::page_kind::{BASE_PAGE_BYTES, PageKind};
use crate::steps::table::Region;

/// Sets the size of the pool. The kernel takes what it gets; having fewer than
/// `pages` is no failure.
pub(crate) fn pool(page_bytes: u64, pages: u64) -> Result<PoolLine, StepError> {
    let directory = hugetlb_pool(page_bytes);
    let number = |name: &str| -> Option<u64> {
        kernel_file::read_if_any(format!("{directory}/{name}"))?
            .parse()
            .ok()
    };
    if number("nr_hugepages").is_none() {
        return Err(StepError::Missing(format!(
            "hugetlb pages of {} KiB",
            page_bytes / 1024
        )));
    }
    let before = Vmstat::now()?;
    let start = now_ns(ClockId::Monotonic);
    kernel_file::write(format!("{directory}/nr_hugepages"), &pages.to_string())?;
    Ok(PoolLine {
        kind: PageKind::Hugetlb(page_bytes).to_string(),
        page_bytes,
        wanted: pages,
        total: number("nr_hugepages"),
        free: number("free_hugepages"),
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
        vmstat: Vmstat::now()?.since(&before).into_counters(),
    })
}

/// Allocates the pages of a file with one measured call, and frees them.
pub(crate) fn allocate_file(
    bytes: u64,
    page_bytes: u64,
    check: bool,
) -> Result<Outcome, StepError> {
    let kind = PageKind::Hugetlb(page_bytes);
    let _settings = PageSettings::apply(Region { bytes, kind })?;
    let file = HugetlbFile::create(bytes, page_bytes)?;
    let before = Vmstat::now()?;
    let (allocated, cost) = measure(|| file.allocate());
    allocated?;
    let vmstat = Vmstat::now()?.since(&before);
    let check = check.then(|| file.scan()).transpose()?;
    let not_zero = check.is_some_and(|found| found.nonzero_bytes != 0);
    let line = Line::Fallocate(Box::new(FallocateLine {
        size_bytes: bytes,
        kind: kind.to_string(),
        page_bytes,
        pages: bytes / BASE_PAGE_BYTES,
        pages_cleared: vmstat.total("pgzero_done"),
        pages_skipped: vmstat.total("pgzero_skipped"),
        cost,
        vmstat: vmstat.into_counters(),
        check,
    }));
    Ok(if not_zero {
        Outcome::NotZero(line)
    } else {
        Outcome::Report(line)
    })
}
