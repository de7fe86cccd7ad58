//! The one way from "the guest reported it" to "the guest may skip clearing it".
//!
//! A non-zero used length (and, with bit 7, a set bitmap bit) is made from a
//! [`Zeroed`] and from nothing else.

use thiserror::Error;

use super::guest_range::GuestRange;

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
}

impl Zeroed {
    /// States the proof. To be called only by an implementation of
    /// [`ZeroGuestRange`], which knows mapping, alignment and system call;
    /// `released` is how many bytes of the range went back to the host.
    pub fn vouch(range: GuestRange, released: u64) -> Self {
        Self { range, released }
    }

    /// The range that reads zero.
    #[must_use]
    pub fn range(&self) -> GuestRange {
        self.range
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
/// Called on the balloon thread only.
pub trait ZeroGuestRange: Send + Sync {
    /// Makes every byte of `range` read zero. A range may span memory regions
    /// and need not be aligned to anything.
    ///
    /// # Errors
    /// [`ZeroError`]; the contents are then unspecified, and nothing may be
    /// promised.
    fn zero(&self, range: GuestRange, by: ZeroBy) -> Result<Zeroed, ZeroError>;

    /// Gives the whole backing pages inside `range` back to the host, without
    /// any promise of what reads there later; returns the bytes released,
    /// which is 0 if no backing page lies wholly inside.
    ///
    /// # Errors
    /// [`ZeroError`] if part of it is not RAM or the host refused.
    fn release(&self, range: GuestRange) -> Result<u64, ZeroError>;
}
