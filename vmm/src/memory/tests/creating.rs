//! A guest that does not fit fails at once and leaves nothing behind; one that
//! fits is mapped as asked.

use std::fs;
use std::time::{Duration, Instant};

use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use super::guest::*;
use super::pool_guard::PoolGuard;
use crate::config::{self, PageSize};
use crate::memory::{GuestRam, MemoryError};
use crate::outcome::FailureClass;

fn refusal(config: &config::Memory) -> MemoryError {
    match GuestRam::create(config) {
        Ok(_) => panic!("{config:?} was created"),
        Err(error) => error,
    }
}

#[test]
fn a_pool_too_small_is_refused_at_once_with_numbers_and_the_fix() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let Some(pool) = PoolGuard::with_available(2 * MIB, 3) else {
            return;
        };
        let started = Instant::now();
        let error = refusal(&backed.config(GIB));
        assert!(started.elapsed() < Duration::from_secs(1), "{backed:?}");
        assert_eq!(error.class(), FailureClass::Memory);
        let text = error.to_string();
        let MemoryError::PoolTooSmall {
            need: 512,
            available: 3,
            fix_total,
            ..
        } = error
        else {
            panic!("{backed:?}: {text}");
        };
        assert!(
            text.starts_with("memory.size = 1G needs 512 huge pages of 2M; pool: ")
                && text.ends_with(&format!(
                    " 3 available; fix: echo {fix_total} > \
                     /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
                )),
            "{text}"
        );
        assert_eq!(pool.available(), 3, "{backed:?}: nothing is left behind");
    }
}

/// The numbers must not count the first region of the guest that failed.
#[test]
fn the_second_region_can_be_the_one_that_does_not_fit() {
    let pages = 3 * 512 + 1;
    let Some(pool) = PoolGuard::with_available(2 * MIB, pages) else {
        return;
    };
    let error = refusal(&HUGETLB_2M.config(3 * GIB + 4 * MIB));
    let MemoryError::PoolTooSmall {
        need, available, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((need, available), (pages + 1, pages));
    assert_eq!(pool.available(), pages);
    GuestRam::create(&HUGETLB_2M.config(3 * GIB + 2 * MIB)).unwrap();
}

#[test]
fn two_guests_that_do_not_fit_together_fail_at_the_second() {
    let Some(_pool) = PoolGuard::with_available(2 * MIB, 5) else {
        return;
    };
    let first = GuestRam::create(&HUGETLB_2M.config(6 * MIB)).unwrap();
    let error = refusal(&HUGETLB_2M.config(6 * MIB));
    assert!(
        matches!(
            error,
            MemoryError::PoolTooSmall {
                need: 3,
                available: 2,
                ..
            }
        ),
        "{error}"
    );
    dirty(&first, 0, 6 * MIB);
    assert_only_zero(&first, 0..6 * MIB, 0..0, "the first runs on");
}

#[test]
fn overcommit_fails_only_where_there_is_no_page_at_all() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let config = config::Memory {
            overcommit: true,
            ..backed.config(GIB)
        };
        let Some(pool) = PoolGuard::with_available(2 * MIB, 1) else {
            return;
        };
        let ram = GuestRam::create(&config).unwrap();
        assert_eq!((pool.free(), pool.reserved()), (1, 0), "{backed:?}");
        drop((ram, pool));

        let Some(_pool) = PoolGuard::with_available(2 * MIB, 0) else {
            return;
        };
        let text = refusal(&config).to_string();
        assert!(
            text.contains("the pool of 2M pages is exhausted: "),
            "{text}"
        );
    }
}

#[test]
fn wrong_sizes_and_pages_are_usage_errors() {
    for (backed, size, text) in [
        (HUGETLB_2M, 1025 * MIB, "nearest valid: 1024M, 1026M"),
        (HUGETLB_1G, 1536 * MIB, "nearest valid: 1G, 2G"),
        (HUGETLB_2M, 0, "nearest valid: 2M"),
        (ALL_BUT_1G[4], MIB + 1, "nearest valid: 1024K, 1028K"),
        (
            Backed {
                page: PageSize::Size4K,
                ..HUGETLB_2M
            },
            MIB,
            "memory.page = 4K is not a hugetlb page; valid: 2M, 1G",
        ),
    ] {
        let error = refusal(&backed.config(size));
        assert!(error.to_string().ends_with(text), "{error}");
        assert_eq!(error.class(), FailureClass::Usage);
    }
}

#[test]
fn more_memory_than_the_host_has_is_refused() {
    let config = ALL_BUT_1G[2].config(1 << 46);
    let error = refusal(&config);
    assert_eq!(error.class(), FailureClass::Memory);
    assert!(
        error
            .to_string()
            .starts_with("memory.size = 65536G is more than the host's RAM: have "),
        "{error}"
    );
    let error = refusal(&config::Memory {
        overcommit: true,
        ..ALL_BUT_1G[2].config(u64::MAX - 4095)
    });
    assert_eq!(error.class(), FailureClass::Memory, "{error}");
}

/// The flags of the mapping that holds `address`, from /proc/self/smaps, and the
/// page size of its pages in KiB.
fn smaps(address: u64) -> (String, String) {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut page = String::new();
    for line in text.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let bounds = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16));
            if let (Ok(start), Ok(end)) = bounds {
                inside = (start..end).contains(&address);
            }
        }
        if inside && let Some(size) = line.strip_prefix("KernelPageSize:") {
            page = size.trim().to_owned();
        }
        if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return (flags.to_owned() + " ", page);
        }
    }
    panic!("{address:#x} is not mapped");
}

#[test]
fn the_mapping_is_what_was_asked_for() {
    for backed in ALL_BUT_1G {
        let Some(_held) = backed.hold(4 * MIB) else {
            return;
        };
        let ram = GuestRam::create(&backed.config(4 * MIB)).unwrap();
        let region = ram.guest_memory().iter().next().unwrap();
        let (flags, page) = smaps(region.as_ptr() as u64);
        let has = |flag: &str| flags.contains(&format!(" {flag} "));
        assert_eq!(has("ht"), backed.is_hugetlb(), "{backed:?}:{flags}");
        assert_eq!(has("sh"), backed.shared, "{backed:?}:{flags}");
        assert_eq!(
            has("hg"),
            backed.kind == config::Backing::Thp,
            "{backed:?}:{flags}"
        );
        assert_eq!(
            has("nh"),
            backed.kind == config::Backing::Pages,
            "{backed:?}:{flags}"
        );
        assert!(has("dd"), "{backed:?}: not in core dumps:{flags}");
        assert!(has("dc"), "{backed:?}: not inherited:{flags}");
        assert_eq!(
            page,
            format!("{} kB", ram.page_bytes() / 1024),
            "{backed:?}"
        );
        assert_eq!(region.len(), 4 * MIB);
        assert_eq!(region.file_offset().is_some(), backed.shared);
    }
}

/// A length that is not a multiple of a huge page is one that the kernel itself
/// does not align.
#[test]
fn transparent_huge_pages_are_aligned_in_host_and_guest_alike() {
    for backed in [ALL_BUT_1G[2], ALL_BUT_1G[3]] {
        let ram: Vec<_> = (1..=4)
            .map(|pages| GuestRam::create(&backed.config(6 * MIB + pages * 4096)).unwrap())
            .collect();
        for ram in &ram {
            for region in ram.guest_memory().iter() {
                assert_eq!(region.as_ptr() as u64 % (2 * MIB), 0, "{backed:?}");
            }
        }
    }
}
