//! Switches of the kernel.

use std::path::Path;

use rustix::time::ClockId;

use crate::failure::StepError;
use crate::guest::facts::{FOLIO_ZERO, PAGE_ZEROED};
use crate::kernel_file;
use crate::lines::{DoneLine, SettingLine};
use crate::measure::meminfo::Meminfo;
use crate::measure::perf::now_ns;

/// Turns the verifier of pages claimed zero on or off.
pub(crate) fn verify(on: bool) -> Result<SettingLine, StepError> {
    parameter(PAGE_ZEROED, "verify", u32::from(on))
}

/// Makes the kernel ignore its knowledge of zeroed pages, or not.
pub(crate) fn off(off: bool) -> Result<SettingLine, StepError> {
    parameter(PAGE_ZEROED, "off", u32::from(off))
}

/// Chooses how the kernel clears huge pages.
pub(crate) fn zero_mode(mode: u32) -> Result<SettingLine, StepError> {
    parameter(FOLIO_ZERO, "mode", mode)
}

/// Chooses how many pages the kernel clears at once.
pub(crate) fn zero_batch(pages: u32) -> Result<SettingLine, StepError> {
    parameter(FOLIO_ZERO, "batch", pages)
}

fn parameter(module: &str, name: &str, value: u32) -> Result<SettingLine, StepError> {
    let path = Path::new(module).join(name);
    if !path.exists() {
        return Ok(SettingLine {
            supported: false,
            value: None,
        });
    }
    kernel_file::write(&path, &value.to_string())?;
    Ok(SettingLine {
        supported: true,
        value: kernel_file::read_if_any(&path),
    })
}

/// Drops the page cache and reclaimable slabs.
pub(crate) fn drop_caches() -> Result<DoneLine, StepError> {
    trigger("/proc/sys/vm/drop_caches", "3")
}

/// Compacts all zones.
pub(crate) fn compact() -> Result<DoneLine, StepError> {
    trigger("/proc/sys/vm/compact_memory", "1")
}

/// Writes to any file of the kernel.
pub(crate) fn write(path: &str, text: &str) -> Result<DoneLine, StepError> {
    let start = now_ns(ClockId::Monotonic);
    kernel_file::write(path, text)?;
    Ok(DoneLine {
        supported: true,
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
    })
}

fn trigger(path: &str, value: &str) -> Result<DoneLine, StepError> {
    let supported = Path::new(path).exists();
    let start = now_ns(ClockId::Monotonic);
    if supported {
        kernel_file::write(path, value)?;
    }
    Ok(DoneLine {
        supported,
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
    })
}
