//! The host's hugetlb pools, read from sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::results::PoolFacts;

/// Where the kernel shows its pools
/// (Documentation/ABI/testing/sysfs-kernel-mm-hugepages).
const SYSFS_HUGEPAGES: &str = "/sys/kernel/mm/hugepages";

/// All pools, smallest page first. Empty where the kernel has no hugetlb or
/// sysfs is not mounted.
#[must_use]
pub fn pools() -> Vec<PoolFacts> {
    Pools::host().all()
}

/// Free pages of the pool of `page_bytes` pages: pages in no use, of which some
/// may be promised to a mapping. `None` if there is no such pool.
#[must_use]
pub fn pool_free(page_bytes: u64) -> Option<u64> {
    Pools::host().pool(page_bytes).map(|pool| pool.free)
}

/// A directory of pools: the host's, or a fixture.
#[derive(Debug, Clone)]
pub struct Pools {
    root: PathBuf,
}

impl Pools {
    /// The host's own.
    #[must_use]
    pub fn host() -> Self {
        Self::at(SYSFS_HUGEPAGES)
    }

    /// Pools under another directory of the same shape.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// See [`pools`]. A directory that cannot be read in full is left out.
    #[must_use]
    pub fn all(&self) -> Vec<PoolFacts> {
        let Ok(entries) = fs::read_dir(&self.root) else {
            return Vec::new();
        };
        let mut pools: Vec<_> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| {
                let name = entry.file_name();
                let kib: u64 = name
                    .to_str()?
                    .strip_prefix("hugepages-")?
                    .strip_suffix("kB")?
                    .parse()
                    .ok()?;
                facts(&entry.path(), kib.checked_mul(1024)?)
            })
            .collect();
        pools.sort_by_key(|pool| pool.page_bytes);
        pools
    }

    /// The pool of `page_bytes` pages.
    #[must_use]
    pub fn pool(&self, page_bytes: u64) -> Option<PoolFacts> {
        facts(&self.directory(page_bytes), page_bytes)
    }

    /// The file whose number is the size of that pool, for people to write to.
    #[must_use]
    pub fn size_file(&self, page_bytes: u64) -> PathBuf {
        self.directory(page_bytes).join("nr_hugepages")
    }

    fn directory(&self, page_bytes: u64) -> PathBuf {
        self.root.join(format!("hugepages-{}kB", page_bytes >> 10))
    }
}

fn facts(directory: &Path, page_bytes: u64) -> Option<PoolFacts> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(directory.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    Some(PoolFacts {
        page_bytes,
        total: number("nr_hugepages")?,
        free: number("free_hugepages")?,
        reserved: number("resv_hugepages")?,
    })
}

/// Pages a new mapping can have: free and promised to nobody.
#[must_use]
pub fn available(pool: &PoolFacts) -> u64 {
    pool.free.saturating_sub(pool.reserved)
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::tempdir::TempDir;

    use super::*;

    fn write_pool(root: &Path, kib: u64, [total, free, reserved]: [&str; 3]) {
        let directory = root.join(format!("hugepages-{kib}kB"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("nr_hugepages"), total).unwrap();
        fs::write(directory.join("free_hugepages"), free).unwrap();
        fs::write(directory.join("resv_hugepages"), reserved).unwrap();
    }

    #[test]
    fn reads_every_pool_and_keeps_free_apart_from_available() {
        let root = TempDir::new().unwrap();
        write_pool(root.as_path(), 1_048_576, ["1\n", "0\n", "0\n"]);
        write_pool(root.as_path(), 2048, ["1000\n", "900\n", "200\n"]);
        fs::create_dir(root.as_path().join("unrelated")).unwrap();
        fs::create_dir(root.as_path().join("hugepages-64kB")).unwrap();

        let pools = Pools::at(root.as_path());
        let small = PoolFacts {
            page_bytes: 2 << 20,
            total: 1000,
            free: 900,
            reserved: 200,
        };
        let large = PoolFacts {
            page_bytes: 1 << 30,
            total: 1,
            free: 0,
            reserved: 0,
        };
        assert_eq!(
            pools.all(),
            [small, large],
            "a directory without numbers is left out"
        );
        assert_eq!(pools.pool(2 << 20), Some(small));
        assert_eq!(pools.pool(4 << 20), None);
        assert_eq!(available(&small), 700);
        assert_eq!(
            pools.size_file(2 << 20),
            root.as_path().join("hugepages-2048kB/nr_hugepages")
        );
    }

    #[test]
    fn more_reserved_than_free_leaves_nothing_available() {
        let pool = PoolFacts {
            page_bytes: 2 << 20,
            total: 4,
            free: 1,
            reserved: 3,
        };
        assert_eq!(available(&pool), 0);
    }

    #[test]
    fn a_host_without_hugetlb_has_no_pools() {
        let pools = Pools::at("/nonexistent");
        assert_eq!(pools.all(), []);
        assert_eq!(pools.pool(2 << 20), None);
    }
}
