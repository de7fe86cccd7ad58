//! Seeing for oneself, before the guest runs, that the calls the
//! [proof of zero](super::proof_of_zero) builds on do what they should on this
//! kernel and this backing.
//!
//! It works on the first page of guest RAM (of small ones, on a few): no page is
//! needed that the guest would not have, and the page is absent again
//! afterwards. A page of 1 GiB is not: clearing it takes a tenth of a second or
//! more, so it stays, populated and zero, for the kernel that is about to be
//! loaded into it.

use std::io;

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::mapping::THP_BYTES;
use super::piece::{Advice, HOST_PAGE, Piece};
use super::proof_of_zero::{DiscardProof, GuestRamZeroer};
use super::residency::Residency;
use crate::config;

/// Not zero, and not what any other part of Aerostat writes.
const PATTERN: u8 = 0xAA;

/// Settles what `zeroer` may rely on. A call that does not work is logged and
/// not relied on: zeros are written instead.
///
/// # Errors
/// The first page could not be populated: the pool is empty, which is possible
/// only without a reservation.
pub(super) fn run(zeroer: &mut GuestRamZeroer) -> io::Result<()> {
    let backing = zeroer.backing;
    let memory = zeroer.memory.clone();
    let Some(first) = vm_memory::GuestMemoryBackend::iter(&memory).next() else {
        return Ok(());
    };
    let len = match backing.kind {
        config::Backing::Hugetlb => backing.page,
        config::Backing::Thp => THP_BYTES,
        config::Backing::Pages => 16 * HOST_PAGE,
    };
    let Some(page) = Piece::whole(first).part(0, len) else {
        return Ok(());
    };

    page.advise(Advice::PopulateWrite)?;
    if !sees_all_of(zeroer, page)? {
        log::warn!("residency of guest RAM is not reported right by this kernel: not used");
        zeroer.residency = Residency::Unknown;
    }
    if backing.shared && !part_is_zeroed_by_a_hole_punch(page) {
        log::warn!(
            "a hole punch does not zero part of a page on this kernel: zeros are written instead"
        );
        zeroer.residency = Residency::Unknown;
    }

    // Huge pages are dropped whole or not at all. Of other pages a call may leave
    // some (locked ones), so each discard is checked by itself; and so it is where
    // clearing a page to see it takes long.
    let by_absence = !backing.shared
        && zeroer.residency.is_known()
        && (!backing.is_hugetlb() || page.len() > THP_BYTES);
    if by_absence && page.len() > THP_BYTES {
        zeroer.discard_proof = DiscardProof::ByAbsence;
        return Ok(());
    }
    if !backing.shared {
        zeroer.this_process = pidfd_open(getpid(), PidfdFlags::empty()).ok();
    }
    let mut leaves_zeros = discard_leaves_zeros(zeroer, page)?;
    if !leaves_zeros && zeroer.this_process.take().is_some() {
        log::info!("no process_madvise of this process in this kernel: one call a range");
        leaves_zeros = discard_leaves_zeros(zeroer, page)?;
    }
    zeroer.discard_proof = match leaves_zeros {
        true if by_absence => DiscardProof::ByAbsence,
        true => DiscardProof::BySelfTest,
        false => {
            log::warn!("discarding does not leave zeros on this kernel: zeros are written instead");
            page.store_zeros();
            DiscardProof::None
        }
    };
    if page.len() <= THP_BYTES {
        zeroer.discard(&[page])?;
    }
    Ok(())
}

/// `page` was populated just now.
fn sees_all_of(zeroer: &GuestRamZeroer, page: Piece<'_>) -> io::Result<bool> {
    let mut seen = 0;
    zeroer.residency.visit_runs(page, &mut |run| {
        seen += run.piece.len();
        Ok(())
    })?;
    Ok(seen == page.len())
}

/// Leaves the page populated.
fn part_is_zeroed_by_a_hole_punch(page: Piece<'_>) -> bool {
    let around = page.part(0, 4 * HOST_PAGE).unwrap_or(page);
    // Not whole host pages, so that it is a part for every backing.
    let (start, end) = (HOST_PAGE / 2, 3 * HOST_PAGE + HOST_PAGE / 2);
    let (Some(before), Some(part), Some(after)) = (
        around.part(0, start),
        around.part(start, end),
        around.part(end, around.end()),
    ) else {
        // Less than four host pages of RAM: nothing to be had from it.
        return false;
    };
    around.fill(PATTERN);
    part.punch_hole().is_ok()
        && before.reads_all(PATTERN)
        && part.reads_all(0)
        && after.reads_all(PATTERN)
}

/// Leaves the page populated, and zero if it is true.
fn discard_leaves_zeros(zeroer: &GuestRamZeroer, page: Piece<'_>) -> io::Result<bool> {
    page.fill(PATTERN);
    if zeroer.discard(&[page]).is_err() {
        return Ok(false);
    }
    let gone = !zeroer.residency.is_known() || zeroer.present_bytes(page)? == 0;
    // Reading an absent page of an empty pool would raise SIGBUS.
    page.advise(Advice::PopulateRead)?;
    let zero = page.reads_all(0);
    // Shared pages were populated for reading only, which is all that is kept.
    Ok(gone && zero)
}
