//! From proof to promise: the only place that makes a used length out of
//! [`Zeroed`] values, and so the only place that lets a guest skip clearing.

use super::guest_range::GuestRange;
use super::host_zeroes::Zeroed;

/// The used length of a report: so many bytes from its start on read zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct UsedLength(u32);

impl UsedLength {
    /// Nothing is promised.
    pub(crate) const NOTHING: Self = Self(0);

    /// In bytes.
    pub(crate) fn bytes(self) -> u32 {
        self.0
    }
}

/// Promises the leading run of zeroed bytes of `entries`, which are in the
/// order of the report; `None` stands for one that is not RAM, and ends it.
///
/// A sum over all entries would not do: with the first one failed it would
/// claim exactly that one (virtio 1.3, 2.7.8: the first `len` bytes were
/// written). `zeroed` is ascending and disjoint, and used up.
pub(crate) fn promise(entries: &[Option<GuestRange>], zeroed: &mut Vec<Zeroed>) -> UsedLength {
    let mut run: u64 = 0;
    for entry in entries {
        let Some(entry) = entry else { break };
        let covered = zeroed_from_start(*entry, zeroed);
        run = run.saturating_add(covered);
        if covered < entry.len() {
            break;
        }
    }
    zeroed.clear();
    // Less than was done may be promised, never more.
    UsedLength(u32::try_from(run).unwrap_or(u32::MAX))
}

/// How many bytes from the start of `entry` on are proved zero.
fn zeroed_from_start(entry: GuestRange, zeroed: &[Zeroed]) -> u64 {
    let first = zeroed.partition_point(|proof| proof.range().end() <= entry.start());
    let mut end = entry.start();
    for range in zeroed.iter().skip(first).map(Zeroed::range) {
        if range.start() > end || end >= entry.end() {
            break;
        }
        end = range.end();
    }
    end.min(entry.end()) - entry.start()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (u64, u64) = (0x1000, 0x1000);
    const B: (u64, u64) = (0x2000, 0x1000);
    const C: (u64, u64) = (0x8000, 0x4000);

    fn range((start, len): (u64, u64)) -> GuestRange {
        GuestRange::new(start, len).unwrap()
    }

    fn promised(entries: &[Option<(u64, u64)>], zeroed: &[(u64, u64)]) -> u32 {
        let entries: Vec<_> = entries.iter().map(|entry| entry.map(range)).collect();
        let mut zeroed: Vec<_> = zeroed.iter().map(|z| Zeroed::vouch(range(*z), 0)).collect();
        promise(&entries, &mut zeroed).bytes()
    }

    #[test]
    fn n02_the_promise_is_the_leading_run_of_zeroed_bytes() {
        let all = [Some(A), Some(B), Some(C)];
        assert_eq!(promised(&all, &[A, B, C]), 0x6000, "all");
        assert_eq!(promised(&all, &[(0x1000, 0x2000), C]), 0x6000, "joined");
        assert_eq!(promised(&all, &[B, C]), 0, "not the first");
        assert_eq!(promised(&all, &[A, C]), 0x1000, "not the second");
        assert_eq!(promised(&all, &[A, B]), 0x2000, "not the last");
        assert_eq!(promised(&all, &[]), 0, "none");
        assert_eq!(
            promised(&[Some(B), Some(A)], &[A]),
            0,
            "order of the report"
        );
        assert_eq!(
            promised(&[Some(A), None, Some(B)], &[A, B]),
            0x1000,
            "not RAM"
        );
        assert_eq!(promised(&[Some(A), Some(A)], &[A]), 0x2000, "twice");
    }

    #[test]
    fn n02_a_run_may_end_inside_an_entry() {
        assert_eq!(promised(&[Some(C)], &[(0x8000, 0x1000)]), 0x1000);
        assert_eq!(promised(&[Some(C)], &[(0x9000, 0x3000)]), 0);
        let with_gap = [(0x8000, 0x1000), (0xa000, 0x2000)];
        assert_eq!(promised(&[Some(C)], &with_gap), 0x1000);
        let touching = [(0x8000, 0x1000), (0x9000, 0x3000)];
        assert_eq!(promised(&[Some(C)], &touching), 0x4000);
    }

    #[test]
    fn r08_a_run_longer_than_32_bits_does_not_wrap() {
        let big = (0, 2 << 30);
        let three = [Some(big), Some(big), Some(big)];
        assert_eq!(promised(&three, &[big]), u32::MAX);
    }

    #[test]
    fn a_promise_uses_its_proofs_up() {
        let mut zeroed = vec![Zeroed::vouch(range(A), 0)];
        assert_eq!(promise(&[Some(range(A))], &mut zeroed).bytes(), 0x1000);
        assert_eq!(promise(&[Some(range(A))], &mut zeroed), UsedLength::NOTHING);
    }
}
