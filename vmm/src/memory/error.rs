//! Why guest RAM cannot be had, in one line that names key, value and fix.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::byte_size::ByteSize;
use super::pools::{self, Pools};
use crate::outcome::FailureClass;
use crate::results::PoolFacts;

/// Why guest RAM could not be created or populated.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The size is 0, or not a whole number of backing pages.
    #[error("memory.size = {size} is not a multiple of the {page} page; nearest valid: {nearest}")]
    NotWholePages {
        /// As configured.
        size: ByteSize,
        /// The backing page.
        page: ByteSize,
        /// Valid sizes on both sides, for people.
        nearest: String,
    },
    /// hugetlb has no such page.
    #[error("memory.page = {page} is not a hugetlb page; valid: 2M, 1G")]
    NotHugetlbPage {
        /// As configured.
        page: ByteSize,
    },
    /// The kernel or CPU has no pool of that page.
    #[error("memory.page = {page}: this host has no hugetlb pool of {page} pages; pools: {pools}")]
    NoPool {
        /// As configured.
        page: ByteSize,
        /// The page sizes there are.
        pools: String,
    },
    /// The pool cannot hold the guest.
    #[error(
        "memory.size = {size} needs {need} huge pages of {page}; pool: {free} free, \
         {reserved} reserved, {available} available; fix: echo {fix_total} > {}",
        .fix_file.display()
    )]
    PoolTooSmall {
        /// As configured.
        size: ByteSize,
        /// The backing page.
        page: ByteSize,
        /// Pages the guest needs.
        need: u64,
        /// Pages in no use.
        free: u64,
        /// Of those, promised to other mappings.
        reserved: u64,
        /// `free - reserved`.
        available: u64,
        /// Pool size that would do.
        fix_total: u64,
        /// Where to write it.
        fix_file: PathBuf,
    },
    /// The guest is larger than the host.
    #[error(
        "memory.size = {size} is more than the host's RAM: have {} MiB, {} MiB of it available; \
         fix: a smaller memory.size, or memory.overcommit = true",
        .total >> 20, .available >> 20
    )]
    LargerThanHost {
        /// As configured.
        size: ByteSize,
        /// The host's RAM in bytes.
        total: u64,
        /// What a program could get now, in bytes.
        available: u64,
    },
    /// The kernel refused for another reason.
    #[error("memory.size = {size}: {call} of {len} failed: {source}{hint}")]
    Refused {
        /// As configured.
        size: ByteSize,
        /// The system call.
        call: &'static str,
        /// Length of the part it was for.
        len: ByteSize,
        /// A possible reason, or nothing.
        hint: String,
        /// The error.
        source: io::Error,
    },
    /// RAM could not be populated.
    #[error("populating guest RAM stopped at {done} of {wanted}: {reason}")]
    NotPopulated {
        /// Bytes populated.
        done: ByteSize,
        /// Bytes wanted.
        wanted: ByteSize,
        /// Why, with the fix where one is known.
        reason: String,
    },
}

impl MemoryError {
    /// Whose failure it is, which selects the exit code.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::NotWholePages { .. } | Self::NotHugetlbPage { .. } => FailureClass::Usage,
            Self::NoPool { .. }
            | Self::PoolTooSmall { .. }
            | Self::LargerThanHost { .. }
            | Self::Refused { .. }
            | Self::NotPopulated { .. } => FailureClass::Memory,
        }
    }

    pub(super) fn not_whole_pages(size: u64, page: u64) -> Self {
        let below = size - size % page;
        let nearest: Vec<_> = [(below > 0).then_some(below), below.checked_add(page)]
            .into_iter()
            .flatten()
            .map(|size| {
                // In the unit of the page, so that the neighbours read alike.
                if page >= 1 << 30 {
                    format!("{}G", size >> 30)
                } else if page >= 1 << 20 {
                    format!("{}M", size >> 20)
                } else {
                    format!("{}K", size >> 10)
                }
            })
            .collect();
        Self::NotWholePages {
            size: ByteSize(size),
            page: ByteSize(page),
            nearest: nearest.join(", "),
        }
    }

    /// Explains why huge pages for `size` bytes were refused with `source`.
    /// Called when nothing of the guest is mapped any more, so that the numbers
    /// do not count the guest itself.
    pub(super) fn huge_pages_refused(
        pools: &Pools,
        size: u64,
        page: u64,
        call: &'static str,
        source: io::Error,
    ) -> Self {
        let need = size / page;
        let Some(pool) = pools.pool(page) else {
            let sizes: Vec<_> = pools
                .all()
                .iter()
                .map(|pool| ByteSize(pool.page_bytes).to_string())
                .collect();
            return Self::NoPool {
                page: ByteSize(page),
                pools: if sizes.is_empty() {
                    "none".to_owned()
                } else {
                    sizes.join(", ")
                },
            };
        };
        if need > pools::available(&pool) {
            Self::pool_too_small(pools, size, &pool)
        } else {
            Self::Refused {
                size: ByteSize(size),
                call,
                len: ByteSize(size),
                source,
                hint: format!(
                    "; the pool has {} huge pages of {} available, {need} needed: \
                     a hugetlb cgroup limit, a memory policy, or taken meanwhile",
                    pools::available(&pool),
                    ByteSize(page)
                ),
            }
        }
    }

    fn pool_too_small(pools: &Pools, size: u64, pool: &PoolFacts) -> Self {
        let need = size / pool.page_bytes;
        let available = pools::available(pool);
        Self::PoolTooSmall {
            size: ByteSize(size),
            page: ByteSize(pool.page_bytes),
            need,
            free: pool.free,
            reserved: pool.reserved,
            available,
            fix_total: pool.total + need.saturating_sub(available),
            fix_file: pools.size_file(pool.page_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vmm_sys_util::tempdir::TempDir;

    use super::*;

    #[test]
    fn a_size_between_pages_names_its_neighbours() {
        for (size, page, text) in [
            (
                1025 << 20,
                2 << 20,
                "memory.size = 1025M is not a multiple of the 2M page; nearest valid: 1024M, 1026M",
            ),
            (
                1 << 20,
                2 << 20,
                "memory.size = 1M is not a multiple of the 2M page; nearest valid: 2M",
            ),
            (
                0,
                2 << 20,
                "memory.size = 0 is not a multiple of the 2M page; nearest valid: 2M",
            ),
            (
                1536 << 20,
                1 << 30,
                "memory.size = 1536M is not a multiple of the 1G page; nearest valid: 1G, 2G",
            ),
            (
                4097,
                4096,
                "memory.size = 4097 is not a multiple of the 4K page; nearest valid: 4K, 8K",
            ),
            (
                u64::MAX,
                1 << 30,
                "memory.size = 18446744073709551615 is not a multiple of the 1G page; nearest valid: 17179869183G",
            ),
        ] {
            let error = MemoryError::not_whole_pages(size, page);
            assert_eq!(error.to_string(), text);
            assert_eq!(error.class(), FailureClass::Usage);
        }
    }

    #[test]
    fn a_pool_too_small_names_need_numbers_and_the_command() {
        let root = TempDir::new().unwrap();
        let directory = root.as_path().join("hugepages-2048kB");
        fs::create_dir(&directory).unwrap();
        for (name, number) in [
            ("nr_hugepages", "1100"),
            ("free_hugepages", "1000"),
            ("resv_hugepages", "200"),
        ] {
            fs::write(directory.join(name), number).unwrap();
        }
        let pools = Pools::at(root.as_path());
        let refused = |size, page| {
            let source = io::Error::from_raw_os_error(libc::ENOMEM);
            MemoryError::huge_pages_refused(&pools, size, page, "mmap", source)
        };

        let error = refused(2 << 30, 2 << 20);
        assert_eq!(
            error.to_string(),
            format!(
                "memory.size = 2G needs 1024 huge pages of 2M; pool: 1000 free, 200 reserved, \
                 800 available; fix: echo 1324 > {}/nr_hugepages",
                directory.display()
            )
        );
        assert_eq!(error.class(), FailureClass::Memory);

        assert_eq!(
            refused(1 << 30, 1 << 30).to_string(),
            "memory.page = 1G: this host has no hugetlb pool of 1G pages; pools: 2M"
        );

        let enough = refused(512 << 20, 2 << 20).to_string();
        assert!(
            enough.contains("800 huge pages of 2M available, 256 needed")
                && enough.contains("cgroup"),
            "where the pool is large enough it says so: {enough}"
        );
    }
}
