//! From proof to promise: the only place that makes a used length or a bitmap
//! out of [`Zeroed`] values, and so the only place that lets a guest skip
//! clearing.
//!
//! What the device itself writes to afterwards (used rings, the bitmap) is no
//! longer zero, so it is not promised, whatever was proved.

use super::guest_range::GuestRange;
use super::host_zeroes::Zeroed;
use super::spec::PFN_SHIFT;

/// The used length of a chain: for a report, so many bytes from its start on
/// read zero; for an inflate request, so many bytes of its bitmap are valid.
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
/// written). `zeroed` is ascending and disjoint, and used up. `written`, as well
/// ascending and disjoint, is where the device writes afterwards.
pub(crate) fn promise(
    entries: &[Option<GuestRange>],
    zeroed: &mut Vec<Zeroed>,
    written: &[GuestRange],
) -> UsedLength {
    let mut run: u64 = 0;
    for entry in entries {
        let Some(entry) = entry else { break };
        let covered = zeroed_from_start(*entry, zeroed, written);
        run = run.saturating_add(covered);
        if covered < entry.len() {
            break;
        }
    }
    zeroed.clear();
    // Less than was done may be promised, never more.
    UsedLength(u32::try_from(run).unwrap_or(u32::MAX))
}

/// A page number of an inflate request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedPage {
    /// The page number, in units of 4 KiB.
    pub(crate) pfn: u32,
    /// Its place in the request, counted from 0.
    pub(crate) position: u32,
}

impl NamedPage {
    /// Where the page lies.
    pub(crate) fn range(self) -> Option<GuestRange> {
        GuestRange::new(u64::from(self.pfn) << PFN_SHIFT, 1 << PFN_SHIFT)
    }
}

/// The bitmap of an inflate request: bit N, least significant first, is set if
/// the N-th page it names reads zero until it is deflated (virtio-spec issue
/// 242). What is beyond its end is 0.
#[derive(Debug, Default)]
pub(crate) struct PageBitmap {
    bytes: Vec<u8>,
}

impl PageBitmap {
    /// Promises nothing.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Promises those of the `named` pages all of which is zero. `zeroed` is
    /// ascending and disjoint, and used up. `written`, as well ascending and
    /// disjoint, is where the device writes afterwards.
    pub(crate) fn promise(
        &mut self,
        named: &[NamedPage],
        zeroed: &mut Vec<Zeroed>,
        written: &[GuestRange],
    ) {
        self.bytes.clear();
        self.bytes.resize(named.len().div_ceil(8), 0);
        for page in named {
            let zero = page
                .range()
                .is_some_and(|range| zeroed_from_start(range, zeroed, written) == range.len());
            let byte = usize::try_from(page.position / 8).ok();
            let byte = byte.and_then(|byte| self.bytes.get_mut(byte));
            if let Some(byte) = byte.filter(|_| zero) {
                *byte |= 1 << (page.position % 8);
            }
        }
        zeroed.clear();
    }

    /// Its bytes; those behind them are 0.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is promised once the first `len` bytes have been written: the used
    /// length, and the number of pages.
    pub(crate) fn written(&self, len: u32) -> (UsedLength, u64) {
        let bytes = self.bytes.iter().zip(0..len);
        let pages = bytes.map(|(byte, _)| u64::from(byte.count_ones())).sum();
        (UsedLength(len), pages)
    }
}

/// How many bytes from the start of `entry` on are proved zero, and stay so
/// when `written` has been written to.
fn zeroed_from_start(entry: GuestRange, zeroed: &[Zeroed], written: &[GuestRange]) -> u64 {
    let first = zeroed.partition_point(|proof| proof.range().end() <= entry.start());
    let mut end = entry.start();
    for range in zeroed.iter().skip(first).map(Zeroed::range) {
        if range.start() > end || end >= entry.end() {
            break;
        }
        end = range.end();
    }
    let first = written.partition_point(|range| range.end() <= entry.start());
    if let Some(range) = written.get(first) {
        end = end.min(range.start().max(entry.start()));
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
        promise(&entries, &mut zeroed, &[]).bytes()
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
        let entries = [Some(range(A))];
        assert_eq!(promise(&entries, &mut zeroed, &[]).bytes(), 0x1000);
        assert_eq!(promise(&entries, &mut zeroed, &[]), UsedLength::NOTHING);
    }

    #[test]
    fn n03_a_run_ends_where_the_device_writes_itself() {
        // Both entries are zeroed; where the device writes; what is promised.
        let table: [(&[(u64, u64)], u32); 7] = [
            (&[], 0x5000),
            (&[(0x2000, 4), (0x7000, 0x1000), (0xc000, 8)], 0x5000),
            (&[(0x1800, 8)], 0x800),
            (&[(0x1000, 8)], 0),
            (&[(0xff8, 9)], 0),
            (&[(0xbfff, 1)], 0x4fff),
            (&[(0x1ff0, 0x6100), (0x8800, 8)], 0xff0),
        ];
        for (written, expected) in table {
            let mut zeroed: Vec<_> = [A, C].map(|z| Zeroed::vouch(range(z), 0)).into();
            let written: Vec<_> = written.iter().copied().map(range).collect();
            let used = promise(&[Some(range(A)), Some(range(C))], &mut zeroed, &written);
            assert_eq!(used.bytes(), expected, "{written:x?}");
        }
    }

    /// The bitmap for page numbers in the order of a request.
    fn bitmap(pfns: &[u32], zeroed: &[(u64, u64)], written: &[(u64, u64)]) -> PageBitmap {
        let mut named: Vec<_> = (0..)
            .zip(pfns)
            .map(|(position, pfn)| NamedPage {
                pfn: *pfn,
                position,
            })
            .collect();
        named.sort_unstable();
        let mut zeroed: Vec<_> = zeroed.iter().map(|z| Zeroed::vouch(range(*z), 0)).collect();
        let written: Vec<_> = written.iter().copied().map(range).collect();
        let mut bitmap = PageBitmap::default();
        bitmap.promise(&named, &mut zeroed, &written);
        assert!(zeroed.is_empty(), "a promise uses its proofs up");
        bitmap
    }

    #[test]
    fn n06_n13_bit_n_is_the_nth_page_of_the_request() {
        let bits = |pfns: &[u32], zeroed: &[(u64, u64)]| bitmap(pfns, zeroed, &[]).bytes;
        assert_eq!(bits(&[3, 0, 2, 1], &[(0x2000, 0x1000)]), [0b0100]);
        assert_eq!(bits(&[3, 0, 2, 1], &[(0, 0x2000)]), [0b1010]);
        let nine: Vec<u32> = (0..9).collect();
        assert_eq!(bits(&nine, &[(0, 0x9000)]), [0xff, 0x01]);
        assert_eq!(bits(&nine, &[]), [0, 0]);
        assert_eq!(bits(&[], &[(0, 0x9000)]), [] as [u8; 0]);
        assert_eq!(bits(&[7, 7, 8], &[(0x7000, 0x1000)]), [0b011], "twice");
        // Two proofs may make up a page, and less than a page is none.
        assert_eq!(bits(&[1], &[(0x1000, 0x800), (0x1800, 0x800)]), [1]);
        assert_eq!(bits(&[1], &[(0x1000, 0xfff)]), [0]);
        assert_eq!(bits(&[u32::MAX], &[(0, 0x1000)]), [0]);
    }

    #[test]
    fn n03_a_page_the_device_writes_to_has_no_bit() {
        for (written, expected) in [
            ((0x1fff, 1), 0b101_u8),
            ((0x1000, 1), 0b101),
            ((0x1fff, 2), 0b001),
            ((0x3000, 1), 0b111),
            ((0, 0x3000), 0),
        ] {
            let bitmap = bitmap(&[0, 1, 2], &[(0, 0x3000)], &[written]);
            assert_eq!(bitmap.bytes(), [expected], "{written:x?}");
        }
    }

    #[test]
    fn n07_only_bytes_that_were_written_promise_anything() {
        let pfns: Vec<u32> = (0..20).collect();
        let bitmap = bitmap(&pfns, &[(0, 20 << 12)], &[]);
        for (len, pages) in [(0, 0), (1, 8), (2, 16), (3, 20), (9, 20)] {
            assert_eq!(bitmap.written(len), (UsedLength(len), pages));
        }
    }
}
