//! Kernel settings without which a mapping does not get the pages it asks for.

use crate::failure::StepError;
use crate::kernel_file::{self, TemporarySetting, chosen};
use crate::steps::page_kind::{BASE_PAGE_BYTES, PMD_PAGE_BYTES, PageKind};
use crate::steps::table::Region;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Settings changed for a region; dropping this puts them back.
#[derive(Debug, Default)]
pub(crate) struct PageSettings(
    #[expect(dead_code, reason = "kept to be dropped")] Vec<TemporarySetting>,
);

impl PageSettings {
    /// Changes what is needed so that `region` can be served, and nothing else:
    /// already the write to a THP setting changes watermarks and threads.
    pub(crate) fn apply(region: Region) -> Result<Self, StepError> {
        let changed = match region.kind {
            PageKind::Small => Vec::new(),
            PageKind::Thp => allow_thp()?,
            PageKind::Mthp(bytes) => allow_only_mthp(bytes)?,
            PageKind::Hugetlb(page) => allow_surplus(page, region.bytes / page)?,
            PageKind::Shmem(bytes) => allow_only_shmem(bytes)?,
            PageKind::Memfd(bytes) => allow_memfd(bytes)?,
        };
        Ok(Self(changed))
    }
}

fn per_size(bytes: u64) -> String {
    format!("{THP}/hugepages-{}kB/enabled", bytes / 1024)
}

fn allow_thp() -> Result<Vec<TemporarySetting>, StepError> {
    let global = format!("{THP}/enabled");
    let Some(now) = kernel_file::read_if_any(&global) else {
        return Err(StepError::Missing("transparent huge pages".to_owned()));
    };
    let mut changed = Vec::new();
    // Kernels before 6.8 have only the global setting.
    let own = kernel_file::read_if_any(per_size(PMD_PAGE_BYTES));
    match own.as_deref().map(chosen) {
        Some("always" | "madvise") => {}
        Some("never") => changed.push(TemporarySetting::set(per_size(PMD_PAGE_BYTES), "madvise")?),
        _ if chosen(&now) == "never" => changed.push(TemporarySetting::set(global, "madvise")?),
        _ => {}
    }
    Ok(changed)
}

fn allow_only_mthp(bytes: u64) -> Result<Vec<TemporarySetting>, StepError> {
    if kernel_file::read_if_any(per_size(bytes)).is_none() {
        return Err(StepError::Missing(format!(
            "transparent huge pages of {} KiB",
            bytes / 1024
        )));
    }
    // A fault takes the largest page allowed, so the larger ones are forbidden.
    let mut changed = vec![TemporarySetting::set(per_size(bytes), "madvise")?];
    let mut larger = bytes * 2;
    while larger <= PMD_PAGE_BYTES {
        let now = kernel_file::read_if_any(per_size(larger));
        if now.is_some_and(|now| chosen(&now) != "never") {
            changed.push(TemporarySetting::set(per_size(larger), "never")?);
        }
        larger *= 2;
    }
    Ok(changed)
}

/// The directory of the pool of hugetlb pages of this size.
pub(crate) fn hugetlb_pool(page_bytes: u64) -> String {
    format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page_bytes / 1024)
}

/// Shared anonymous memory has a setting for each size.
fn allow_only_shmem(bytes: u64) -> Result<Vec<TemporarySetting>, StepError> {
    let path = |size: u64| format!("{THP}/hugepages-{}kB/shmem_enabled", size / 1024);
    if bytes > BASE_PAGE_BYTES && kernel_file::read_if_any(path(bytes)).is_none() {
        return Err(StepError::Missing(format!(
            "shared memory in folios of {} KiB",
            bytes / 1024
        )));
    }
    let mut changed = Vec::new();
    let mut size = 2 * BASE_PAGE_BYTES;
    while size <= PMD_PAGE_BYTES {
        let wanted = if size == bytes { "always" } else { "never" };
        let now = kernel_file::read_if_any(path(size));
        if now.is_some_and(|now| chosen(&now) != wanted) {
            changed.push(TemporarySetting::set(path(size), wanted)?);
        }
        size *= 2;
    }
    Ok(changed)
}

/// Files have one setting for all sizes; a mapping gets the largest.
fn allow_memfd(bytes: u64) -> Result<Vec<TemporarySetting>, StepError> {
    let path = format!("{THP}/shmem_enabled");
    let wanted = if bytes > BASE_PAGE_BYTES {
        "always"
    } else {
        "never"
    };
    match kernel_file::read_if_any(&path) {
        None if bytes > BASE_PAGE_BYTES => {
            Err(StepError::Missing("huge pages in shared memory".to_owned()))
        }
        Some(now) if chosen(&now) != wanted => Ok(vec![TemporarySetting::set(path, wanted)?]),
        _ => Ok(Vec::new()),
    }
}

fn allow_surplus(page_bytes: u64, pages: u64) -> Result<Vec<TemporarySetting>, StepError> {
    let pool = hugetlb_pool(page_bytes);
    let number = |name: &str| -> Option<u64> {
        kernel_file::read_if_any(format!("{pool}/{name}"))?
            .parse()
            .ok()
    };
    let (Some(free), Some(surplus)) = (number("free_hugepages"), number("nr_overcommit_hugepages"))
    else {
        return Err(StepError::Missing(format!(
            "hugetlb pages of {} KiB",
            page_bytes / 1024
        )));
    };
    if free >= pages || surplus >= pages {
        return Ok(Vec::new());
    }
    let path = format!("{pool}/nr_overcommit_hugepages");
    Ok(vec![TemporarySetting::set(path, &pages.to_string())?])
}
