//! The proof of `Zeroed`: the one place that knows mapping, alignment and call.
//!
//! Every byte that is vouched for is one of these, never "the call returned 0":
//!
//! 1. **stored**: this module stored zeros to it;
//! 2. **absent**: in a private mapping, its page table entry was seen empty (or
//!    mapping the zero page) *after* everything else was done, so that the next
//!    access finds a fresh zero page;
//! 3. **dropped or punched**: removed from a private mapping of huge pages, or
//!    removed from or zeroed in the file of a shared mapping, by a call whose effect
//!    on this very backing was seen in the [self-test](super::self_test), with pages
//!    counted wholly or partly exactly as the kernel counts them.
//!
//! Memory that was never populated falls under 2 and costs one system call; it
//! is never faulted in, neither to zero it nor to find out.
//!
//! The guest promised not to touch what it reported. One that does it all the
//! same can race with any of this and find the zeros overwritten, in its own
//! memory; the host loses nothing. For the same reason a wrong count of released
//! bytes is all that such a guest can cause here.
//!
//! No store here can raise SIGBUS on an empty pool: absent pages are not stored
//! to, and pages of a pool are populated first by a call that fails instead.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use devices::balloon::guest_range::GuestRange;
use devices::balloon::host_zeroes::{ZeroBy, ZeroError, ZeroGuestRange, Zeroed};
use vm_memory::GuestMemoryMmap;

use super::mapping::Backing;
use super::piece::{Advice, Piece};
use super::residency::{Residency, Run};

/// Why a discarded page can be taken to read zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiscardProof {
    /// Each time, by seeing that the page is gone; what is not gone is written.
    ByAbsence,
    /// The self-test saw the call work on this backing.
    BySelfTest,
    /// None: nothing is discarded where zero is promised, only written.
    None,
}

/// Makes ranges of guest RAM read zero, and gives memory back to the host.
pub(super) struct GuestRamZeroer {
    pub(super) memory: GuestMemoryMmap,
    pub(super) backing: Backing,
    pub(super) residency: Residency,
    pub(super) discard_proof: DiscardProof,
    /// This process, if private memory is dropped through it: many pages in a call.
    pub(super) this_process: Option<OwnedFd>,
    /// The lost reservation of a shared mapping was logged.
    pub(super) reservation_lost: AtomicBool,
}

impl ZeroGuestRange for GuestRamZeroer {
    fn page_size(&self, _region: u64) -> u64 {
        self.backing.page as u64
    }

    fn zero(&self, range: GuestRange, by: ZeroBy) -> Result<Zeroed, ZeroError> {
        let stored = Cell::new(0);
        let released = self.in_pieces(range, |piece| match by {
            ZeroBy::Discarding => self.zero_by_discarding(piece, &stored),
            ZeroBy::Writing => self.write_zeros(piece, &stored).map(|()| 0),
        })?;
        Ok(Zeroed::vouch(range, released).after_writing(stored.get()))
    }

    fn discard_all(&self, ranges: &[GuestRange], zeroed: &mut Vec<Zeroed>) {
        // What is to be seen gone each time takes a call for each anyway.
        if self.discard_proof != DiscardProof::BySelfTest || !self.backing.is_hugetlb() {
            return;
        }
        let Some(first) = ranges.first().and_then(|range| self.whole_pages(*range)) else {
            return;
        };
        let mut pieces = [first; Piece::TOGETHER];
        let mut count = 0;
        let fit = ranges.iter().map_while(|range| self.whole_pages(*range));
        let fit = fit.take_while(|piece| piece.is_beside(first));
        for (slot, piece) in pieces.iter_mut().zip(fit) {
            *slot = piece;
            count += 1;
        }
        let pieces = pieces.get(..count).unwrap_or_default();
        let released: [u64; Piece::TOGETHER] = self.residency.count(pieces);
        if self.discard(pieces).is_ok() {
            let proofs = ranges.iter().zip(released).take(count);
            zeroed.extend(proofs.map(|(range, released)| Zeroed::vouch(*range, released)));
        }
    }

    fn make_present(&self, range: GuestRange) -> Result<(), ZeroError> {
        // Memory without a pool is found or made by the fault itself; so are pages
        // of a pool that are reserved, which is certain only where `discard` sees
        // to it. A private mapping does not get its reservation back with the page
        // while the pool has surplus pages (mm/hugetlb.c, `__unmap_hugepage_range`).
        let Backing {
            reserved, shared, ..
        } = self.backing;
        let is_reserved = reserved && shared && !self.reservation_lost.load(Ordering::Relaxed);
        if !self.backing.is_hugetlb() || is_reserved {
            return Ok(());
        }
        self.in_pieces(range, |piece| {
            piece
                .in_host_pages()
                .advise(Advice::PopulateWrite)
                .map(|()| 0)
        })
        .map(drop)
    }

    fn release(&self, range: GuestRange) -> Result<u64, ZeroError> {
        self.in_pieces(range, |piece| {
            let Some(whole) = piece.whole_pages(self.backing.page) else {
                return Ok(0);
            };
            let before = self.present_bytes(whole)?;
            self.discard(&[whole])?;
            Ok(before.saturating_sub(self.present_bytes(whole)?))
        })
    }
}

impl GuestRamZeroer {
    /// Applies `act` to every piece of `range` and adds up; does nothing if part
    /// of it is not RAM.
    fn in_pieces(
        &self,
        range: GuestRange,
        act: impl Fn(Piece<'_>) -> io::Result<u64>,
    ) -> Result<u64, ZeroError> {
        Piece::of_range(&self.memory, range)
            .ok_or(ZeroError::NotRam(range))?
            .try_fold(0, |sum, piece| act(piece).map(|bytes| sum + bytes))
            .map_err(|error| ZeroError::Host {
                range,
                errno: error.raw_os_error().unwrap_or(libc::EIO),
            })
    }

    /// All of `range`, if it consists of whole backing pages of one region.
    fn whole_pages(&self, range: GuestRange) -> Option<Piece<'_>> {
        let piece = Piece::of_range(&self.memory, range)?.next()?;
        let whole = piece.whole_pages(self.backing.page)?;
        (whole.len() as u64 == range.len()).then_some(whole)
    }

    /// Returns the bytes released, and adds those stored to `stored`.
    fn zero_by_discarding(&self, piece: Piece<'_>, stored: &Cell<u64>) -> io::Result<u64> {
        let whole = piece
            .whole_pages(self.backing.page)
            .filter(|_| self.discard_proof != DiscardProof::None);
        let Some(whole) = whole else {
            return self.write_zeros(piece, stored).map(|()| 0);
        };

        let mut anything = false;
        let mut before = 0;
        self.residency.visit_runs(piece, &mut |run| {
            anything = true;
            before += present_bytes_in(run, whole);
            Ok(())
        })?;
        if !anything && !self.backing.shared {
            return Ok(0);
        }
        if self.discard(&[whole]).is_err() {
            // Locked memory, for one. Writing is always possible.
            return self.write_zeros(piece, stored).map(|()| 0);
        }
        if self.discard_proof == DiscardProof::ByAbsence {
            // Also looks at what should be gone, and writes what is not.
            let mut left = 0;
            self.zero_in_place(piece, &mut |run| {
                left += present_bytes_in(run, whole);
                count_in(stored, run);
            })?;
            return Ok(before.saturating_sub(left));
        }
        let edges = [
            piece.part(piece.start(), whole.start()),
            piece.part(whole.end(), piece.end()),
        ];
        for edge in edges.into_iter().flatten() {
            self.write_zeros(edge, stored)?;
        }
        Ok(before)
    }

    /// As [`Self::zero_in_place`]; adds the bytes stored to `stored`.
    fn write_zeros(&self, piece: Piece<'_>, stored: &Cell<u64>) -> io::Result<()> {
        self.zero_in_place(piece, &mut |run| count_in(stored, run))
    }

    /// Stores zeros wherever there may be memory and leaves absent what is
    /// absent; `written` hears of every run stored to.
    fn zero_in_place(&self, piece: Piece<'_>, written: &mut dyn FnMut(Run<'_>)) -> io::Result<()> {
        let mut done = piece.start();
        self.residency.visit_runs(piece, &mut |run| {
            self.zero_absent(piece.part(done, run.piece.start()))?;
            self.store_zeros(run.piece)?;
            written(run);
            done = run.piece.end();
            Ok(())
        })?;
        self.zero_absent(piece.part(done, piece.end()))
    }

    /// What no page table entry of this process maps reads zero in a private
    /// mapping. Of a shared one only the file knows.
    fn zero_absent(&self, gap: Option<Piece<'_>>) -> io::Result<()> {
        match gap {
            Some(gap) if self.backing.shared => gap.punch_hole(),
            _ => Ok(()),
        }
    }

    fn store_zeros(&self, piece: Piece<'_>) -> io::Result<()> {
        if self.backing.is_hugetlb() {
            // On a page that is there this only looks (0.6 us for 2 MiB). On
            // one that is not, or was lost to a hardware error, it fails where
            // a store would raise SIGBUS. Other memory faults only when the
            // host is out of memory, which does not end in SIGBUS.
            piece.in_host_pages().advise(Advice::PopulateWrite)?;
        }
        piece.store_zeros();
        Ok(())
    }

    /// Gives whole backing pages back to the host: ascending pieces of one region, at
    /// most [`Piece::TOGETHER`].
    pub(super) fn discard(&self, pieces: &[Piece<'_>]) -> io::Result<()> {
        if !self.backing.shared {
            return match &self.this_process {
                Some(this_process) => Piece::drop_all(pieces, this_process.as_fd()),
                None => pieces
                    .iter()
                    .try_for_each(|whole| whole.advise(Advice::DontNeed)),
            };
        }
        // Not MADV_DONTNEED: on a shared mapping it returns 0, and the file
        // keeps page and contents.
        pieces.iter().try_for_each(|whole| whole.punch_hole())?;
        if self.backing.is_hugetlb() && self.backing.reserved {
            self.reserve_again(pieces);
        }
        Ok(())
    }

    /// A shared mapping loses its reservation with the page. A private one usually gets
    /// it back, and where not there is no way to.
    fn reserve_again(&self, pieces: &[Piece<'_>]) {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return;
        };
        // What lies between is in the file or reserved already. Unless the pool could
        // not do that once; then all of it could be too much, and a part not.
        let reserved = first.through(*last).reserve_again().or_else(|error| {
            let each = pieces.iter().map(|piece| piece.reserve_again());
            match pieces {
                [_] => Err(error),
                _ => each.fold(Ok(()), Result::and),
            }
        });
        if let Err(error) = reserved
            && !self.reservation_lost.swap(true, Ordering::Relaxed)
        {
            log::warn!(
                "huge pages given back could not be reserved again ({error}): \
                 the guest waits if the pool is empty when it wants them"
            );
        }
    }

    /// Bytes of `piece` that are certainly in RAM.
    pub(super) fn present_bytes(&self, piece: Piece<'_>) -> io::Result<u64> {
        let mut bytes = 0;
        self.residency.visit_runs(piece, &mut |run| {
            bytes += present_bytes_in(run, piece);
            Ok(())
        })?;
        Ok(bytes)
    }
}

fn count_in(stored: &Cell<u64>, run: Run<'_>) {
    stored.set(stored.get() + run.piece.len() as u64);
}

fn present_bytes_in(run: Run<'_>, piece: Piece<'_>) -> u64 {
    match run.piece.overlap(piece) {
        Some(overlap) if run.present => overlap.len() as u64,
        _ => 0,
    }
}
