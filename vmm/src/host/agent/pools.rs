//! The host's hugetlb pools: sized for each job, and checked after it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::meminfo::Meminfo;
use crate::host::protocol::{Leak, Pool};
use crate::memory::pools;
use crate::results::PoolFacts;

/// How often growing is tried, with compaction before each time but the first.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(100);
/// How long the pages of an ended process may take to come back.
const RETURN_WAIT: Duration = Duration::from_secs(1);
/// What the host itself needs beside the guest.
const RESERVE: u64 = 128 << 20;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Why the host is too small for a guest.
#[derive(Debug, Error)]
pub(super) enum PoolError {
    #[error(
        "the emulated host got {got} of {wanted} pages of {} MiB out of its {} MiB of RAM; \
         --set host.memory={suggestion}G gives it more", page_bytes / MIB, memory / MIB
    )]
    TooSmall {
        got: u64,
        wanted: u64,
        page_bytes: u64,
        memory: u64,
        suggestion: u64,
    },
    #[error(
        "the emulated host has {} MiB of RAM available and guest RAM of {} MiB does not fit; \
         --set host.memory={suggestion}G gives it more", available / MIB, wanted / MIB
    )]
    NoRoom {
        available: u64,
        wanted: u64,
        suggestion: u64,
    },
    #[error("the emulated host's kernel has no pool of {} MiB pages", .0 / MIB)]
    NoSuchPage(u64),
    #[error(
        "the emulated host set {got} of {wanted} pages of {} MiB aside at boot, and its kernel cannot \
         make more later (it lacks CONFIG_CONTIG_ALLOC); --set host.memory={suggestion}G gives it more \
         room at boot", page_bytes / MIB
    )]
    NotAfterBoot {
        got: u64,
        wanted: u64,
        page_bytes: u64,
        suggestion: u64,
    },
    #[error("hugetlb pool: {0}: {1}")]
    Io(String, io::Error),
}

/// The pools, by the kernel's own files.
#[derive(Debug, Clone)]
pub(super) struct Pools {
    sysfs: pools::Pools,
    /// `/proc/sys/vm`.
    vm: PathBuf,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            sysfs: pools::Pools::host(),
            vm: "/proc/sys/vm".into(),
        }
    }
}

impl Pools {
    /// Pools elsewhere than the kernel has them.
    #[cfg(test)]
    pub(super) fn at(sysfs: PathBuf, vm: PathBuf) -> Self {
        Self {
            sysfs: pools::Pools::at(sysfs),
            vm,
        }
    }

    /// Gives the wanted pool exactly its pages and every other pool none.
    pub(super) fn set(&self, wanted: Option<Pool>) -> Result<(), PoolError> {
        for pool in self.sysfs.all() {
            if wanted.is_none_or(|wanted| wanted.page_bytes != pool.page_bytes) {
                self.resize(pool.page_bytes, 0)?;
            }
        }
        let Some(Pool { page_bytes, pages }) = wanted else {
            return Ok(());
        };
        let had = self.sysfs.pool(page_bytes).map_or(0, |pool| pool.total);
        Self::check_room(pages.saturating_sub(had).saturating_mul(page_bytes))?;
        let got = self.grow(page_bytes, pages)?;
        if got == pages {
            return Ok(());
        }
        let memory = Meminfo::read().total;
        let missing = pages.saturating_sub(got).saturating_mul(page_bytes);
        Err(PoolError::TooSmall {
            got,
            wanted: pages,
            page_bytes,
            memory,
            suggestion: suggestion(memory, missing),
        })
    }

    /// Fails if taking this much would drive the host itself out of memory.
    pub(super) fn check_room(wanted: u64) -> Result<(), PoolError> {
        let Meminfo { total, available } = Meminfo::read();
        let missing = wanted.saturating_add(RESERVE).saturating_sub(available);
        if wanted == 0 || missing == 0 {
            return Ok(());
        }
        Err(PoolError::NoRoom {
            available,
            wanted,
            suggestion: suggestion(total, missing),
        })
    }

    /// Pools that are not whole again although nobody runs.
    pub(super) fn leaks(&self) -> Vec<Leak> {
        let deadline = Instant::now() + RETURN_WAIT;
        loop {
            let mut pools = self.sysfs.all();
            pools.retain(|pool| pool.free != pool.total || pool.reserved != 0);
            if pools.is_empty() || Instant::now() > deadline {
                return pools
                    .into_iter()
                    .map(
                        |PoolFacts {
                             page_bytes,
                             total,
                             free,
                             reserved,
                         }| Leak {
                            page_bytes,
                            total,
                            free,
                            reserved,
                        },
                    )
                    .collect();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn grow(&self, page_bytes: u64, pages: u64) -> Result<u64, PoolError> {
        let total = || self.sysfs.pool(page_bytes).map_or(0, |pool| pool.total);
        self.resize(page_bytes, pages)?;
        for _ in 1..TRIES {
            if total() == pages {
                break;
            }
            // Free memory is in pieces: give caches back, move what can move.
            // Failing here shows as a pool that stays too small.
            let _ = fs::write(self.vm.join("drop_caches"), "3");
            let _ = fs::write(self.vm.join("compact_memory"), "1");
            thread::sleep(PAUSE);
            self.resize(page_bytes, pages)?;
        }
        Ok(total())
    }

    fn not_after_boot(&self, page_bytes: u64, wanted: u64) -> PoolError {
        let got = self.sysfs.pool(page_bytes).map_or(0, |pool| pool.total);
        let missing = wanted.saturating_sub(got).saturating_mul(page_bytes);
        let suggestion = suggestion(Meminfo::read().total, missing);
        PoolError::NotAfterBoot {
            got,
            wanted,
            page_bytes,
            suggestion,
        }
    }

    fn resize(&self, page_bytes: u64, pages: u64) -> Result<(), PoolError> {
        // Without CONFIG_CONTIG_ALLOC a kernel refuses even the size a pool of
        // gigantic pages has already.
        if self
            .sysfs
            .pool(page_bytes)
            .is_some_and(|pool| pool.total == pages)
        {
            return Ok(());
        }
        let file = self.sysfs.size_file(page_bytes);
        match fs::write(&file, pages.to_string()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(PoolError::NoSuchPage(page_bytes))
            }
            // Growing a pool of gigantic pages without the means for it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(self.not_after_boot(page_bytes, pages))
            }
            Err(error) => Err(PoolError::Io(file.display().to_string(), error)),
        }
    }
}

/// Host RAM in GiB with room for `missing` bytes more.
fn suggestion(memory: u64, missing: u64) -> u64 {
    memory
        .saturating_add(missing)
        .div_ceil(GIB)
        .saturating_add(1)
}

#[cfg(test)]
#[path = "pools_test.rs"]
mod tests;
