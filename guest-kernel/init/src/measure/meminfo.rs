//! `/proc/meminfo`.

use std::collections::BTreeMap;

use crate::failure::StepError;
use crate::kernel_file;

/// Everything in `/proc/meminfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Meminfo {
    /// The entries in kB, as bytes.
    pub(crate) bytes: BTreeMap<String, u64>,
    /// The entries without a unit: numbers of huge pages.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Meminfo {
    /// Reads it.
    pub(crate) fn now() -> Result<Self, StepError> {
        Ok(Self::parse(&kernel_file::read("/proc/meminfo")?))
    }

    fn parse(text: &str) -> Self {
        let mut meminfo = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            match value.trim().split_once(' ') {
                Some((number, "kB")) => {
                    if let Some(bytes) =
                        number.parse().ok().and_then(|kb: u64| kb.checked_mul(1024))
                    {
                        meminfo.bytes.insert(name.to_owned(), bytes);
                    }
                }
                _ => {
                    if let Ok(number) = value.trim().parse() {
                        meminfo.counts.insert(name.to_owned(), number);
                    }
                }
            }
        }
        meminfo
    }

    /// An entry that every kernel has, in bytes; 0 if this one has not.
    pub(crate) fn entry(&self, name: &str) -> u64 {
        self.bytes.get(name).copied().unwrap_or(0)
    }
}

/// Refuses to use more memory than is available: PID 1 cannot be killed by the
/// kernel's out-of-memory killer, so trying would be a kernel panic.
pub(crate) fn require_available(bytes: u64) -> Result<(), StepError> {
    // A page table of 4 KiB maps 2 MiB.
    let need = bytes.saturating_add(bytes / 512);
    let available = Meminfo::now()?.entry("MemAvailable");
    if need > available {
        return Err(StepError::TooLarge { need, available });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_become_bytes_and_counts_stay() {
        let meminfo = Meminfo::parse(
            "MemTotal:        2035008 kB\nHugePages_Total:       3\nHugetlb:  6144 kB\nodd\n",
        );
        assert_eq!(meminfo.entry("MemTotal"), 2_035_008 * 1024);
        assert_eq!(meminfo.entry("Hugetlb"), 6 << 20);
        assert_eq!(meminfo.counts.get("HugePages_Total"), Some(&3));
        assert_eq!(meminfo.entry("MemFree"), 0);
    }

    #[test]
    fn more_than_is_available_is_refused_with_the_numbers() {
        assert!(require_available(4096).is_ok());
        let error = require_available(1 << 50).unwrap_err();
        assert!(
            matches!(error, StepError::TooLarge { need, .. } if need == (1 << 50) + (1 << 41)),
            "{error}"
        );
    }
}
