//! A checked, non-empty range of guest physical addresses.

/// Guest physical addresses `start..start + len`; never empty, never wrapping.
///
/// It says nothing about what is behind the addresses: whoever acts on it
/// checks that every byte is guest RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestRange {
    start: u64,
    len: u64,
}

impl GuestRange {
    /// The range, or `None` if it is empty or wraps around.
    #[must_use]
    pub fn new(start: u64, len: u64) -> Option<Self> {
        (len > 0 && start.checked_add(len).is_some()).then_some(Self { start, len })
    }

    /// First address.
    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    /// Length in bytes, at least 1.
    // A range is never empty, so there is no `is_empty` to go with it.
    #[allow(clippy::len_without_is_empty)]
    #[must_use]
    pub fn len(self) -> u64 {
        self.len
    }

    /// First address past the range.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start + self.len
    }
}
