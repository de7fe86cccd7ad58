//! A checked, non-empty range of guest physical addresses.

use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

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

    /// Whether every byte is guest RAM.
    pub(crate) fn is_ram(self, memory: &GuestMemoryMmap) -> bool {
        usize::try_from(self.len)
            .is_ok_and(|len| GuestMemoryBackend::check_range(memory, GuestAddress(self.start), len))
    }

    /// The part before `at`, if `at` lies inside, and the part from it on.
    pub(crate) fn cut(self, at: u64) -> (Option<Self>, Option<Self>) {
        let at = at.clamp(self.start, self.end());
        let first = Self::new(self.start, at - self.start);
        (first, Self::new(at, self.end() - at))
    }

    /// Takes `other` in if it overlaps or touches the end of this range, which
    /// must not start after it.
    fn absorb(&mut self, other: Self) -> bool {
        let touches = other.start <= self.end();
        if touches {
            self.len = self.end().max(other.end()) - self.start;
        }
        touches
    }
}

/// Sorts `ranges` and joins what overlaps or touches.
pub(crate) fn merge(ranges: &mut Vec<GuestRange>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, kept| kept.absorb(*next));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(ranges: &[GuestRange]) -> Vec<u64> {
        let mut bytes: Vec<u64> = ranges.iter().flat_map(|r| r.start..r.end()).collect();
        bytes.sort_unstable();
        bytes.dedup();
        bytes
    }

    proptest! {
        #[test]
        fn merging_keeps_every_byte_and_leaves_gaps_between_ranges(
            parts in prop::collection::vec((0_u64..200, 1_u64..20), 0..20)
        ) {
            let mut ranges: Vec<_> = parts
                .iter()
                .filter_map(|(start, len)| GuestRange::new(*start, *len))
                .collect();
            let before = bytes(&ranges);
            merge(&mut ranges);
            prop_assert_eq!(bytes(&ranges), before);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].start));
        }
    }
}
