//! How much memory the host has, from /proc/meminfo.

use std::fs;

/// Bytes of RAM, and of those the bytes that a program could get now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostTotal {
    /// `MemTotal`.
    pub(super) total: u64,
    /// `MemAvailable`.
    pub(super) available: u64,
}

impl HostTotal {
    /// Reads it; `None` where /proc is not mounted.
    pub(super) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn parse(meminfo: &str) -> Option<Self> {
        let field = |name: &str| -> Option<u64> {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        Some(Self {
            total: field("MemTotal:")?,
            available: field("MemAvailable:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_two_fields_in_bytes() {
        let text = "MemTotal:       24683532 kB\nMemFree: 1 kB\nMemAvailable:   24344576 kB\nSwapTotal: 0 kB\n";
        assert_eq!(
            HostTotal::parse(text),
            Some(HostTotal {
                total: 24_683_532 << 10,
                available: 24_344_576 << 10
            })
        );
        assert_eq!(HostTotal::parse("MemTotal: x kB\n"), None);
        assert_eq!(HostTotal::parse(""), None);
    }
}
