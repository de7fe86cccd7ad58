//! How much is done to guest memory before the worker looks up again.

use super::guest_range::GuestRange;
use super::host_zeroes::ZeroBy;

/// The largest backing page there is (x86-64, 1 GiB huge pages). Discarding it
/// takes all of it in one call.
const LARGEST_PAGE: u64 = 1 << 30;
/// What is cleared in one go: 3 ms at 10 GB/s, which is what a vCPU that resets
/// the device may have to wait. A multiple of every smaller backing page, so
/// that none of those is cut.
pub(crate) const UNIT: u64 = 32 << 20;
/// The same where the rate of clearing is limited: bursts of 0.2 ms. The second
/// largest backing page.
pub(crate) const SMALL_UNIT: u64 = 2 << 20;
/// What is discarded in one go, where there are several ranges: the largest report
/// of Linux, 32 blocks of 4 MiB. Takes a tenth of a millisecond.
pub(crate) const DISCARDED_TOGETHER: u64 = 128 << 20;

/// Cuts `range` at multiples of `unit`; only blocks of [`LARGEST_PAGE`] that
/// lie wholly inside a range to be discarded stay together.
pub(crate) fn units(range: GuestRange, by: ZeroBy, unit: u64) -> impl Iterator<Item = GuestRange> {
    let mut rest = Some(range);
    std::iter::from_fn(move || {
        let left = rest?;
        let start = left.start();
        let whole =
            by == ZeroBy::Discarding && start % LARGEST_PAGE == 0 && left.len() >= LARGEST_PAGE;
        let size = if whole { LARGEST_PAGE } else { unit };
        let (first, after) = left.cut((start - start % size).saturating_add(size));
        rest = after;
        first
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths(start: u64, len: u64, by: ZeroBy) -> Vec<u64> {
        let range = GuestRange::new(start, len).unwrap();
        units(range, by, UNIT).map(GuestRange::len).collect()
    }

    #[test]
    fn a_whole_gigabyte_is_discarded_in_one_call_and_cleared_in_many() {
        let gib = 1 << 30;
        assert_eq!(lengths(gib, gib, ZeroBy::Discarding), [gib]);
        assert_eq!(lengths(gib, gib, ZeroBy::Writing), [UNIT; 32]);
        let with_edges = lengths(gib - UNIT, gib + UNIT + 4096, ZeroBy::Discarding);
        assert_eq!(with_edges, [UNIT, gib, 4096]);
    }

    proptest! {
        #[test]
        fn units_cover_the_range_without_cutting_a_page_they_could_discard(
            start in 0_u64..(4 << 30),
            len in 1_u64..(3 << 30),
            discarding: bool,
            small: bool,
        ) {
            let size = if small { SMALL_UNIT } else { UNIT };
            let by = if discarding { ZeroBy::Discarding } else { ZeroBy::Writing };
            let range = GuestRange::new(start, len).unwrap();
            let mut at = start;
            for unit in units(range, by, size) {
                prop_assert_eq!(unit.start(), at);
                prop_assert!(unit.len() <= LARGEST_PAGE);
                prop_assert!(unit.len() <= size || unit.len() == LARGEST_PAGE && discarding);
                let inner = unit.end() != range.end();
                prop_assert!(!inner || unit.end() % size == 0);
                at = unit.end();
            }
            prop_assert_eq!(at, range.end());
        }
    }
}
