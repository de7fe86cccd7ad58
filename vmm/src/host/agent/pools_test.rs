use super::*;

const SIZE_2M: u64 = 2 << 20;
const SIZE_1G: u64 = 1 << 30;

/// The kernel's files, without a kernel behind them.
struct Files {
    root: PathBuf,
    pools: Pools,
}

impl Files {
    fn new(name: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("aerostat-pools-{}-{name}", std::process::id()));
        let vm = root.join("vm");
        for size in ["2048kB", "1048576kB"] {
            let pool = root.join("hugepages").join(format!("hugepages-{size}"));
            fs::create_dir_all(&pool).unwrap();
            for file in ["nr_hugepages", "free_hugepages", "resv_hugepages"] {
                fs::write(pool.join(file), "0\n").unwrap();
            }
        }
        fs::create_dir_all(&vm).unwrap();
        let pools = Pools::at(root.join("hugepages"), vm);
        Self { root, pools }
    }

    fn file(&self, size: &str, name: &str) -> PathBuf {
        self.root
            .join("hugepages")
            .join(format!("hugepages-{size}"))
            .join(name)
    }

    fn total(&self, size: &str) -> u64 {
        fs::read_to_string(self.file(size, "nr_hugepages"))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    fn sizes(&self) -> (u64, u64) {
        (self.total("2048kB"), self.total("1048576kB"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn a_job_gets_exactly_its_pool_and_the_other_pool_is_emptied() {
    let files = Files::new("exact");
    let steps = [
        (
            Some(Pool {
                page_bytes: SIZE_2M,
                pages: 256,
            }),
            (256, 0),
        ),
        (
            Some(Pool {
                page_bytes: SIZE_1G,
                pages: 1,
            }),
            (0, 1),
        ),
        (
            Some(Pool {
                page_bytes: SIZE_2M,
                pages: 100,
            }),
            (100, 0),
        ),
        (None, (0, 0)),
    ];
    for (wanted, expected) in steps {
        files.pools.set(wanted).unwrap();
        assert_eq!(files.sizes(), expected);
    }
    assert!(
        !files.root.join("vm").join("compact_memory").exists(),
        "nothing was short, nothing is compacted"
    );
}

#[test]
fn a_page_size_the_kernel_lacks_is_named() {
    let files = Files::new("lacking");
    let error = files
        .pools
        .set(Some(Pool {
            page_bytes: 16 << 20,
            pages: 1,
        }))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the emulated host's kernel has no pool of 16 MiB pages"
    );
}

#[test]
fn a_pool_that_stays_short_is_an_error_with_the_numbers_and_the_fix() {
    let files = Files::new("short");
    // What is written here is never read back: a kernel that grants nothing.
    let pool = files.file("1048576kB", "nr_hugepages");
    fs::remove_file(&pool).unwrap();
    std::os::unix::fs::symlink("/dev/null", &pool).unwrap();
    let error = files
        .pools
        .set(Some(Pool {
            page_bytes: SIZE_1G,
            pages: 2,
        }))
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("the emulated host got 0 of 2 pages of 1024 MiB"),
        "{message}"
    );
    assert!(message.contains("--set host.memory="), "{message}");
    assert_eq!(
        fs::read_to_string(files.root.join("vm").join("compact_memory")).unwrap(),
        "1"
    );
    assert_eq!(
        fs::read_to_string(files.root.join("vm").join("drop_caches")).unwrap(),
        "3"
    );
}

#[test]
fn pages_that_do_not_come_back_are_a_leak() {
    let files = Files::new("leak");
    assert_eq!(files.pools.leaks(), []);
    fs::write(files.file("2048kB", "nr_hugepages"), "10").unwrap();
    fs::write(files.file("2048kB", "free_hugepages"), "7").unwrap();
    fs::write(files.file("2048kB", "resv_hugepages"), "1").unwrap();
    assert_eq!(
        files.pools.leaks(),
        [Leak {
            page_bytes: SIZE_2M,
            total: 10,
            free: 7,
            reserved: 1
        }]
    );
}

#[test]
fn a_plain_guest_has_to_fit() {
    assert!(Pools::check_room(0).is_ok());
    assert!(Pools::check_room(1 << 20).is_ok());
    let message = Pools::check_room(1 << 50).unwrap_err().to_string();
    assert!(
        message.contains("guest RAM of 1073741824 MiB does not fit"),
        "{message}"
    );
}
