//! The memory of the host.

use std::fs;

/// In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Meminfo {
    /// All of it.
    pub(super) total: u64,
    /// What a program could get without anybody losing anything.
    pub(super) available: u64,
}

impl Meminfo {
    pub(super) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024)
        };
        Self {
            total: value("MemTotal").unwrap_or_default(),
            available: value("MemAvailable").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_is_read() {
        let text =
            "MemTotal:        2023308 kB\nMemFree:          1 kB\nMemAvailable:    1900000 kB\n";
        let expected = Meminfo {
            total: 2_023_308 << 10,
            available: 1_900_000 << 10,
        };
        assert_eq!(Meminfo::parse(text), expected);
        assert_eq!(Meminfo::parse("MemTotal: many"), Meminfo::default());
        assert!(Meminfo::read().total > 0);
    }
}
