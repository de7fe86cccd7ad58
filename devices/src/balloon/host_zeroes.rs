//! The one way from "the guest gave it" to "the guest may skip clearing it".
//!
//! A promise (the used length of a report, a bit in the bitmap of an inflate
//! request) is made from a [`Zeroed`] and from nothing else.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::counters::Counters;
use super::guest_range::{self, GuestRange};
use super::pace::Pace;
use super::work_unit::{DISCARDED_TOGETHER, SMALL_UNIT, UNIT, units};
use crate::virtio::log_budget::LogBudget;

/// How a range is to be made zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroBy {
    /// Give whole backing pages back to the host, which clears them when they
    /// are faulted in again; write zeros to what covers only part of one.
    Discarding,
    /// Clear in place and keep the memory, so that nobody clears at refault.
    Writing,
}

/// Proof that every byte of a range reads zero, now and until the guest writes
/// to it.
///
/// Not `Clone`: a promise is made once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "zeroing that nobody promises was work for nothing"]
pub struct Zeroed {
    range: GuestRange,
    released: u64,
    written: u64,
}

impl Zeroed {
    /// States the proof. To be called only by an implementation of
    /// [`ZeroGuestRange`], which knows mapping, alignment and system call;
    /// `released` is how many bytes of the range went back to the host.
    pub fn vouch(range: GuestRange, released: u64) -> Self {
        Self {
            range,
            released,
            written: 0,
        }
    }

    /// Adds how many bytes had to be cleared: what [`zero_rate`] limits.
    ///
    /// [`zero_rate`]: super::device::BalloonSpec::zero_rate
    pub fn after_writing(self, written: u64) -> Self {
        Self { written, ..self }
    }

    /// The range that reads zero.
    #[must_use]
    pub fn range(&self) -> GuestRange {
        self.range
    }

    /// Bytes that were cleared by storing zeros.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes given back to the host, at most the length of the range.
    #[must_use]
    pub fn released(&self) -> u64 {
        self.released
    }
}

/// Why nothing can be promised of a range.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ZeroError {
    /// Part of the range is not guest RAM.
    #[error("{0:x?} is not all guest RAM")]
    NotRam(GuestRange),
    /// The host could neither discard nor clear it.
    #[error("the host could not clear {range:x?}: errno {errno}")]
    Host {
        /// The range asked for.
        range: GuestRange,
        /// The error number of the last attempt.
        errno: i32,
    },
}

/// Effects on guest memory, provided by whoever owns the mapping.
///
/// Called on the balloon thread only, for at most one unit of work at a time:
/// 32 MiB, and to discard 128 MiB of several ranges or a whole 1 GiB block. A reset
/// of the device waits for the call that is under way, so it must come back.
///
/// **Nothing but zeros is ever written**, whether a call succeeds or fails: a
/// byte that reads zero stays zero until the guest writes to it. What was
/// promised of pages in the balloon rests on that until they are deflated.
pub trait ZeroGuestRange: Send + Sync {
    /// Bytes of the backing pages of the memory region that starts at guest
    /// address `region`: the least that can go back to the host on its own. A
    /// power of two, at least 4096; backing pages are aligned to it in guest
    /// addresses. Called once for each region, when a device is made.
    fn page_size(&self, region: u64) -> u64;

    /// Makes every byte of `range` read zero. A range may span memory regions
    /// and need not be aligned to anything.
    ///
    /// # Errors
    /// [`ZeroError`]; some bytes may read zero then and others what they did
    /// before, so nothing may be promised.
    fn zero(&self, range: GuestRange, by: ZeroBy) -> Result<Zeroed, ZeroError>;

    /// Makes `ranges`, ascending and disjoint, read zero as [`Self::zero`] does for
    /// each by [`ZeroBy::Discarding`], in as few system calls as there can be. Adds
    /// the proofs for as many of them, from the first on, as it could; each of the
    /// others is asked for by itself afterwards.
    fn discard_all(&self, ranges: &[GuestRange], zeroed: &mut Vec<Zeroed>) {
        let _ = (ranges, zeroed);
    }

    /// Gives the whole backing pages inside `range` back to the host, without
    /// proof that zero reads there later; returns the bytes released,
    /// which is 0 if no backing page lies wholly inside.
    ///
    /// # Errors
    /// [`ZeroError`] if part of it is not RAM or the host refused.
    fn release(&self, range: GuestRange) -> Result<u64, ZeroError>;

    /// Has memory behind all of `range`, so that accesses to it succeed until
    /// the next call of [`Self::zero`] or [`Self::release`]. Called before each
    /// look at a ring and at page numbers: a guest may put both where no memory
    /// is. To be cheap where memory is, or can always be had.
    ///
    /// # Errors
    /// [`ZeroError`] if part of it is not RAM or no memory is to be had.
    fn make_present(&self, range: GuestRange) -> Result<(), ZeroError>;
}

/// The effects of one request: counted, cut into units, and given up between
/// two of them when the driver takes the queue away.
pub(crate) struct HostWork<'a> {
    /// Who can do it.
    pub(crate) ram: &'a dyn ZeroGuestRange,
    /// Where it is counted.
    pub(crate) counters: &'a Counters,
    /// Where failures are logged.
    pub(crate) log: &'a LogBudget,
    /// The request is of no interest any more.
    pub(crate) cancel: &'a AtomicBool,
    /// How fast memory may be cleared.
    pub(crate) pace: &'a RefCell<Pace>,
}

/// Room for [`HostWork::zero`], kept from request to request.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    merged: Vec<GuestRange>,
    units: Vec<GuestRange>,
    /// Where the wanted ranges begin and end, ascending; filled when needed.
    cuts: Vec<u64>,
}

/// Bytes of a request that were zeroed, and how many of them went back to the
/// host.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) zeroed: u64,
    pub(crate) released: u64,
}

impl HostWork<'_> {
    /// Makes `wanted` read zero. `zeroed` gets the proofs: ascending and
    /// disjoint.
    pub(crate) fn zero(
        &self,
        wanted: &[GuestRange],
        by: ZeroBy,
        scratch: &mut Scratch,
        zeroed: &mut Vec<Zeroed>,
    ) -> Done {
        let mut done = Done::default();
        self.each_unit(wanted, by, scratch, |unit, others| {
            let before = zeroed.len();
            if by == ZeroBy::Discarding && !others.is_empty() {
                self.ram.discard_all(others, zeroed);
            }
            if zeroed.len() == before {
                zeroed.push(self.ram.zero(unit, by)?);
            }
            let proofs = zeroed.get(before..).unwrap_or_default();
            for proof in proofs {
                let len = proof.range().len();
                done.zeroed = done.zeroed.saturating_add(len);
                done.released = done.released.saturating_add(proof.released().min(len));
                self.pace.borrow_mut().pause(proof.written(), self.cancel);
            }
            Ok(proofs.len())
        });
        done
    }

    /// Gives the whole backing pages in `wanted` back; returns the bytes.
    pub(crate) fn release(&self, wanted: &[GuestRange], scratch: &mut Scratch) -> u64 {
        let mut released: u64 = 0;
        self.each_unit(wanted, ZeroBy::Discarding, scratch, |unit, _| {
            let bytes = self.ram.release(unit)?;
            released = released.saturating_add(bytes.min(unit.len()));
            Ok(1)
        });
        released
    }

    /// Calls `act` with the units of `wanted`, ascending: what touches is joined
    /// before. It also gets the unit together with those that may be done in the
    /// same go, and returns how many of them it did, from the first on.
    ///
    /// Where it fails, each of the wanted ranges in the unit is tried for itself,
    /// so that one which cannot be done does not take its neighbours along.
    fn each_unit(
        &self,
        wanted: &[GuestRange],
        by: ZeroBy,
        scratch: &mut Scratch,
        mut act: impl FnMut(GuestRange, &[GuestRange]) -> Result<usize, ZeroError>,
    ) {
        let Scratch {
            merged,
            units: all,
            cuts,
        } = scratch;
        cuts.clear();
        merged.clear();
        merged.extend_from_slice(wanted);
        guest_range::merge(merged);
        let size = match self.pace.borrow().is_limited() {
            true => SMALL_UNIT,
            false => UNIT,
        };
        all.clear();
        all.extend(merged.iter().flat_map(|range| units(*range, by, size)));
        let mut left = all.as_slice();
        while let [unit, after @ ..] = left {
            if self.cancelled() {
                return;
            }
            match act(*unit, together(left)) {
                Ok(done) => left = left.get(done.max(1)..).unwrap_or_default(),
                Err(error) => {
                    self.each_part(*unit, wanted, cuts, &error, &mut act);
                    left = after;
                }
            }
        }
    }

    /// Calls `act` with the parts of `unit`, which failed as a whole.
    fn each_part(
        &self,
        unit: GuestRange,
        wanted: &[GuestRange],
        cuts: &mut Vec<u64>,
        error: &ZeroError,
        act: &mut impl FnMut(GuestRange, &[GuestRange]) -> Result<usize, ZeroError>,
    ) {
        if cuts.is_empty() {
            cuts.extend(wanted.iter().flat_map(|range| [range.start(), range.end()]));
            cuts.sort_unstable();
            cuts.dedup();
        }
        let first = cuts.partition_point(|cut| *cut <= unit.start());
        let inside = cuts.iter().skip(first).copied();
        let mut inside = inside.take_while(|cut| *cut < unit.end()).peekable();
        if inside.peek().is_none() {
            return self.failed(error);
        }
        let mut rest = Some(unit);
        for cut in inside.chain([unit.end()]) {
            let (part, after) = rest.map_or((None, None), |rest| rest.cut(cut));
            rest = after;
            let Some(part) = part.filter(|_| !self.cancelled()) else {
                return;
            };
            if let Err(error) = act(part, &[]) {
                self.failed(&error);
            }
        }
    }

    /// Whether to stop where we are.
    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn failed(&self, error: &ZeroError) {
        match error {
            ZeroError::NotRam(_) => self.counters.add(|c| &mut c.not_ram, 1),
            ZeroError::Host { .. } => self.counters.add(|c| &mut c.zero_failures, 1),
        }
        self.log.warn(format_args!("{error}"));
    }
}

/// As many units from the first on as are discarded in one go.
fn together(units: &[GuestRange]) -> &[GuestRange] {
    let mut sum: u64 = 0;
    let fit = units.iter().take_while(|unit| {
        sum = sum.saturating_add(unit.len());
        sum <= DISCARDED_TOGETHER
    });
    units.get(..fit.count()).unwrap_or_default()
}
