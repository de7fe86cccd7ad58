//! Huge pages for a measurement, given back at its end.

use std::fs::{self, File};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use vmm::memory::pools::{self, Pools};

/// Holds a pool of 2 MiB pages with enough of them, alone.
pub(crate) struct Pool {
    size_file: PathBuf,
    size_before: u64,
    /// A lock on the pool, which tests take, too.
    _lock: File,
}

impl Pool {
    /// A pool with `pages` available, or why there is none.
    pub(crate) fn with_available(pages: u64) -> Result<Self, String> {
        let pools = Pools::host();
        let size_file = pools.size_file(2 << 20);
        let name = size_file.display().to_string();
        let lock = File::open(&size_file).map_err(|error| format!("{name}: {error}"))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| format!("{name}: {error}"))?;
        let before = pools.pool(2 << 20).ok_or("no pool of 2 MiB pages")?;
        let wanted = before.total - pools::available(&before) + pages;
        let pool = Self {
            size_file,
            size_before: before.total,
            _lock: lock,
        };
        if wanted > before.total {
            fs::write(&pool.size_file, wanted.to_string())
                .map_err(|error| format!("{name} cannot be set to {wanted}: {error}"))?;
        }
        let available = pools
            .pool(2 << 20)
            .map_or(0, |pool| pools::available(&pool));
        if available < pages {
            return Err(format!("{available} of {pages} huge pages to be had"));
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The next one works with what is there.
        let _ = fs::write(&self.size_file, self.size_before.to_string());
    }
}
