//! The host's hugetlb pools: sized for each job, and checked after it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::meminfo::Meminfo;
use crate::host::protocol::{Leak, Pool};

/// How often growing is tried, with compaction before each time but the first.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(100);
/// How long the pages of an ended process may take to come back.
const RETURN_WAIT: Duration = Duration::from_secs(1);
/// What the host itself needs beside a guest on plain pages.
const PLAIN_RESERVE: u64 = 128 << 20;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Why the host is too small for a guest.
#[derive(Debug, Error)]
pub(super) enum PoolError {
    #[error(
        "the emulated host got {got} of {wanted} pages of {} MiB out of its {} MiB of RAM; \
         --set host.memory={suggestion}G gives it more", page_bytes / MIB, memory / MIB
    )]
    TooSmall { got: u64, wanted: u64, page_bytes: u64, memory: u64, suggestion: u64 },
    #[error(
        "the emulated host has {} MiB of RAM available and guest RAM of {} MiB does not fit; \
         --set host.memory={suggestion}G gives it more", available / MIB, wanted / MIB
    )]
    NoRoom { available: u64, wanted: u64, suggestion: u64 },
    #[error("the emulated host's kernel has no pool of {} MiB pages", .0 / MIB)]
    NoSuchPage(u64),
    #[error("hugetlb pool: {0}: {1}")]
    Io(String, io::Error),
}

/// The pools, by the kernel's own files.
#[derive(Debug, Clone)]
pub(super) struct Pools {
    /// `/sys/kernel/mm/hugepages`.
    pub(super) sysfs: PathBuf,
    /// `/proc/sys/vm`.
    pub(super) vm: PathBuf,
}

impl Default for Pools {
    fn default() -> Self {
        Self { sysfs: "/sys/kernel/mm/hugepages".into(), vm: "/proc/sys/vm".into() }
    }
}

impl Pools {
    /// Gives the wanted pool exactly its pages and every other pool none.
    pub(super) fn set(&self, wanted: Option<Pool>) -> Result<(), PoolError> {
        let all = self.all();
        for (page_bytes, pool) in &all {
            if wanted.is_none_or(|wanted| wanted.page_bytes != *page_bytes) {
                write(&pool.join("nr_hugepages"), 0)?;
            }
        }
        let Some(wanted) = wanted else {
            return Ok(());
        };
        let Some((_, pool)) = all.iter().find(|(page_bytes, _)| *page_bytes == wanted.page_bytes) else {
            return Err(PoolError::NoSuchPage(wanted.page_bytes));
        };
        let got = self.grow(&pool.join("nr_hugepages"), wanted.pages)?;
        if got == wanted.pages {
            return Ok(());
        }
        let memory = Meminfo::read().total;
        let missing = wanted.pages.saturating_sub(got).saturating_mul(wanted.page_bytes);
        Err(PoolError::TooSmall {
            got,
            wanted: wanted.pages,
            page_bytes: wanted.page_bytes,
            memory,
            suggestion: suggestion(memory, missing),
        })
    }

    /// Fails if a guest on plain pages would drive the host out of memory.
    pub(super) fn check_room(wanted: u64) -> Result<(), PoolError> {
        let Meminfo { total, available } = Meminfo::read();
        let missing = wanted.saturating_add(PLAIN_RESERVE).saturating_sub(available);
        if wanted == 0 || missing == 0 {
            return Ok(());
        }
        Err(PoolError::NoRoom { available, wanted, suggestion: suggestion(total, missing) })
    }

    /// Pools that are not whole again although nobody runs.
    pub(super) fn leaks(&self) -> Vec<Leak> {
        let deadline = Instant::now() + RETURN_WAIT;
        loop {
            let leaks: Vec<Leak> = self
                .all()
                .into_iter()
                .map(|(page_bytes, pool)| Leak {
                    page_bytes,
                    total: read(&pool.join("nr_hugepages")),
                    free: read(&pool.join("free_hugepages")),
                    reserved: read(&pool.join("resv_hugepages")),
                })
                .filter(|pool| pool.free != pool.total || pool.reserved != 0)
                .collect();
            if leaks.is_empty() || Instant::now() > deadline {
                return leaks;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn grow(&self, pool: &PathBuf, pages: u64) -> Result<u64, PoolError> {
        write(pool, pages)?;
        for _ in 1..TRIES {
            if read(pool) == pages {
                break;
            }
            // Free memory is in pieces: give caches back, move what can move.
            // Failing here shows as a pool that stays too small.
            let _ = fs::write(self.vm.join("drop_caches"), "3");
            let _ = fs::write(self.vm.join("compact_memory"), "1");
            thread::sleep(PAUSE);
            write(pool, pages)?;
        }
        Ok(read(pool))
    }

    /// Page size in bytes and directory of each pool.
    fn all(&self) -> Vec<(u64, PathBuf)> {
        let entries = fs::read_dir(&self.sysfs).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name();
                let kib: u64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
                Some((kib.checked_mul(1024)?, entry.path()))
            })
            .collect();
        all.sort();
        all
    }
}

/// Host RAM in GiB with room for `missing` bytes more.
fn suggestion(memory: u64, missing: u64) -> u64 {
    memory.saturating_add(missing).div_ceil(GIB).saturating_add(1)
}

fn read(file: &PathBuf) -> u64 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn write(file: &PathBuf, value: u64) -> Result<(), PoolError> {
    fs::write(file, value.to_string()).map_err(|error| PoolError::Io(file.display().to_string(), error))
}

#[cfg(test)]
#[path = "pools_test.rs"]
mod tests;
