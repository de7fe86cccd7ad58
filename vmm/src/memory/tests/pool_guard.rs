//! Huge pages for a test, taken from the host and given back.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use crate::memory::pools::{self, Pools};

/// Holds a pool that has enough available pages, alone: a lock on the pool's own
/// file keeps away other tests, of this process and of others. Dropping it puts
/// the pool back to its size.
pub(super) struct PoolGuard {
    page: u64,
    size_file: PathBuf,
    size_before: u64,
    /// The lock, held while it is open.
    _lock: File,
}

impl PoolGuard {
    /// A pool with exactly `pages` pages available.
    ///
    /// `None`, after saying why, where that cannot be had; with
    /// `AEROSTAT_REQUIRE=1` that is a failure.
    pub(super) fn with_available(page: u64, pages: u64) -> Option<Self> {
        let pools = Pools::host();
        let size_file = pools.size_file(page);
        let lock = match File::open(&size_file) {
            Ok(lock) => lock,
            Err(error) => return skip(&format!("{}: {error}", size_file.display())),
        };
        flock(&lock, libc::LOCK_EX);
        let before = pools.pool(page).unwrap();
        let in_use = before.total - pools::available(&before);
        let guard = Self {
            page,
            size_before: before.total,
            size_file,
            _lock: lock,
        };
        if let Err(error) = fs::write(&guard.size_file, (in_use + pages).to_string()) {
            return skip(&format!("{}: {error}", guard.size_file.display()));
        }
        if guard.available() < pages {
            // Long up, the host may have no free memory of that size in one piece.
            let _ = fs::write("/proc/sys/vm/drop_caches", "3");
            let _ = fs::write("/proc/sys/vm/compact_memory", "1");
            let _ = fs::write(&guard.size_file, (in_use + pages).to_string());
        }
        let got = guard.available();
        if got != pages {
            return skip(&format!(
                "the host has {got} of {pages} huge pages of {page} bytes"
            ));
        }
        Some(guard)
    }

    pub(super) fn free(&self) -> u64 {
        pools::pool_free(self.page).unwrap()
    }

    pub(super) fn reserved(&self) -> u64 {
        Pools::host().pool(self.page).unwrap().reserved
    }

    pub(super) fn available(&self) -> u64 {
        pools::available(&Pools::host().pool(self.page).unwrap())
    }
}

impl Drop for PoolGuard {
    fn drop(&mut self) {
        // Nothing to be done if it fails; the next guard works with what is there.
        let _ = fs::write(&self.size_file, self.size_before.to_string());
    }
}

/// Growing the pool of 1 GiB pages makes the kernel move small pages out of the
/// way, and a page on the move is not counted as resident. While this is held,
/// no test grows it. `None` where there is no such pool.
pub(super) fn keep_pages_still() -> Option<File> {
    let lock = File::open(Pools::host().size_file(1 << 30)).ok()?;
    flock(&lock, libc::LOCK_SH);
    Some(lock)
}

#[expect(unsafe_code, reason = "flock has no safe wrapper here")]
fn flock(file: &File, operation: libc::c_int) {
    // SAFETY: takes no memory.
    let result = unsafe { libc::flock(file.as_raw_fd(), operation) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Says why a test does not run; with `AEROSTAT_REQUIRE=1` it fails instead.
pub(super) fn skip<T>(reason: &str) -> Option<T> {
    assert_ne!(
        std::env::var("AEROSTAT_REQUIRE").as_deref(),
        Ok("1"),
        "required, but cannot run: {reason}"
    );
    eprintln!("SKIPPED: {reason}");
    None
}
