//! Guest RAM of every backing, and what a guest does with it.

use std::fs::File;
use std::sync::atomic::AtomicBool;

use devices::balloon::guest_range::GuestRange;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::pool_guard::{self, PoolGuard};
use crate::config::{self, PageSize};
use crate::memory::GuestRam;
use crate::memory::mapping::Backing;
use crate::memory::proof_of_zero::{DiscardProof, GuestRamZeroer};
use crate::memory::residency::Residency;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// What a guest leaves behind in its memory.
pub(super) const DIRT: u8 = 0xAA;

/// One way to back a guest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backed {
    pub(super) kind: config::Backing,
    pub(super) page: PageSize,
    pub(super) shared: bool,
}

const fn backed(kind: config::Backing, page: PageSize, shared: bool) -> Backed {
    Backed { kind, page, shared }
}

pub(super) const HUGETLB_2M: Backed = backed(config::Backing::Hugetlb, PageSize::Size2M, false);
pub(super) const HUGETLB_2M_SHARED: Backed =
    backed(config::Backing::Hugetlb, PageSize::Size2M, true);
pub(super) const HUGETLB_1G: Backed = backed(config::Backing::Hugetlb, PageSize::Size1G, false);
pub(super) const HUGETLB_1G_SHARED: Backed =
    backed(config::Backing::Hugetlb, PageSize::Size1G, true);
pub(super) const PAGES: Backed = backed(config::Backing::Pages, PageSize::Size4K, false);

/// All but 1 GiB pages, which take too long to clear for a table of cases.
pub(super) const ALL_BUT_1G: [Backed; 6] = [
    HUGETLB_2M,
    HUGETLB_2M_SHARED,
    backed(config::Backing::Thp, PageSize::Size4K, false),
    backed(config::Backing::Thp, PageSize::Size4K, true),
    PAGES,
    backed(config::Backing::Pages, PageSize::Size4K, true),
];

impl Backed {
    /// `[memory]` with everything else at its default.
    pub(super) fn config(self, size: u64) -> config::Memory {
        config::Memory {
            size,
            backing: self.kind,
            page: self.page,
            shared: self.shared,
            overcommit: false,
            prefault: false,
            prefault_threads: None,
        }
    }

    pub(super) fn is_hugetlb(self) -> bool {
        self.kind == config::Backing::Hugetlb
    }

    /// What a test needs of the host for `size` bytes of it. `None` is a skipped
    /// test.
    pub(super) fn hold(self, size: u64) -> Option<Held> {
        let page = self.page.bytes();
        let pool = if self.is_hugetlb() {
            Some(PoolGuard::with_available(page, size / page)?)
        } else {
            None
        };
        // A 1 GiB guard has this lock for itself already.
        let stillness = (page < GIB).then(pool_guard::keep_pages_still).flatten();
        Some(Held {
            pool,
            _stillness: stillness,
        })
    }
}

/// Held by a test while it looks at its memory.
pub(super) struct Held {
    /// A pool that just holds the guest, if it needs one.
    pub(super) pool: Option<PoolGuard>,
    _stillness: Option<File>,
}

pub(super) fn range(start: u64, len: u64) -> GuestRange {
    GuestRange::new(start, len).unwrap()
}

/// Writes [`DIRT`] to all of `start..start + len`.
pub(super) fn dirty(ram: &GuestRam, start: u64, len: u64) {
    let buffer = vec![DIRT; usize::try_from(len).unwrap()];
    ram.guest_memory()
        .write_slice(&buffer, GuestAddress(start))
        .unwrap();
}

/// Asserts that `zeroed` (offsets into `window`) reads zero and the rest of
/// `window` reads [`DIRT`].
pub(super) fn assert_only_zero(
    ram: &GuestRam,
    window: std::ops::Range<u64>,
    zeroed: std::ops::Range<u64>,
    what: &str,
) {
    let mut buffer = vec![1; usize::try_from(window.end - window.start).unwrap()];
    ram.guest_memory()
        .read_slice(&mut buffer, GuestAddress(window.start))
        .unwrap();
    let (start, end) = (zeroed.start, zeroed.end.max(zeroed.start));
    let end_of_window = window.end - window.start;
    for (part, expected) in [
        (0..start, DIRT),
        (start..end, 0),
        (end..end_of_window, DIRT),
    ] {
        let first = usize::try_from(part.start).unwrap();
        let bytes = &buffer[first..usize::try_from(part.end).unwrap()];
        if let Some(offset) = bytes.iter().position(|&byte| byte != expected) {
            panic!(
                "{what}: byte {:#x} of the window is {:#x}, not {expected:#x}",
                first + offset,
                bytes[offset]
            );
        }
    }
}

/// The parts `GuestRam` is made of, over memory of one's own, for what it does
/// not let happen.
pub(super) fn zeroer(memory: GuestMemoryMmap, backing: Backing) -> GuestRamZeroer {
    GuestRamZeroer {
        memory,
        backing,
        residency: Residency::of(backing),
        discard_proof: DiscardProof::None,
        this_process: None,
        reservation_lost: AtomicBool::new(false),
    }
}
