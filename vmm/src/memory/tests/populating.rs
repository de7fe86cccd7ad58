//! Prefault populates everything, or says how far it came.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::guest::*;
use super::pool_guard::PoolGuard;
use crate::config;
use crate::memory::GuestRam;
use crate::memory::MemoryError;

#[test]
fn all_of_it_is_resident_and_zero_afterwards() {
    for backed in ALL_BUT_1G {
        for (threads, expected) in [(Some(1), 1), (Some(2), 2), (Some(0), 1), (Some(7), 3)] {
            let size = 130 * MIB;
            let Some(held) = backed.hold(size) else {
                return;
            };
            let pool = &held.pool;
            let ram = GuestRam::create(&backed.config(size)).unwrap();
            let prefault = ram.prefault(threads, &|| false).unwrap();
            assert_eq!(ram.resident_bytes(), size, "{backed:?}");
            assert_eq!(prefault.bytes, size);
            assert_eq!(
                prefault.threads, expected,
                "as asked, at least one, at most one per 64 MiB"
            );
            let gib = 130.0 / 1024.0;
            let rate = gib / (prefault.ms / 1e3);
            assert!(prefault.ms > 0.0);
            assert!(
                (prefault.gib_per_s / rate - 1.0).abs() < 1e-6,
                "{prefault:?}"
            );
            if let Some(pool) = pool {
                assert_eq!(pool.free(), 0);
            }
            assert_only_zero(&ram, 64 * MIB..66 * MIB, 0..2 * MIB, "populated");
        }
    }
}

#[test]
fn what_the_guest_has_written_survives() {
    let Some(_held) = HUGETLB_2M.hold(8 * MIB) else {
        return;
    };
    let ram = GuestRam::create(&HUGETLB_2M.config(8 * MIB)).unwrap();
    dirty(&ram, 2 * MIB, 2 * MIB);
    let prefault = ram.prefault(None, &|| false).unwrap();
    assert_eq!(prefault.bytes, 6 * MIB, "without what was there");
    assert_eq!(prefault.threads, 1, "one thread per 64 MiB is enough");
    assert_only_zero(&ram, 2 * MIB..4 * MIB, 0..0, "dirty");
    assert_only_zero(&ram, 4 * MIB..8 * MIB, 0..4 * MIB, "populated");
}

#[test]
fn an_exhausted_pool_is_explained_with_done_and_wanted() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let Some(_pool) = PoolGuard::with_available(2 * MIB, 10) else {
            return;
        };
        let config = config::Memory {
            overcommit: true,
            ..backed.config(64 * MIB)
        };
        let ram = GuestRam::create(&config).unwrap();
        let error = ram.prefault(None, &|| false).unwrap_err();
        let text = error.to_string();
        let MemoryError::NotPopulated { done, wanted, .. } = error else {
            panic!("{text}");
        };
        assert_eq!((done.0, wanted.0), (20 * MIB, 64 * MIB), "{backed:?}");
        assert!(
            text.starts_with(
                "populating guest RAM stopped at 20M of 64M: the pool of 2M pages is exhausted: "
            ) && text.contains(" 0 available; fix: echo "),
            "{text}"
        );
    }
}

#[test]
fn it_is_given_up_between_two_chunks() {
    for threads in [1, 2] {
        let ram = GuestRam::create(&PAGES.config(200 * MIB)).unwrap();
        let asked = AtomicUsize::new(0);
        let second = || asked.fetch_add(1, Ordering::Relaxed) >= 1;
        let error = ram.prefault(Some(threads), &second).unwrap_err();
        assert_eq!(
            error.to_string(),
            "populating guest RAM stopped at 64M of 200M: it was given up"
        );
    }
}
