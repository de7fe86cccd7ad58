//! Which pages are in the balloon, and which backing pages are in it whole.
//!
//! One bit for each 4 KiB page of guest RAM (32 KiB for a GiB), allocated when
//! the device is made. Nothing a guest does makes it grow.

use std::io;
use std::ops::Range;

use fixedbitset::FixedBitSet;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::guest_range::GuestRange;
use super::host_zeroes::ZeroGuestRange;
use super::spec::PFN_SHIFT;

/// Bytes of the unit of page numbers.
const PAGE: u64 = 1 << PFN_SHIFT;

/// Which backing pages an inflate request completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completes {
    /// Those whose last page it brings, whenever the others came. Only where
    /// the driver waits for the answer to a deflate request (MUST_TELL_HOST):
    /// one that does not may be using a page again that its request to deflate
    /// is still under way for.
    WithEarlier,
    /// Those of which it brings every page.
    Alone,
}

/// The balloon's contents, page by page.
#[derive(Debug)]
pub(crate) struct BalloonPages {
    regions: Vec<(Region, FixedBitSet)>,
}

/// One region of guest RAM, by page numbers. In the set of what is inside,
/// pages count from its first.
#[derive(Debug, Clone, Copy)]
struct Region {
    first: u64,
    pages: usize,
    /// Pages that make up one backing page.
    per_backing: usize,
}

impl BalloonPages {
    /// An empty balloon over `memory`, whose backing pages `ram` knows.
    ///
    /// # Errors
    /// `InvalidInput` for memory or backing pages that are not made of whole
    /// 4 KiB pages, or not aligned.
    pub(crate) fn of(memory: &GuestMemoryMmap, ram: &dyn ZeroGuestRange) -> io::Result<Self> {
        let regions = memory.iter().map(|region| {
            let (start, len) = (region.start_addr().0, region.len());
            let page_size = ram.page_size(start);
            let region = Region::of(start, len, page_size).ok_or_else(|| {
                let what = format!(
                    "guest RAM at {start:#x}, {len:#x} bytes, is not made of pages of 4 KiB \
                     in aligned backing pages of {page_size:#x}"
                );
                io::Error::new(io::ErrorKind::InvalidInput, what)
            })?;
            Ok((region, FixedBitSet::with_capacity(region.pages)))
        });
        let regions = regions.collect::<io::Result<_>>()?;
        Ok(Self { regions })
    }

    /// Whether there is such a page.
    pub(crate) fn is_ram(&self, pfn: u32) -> bool {
        let mut regions = self.regions.iter();
        regions.any(|(region, _)| region.index(pfn).is_some())
    }

    /// Puts pages in, and adds the backing pages that this completes to `whole`:
    /// ascending, as `pfns` are, each once.
    pub(crate) fn put_in(
        &mut self,
        pfns: &[u32],
        completes: Completes,
        whole: &mut Vec<GuestRange>,
    ) {
        for (region, inside) in &mut self.regions {
            let backing_pages = pfns.chunk_by(|a, b| region.backing(*a) == region.backing(*b));
            for pfns in backing_pages {
                let mut any_new = false;
                for index in pfns.iter().filter_map(|pfn| region.index(*pfn)) {
                    any_new |= !inside.put(index);
                }
                let backing = pfns.first().and_then(|pfn| region.backing(*pfn));
                let Some(pages) = backing.and_then(|backing| region.pages_of(backing)) else {
                    continue;
                };
                let with_earlier = completes == Completes::WithEarlier && any_new;
                if pfns.len() == region.per_backing
                    || with_earlier && inside.contains_all_in_range(pages.clone())
                {
                    let start = region.first.saturating_add(pages.start as u64);
                    whole.extend(GuestRange::new(start * PAGE, pages.len() as u64 * PAGE));
                }
            }
        }
    }

    /// Takes pages out.
    pub(crate) fn take_out(&mut self, pfns: &[u32]) {
        for (region, inside) in &mut self.regions {
            for index in pfns.iter().filter_map(|pfn| region.index(*pfn)) {
                inside.remove(index);
            }
        }
    }

    /// Takes all pages out.
    pub(crate) fn clear(&mut self) {
        for (_, inside) in &mut self.regions {
            inside.clear();
        }
    }
}

impl Region {
    fn of(start: u64, len: u64, page_size: u64) -> Option<Self> {
        let sound = page_size.is_power_of_two()
            && page_size >= PAGE
            && start % page_size == 0
            && len % PAGE == 0;
        sound.then_some(Self {
            first: start / PAGE,
            pages: usize::try_from(len / PAGE).ok()?,
            per_backing: usize::try_from(page_size / PAGE).ok()?,
        })
    }

    /// Its place in the region, if it is in it.
    fn index(self, pfn: u32) -> Option<usize> {
        let index = usize::try_from(u64::from(pfn).checked_sub(self.first)?).ok()?;
        (index < self.pages).then_some(index)
    }

    /// The number of its backing page, if it is in the region.
    fn backing(self, pfn: u32) -> Option<usize> {
        self.index(pfn).map(|index| index / self.per_backing)
    }

    /// The places of all pages of a backing page, unless the region ends first.
    fn pages_of(self, backing: usize) -> Option<Range<usize>> {
        let start = backing * self.per_backing;
        let end = start + self.per_backing;
        (end <= self.pages).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balloon::host_zeroes::{ZeroBy, ZeroError, Zeroed};
    use vm_memory::GuestAddress;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// Backing pages of a size; nothing else is asked of it here.
    struct OnPages(u64);

    impl ZeroGuestRange for OnPages {
        fn page_size(&self, _region: u64) -> u64 {
            self.0
        }
        fn zero(&self, range: GuestRange, _by: ZeroBy) -> Result<Zeroed, ZeroError> {
            Err(ZeroError::NotRam(range))
        }
        fn release(&self, range: GuestRange) -> Result<u64, ZeroError> {
            Err(ZeroError::NotRam(range))
        }
        fn make_present(&self, range: GuestRange) -> Result<(), ZeroError> {
            Err(ZeroError::NotRam(range))
        }
    }

    /// A balloon over regions of (start, length), which are mapped and never
    /// touched.
    fn balloon(regions: &[(u64, u64)], page_size: u64) -> io::Result<BalloonPages> {
        let regions = regions.iter();
        let regions: Vec<_> = regions
            .map(|(start, len)| (GuestAddress(*start), usize::try_from(*len).unwrap()))
            .collect();
        let memory = GuestMemoryMmap::from_ranges(&regions).unwrap();
        BalloonPages::of(&memory, &OnPages(page_size))
    }

    fn pfns(range: Range<u64>) -> Vec<u32> {
        let numbers = range.start / PAGE..range.end / PAGE;
        numbers.map(|pfn| u32::try_from(pfn).unwrap()).collect()
    }

    /// The backing pages that are completed: start and end of each.
    fn put_in(balloon: &mut BalloonPages, pfns: &[u32], completes: Completes) -> Vec<(u64, u64)> {
        let mut whole = Vec::new();
        balloon.put_in(pfns, completes, &mut whole);
        whole.iter().map(|w| (w.start(), w.end())).collect()
    }

    #[test]
    fn i15_a_1g_page_is_whole_with_the_last_of_its_262144_pages() {
        use Completes::WithEarlier;
        let mut balloon = balloon(&[(0, 2 * GIB), (4 * GIB, GIB)], GIB).unwrap();
        let mut pages = pfns(GIB..2 * GIB);
        assert_eq!(pages.len(), 262_144);
        let last = pages.remove(99_999);
        for part in pages.chunks(65_536).rev() {
            assert!(put_in(&mut balloon, part, WithEarlier).is_empty());
        }
        assert_eq!(put_in(&mut balloon, &[last], WithEarlier), [(GIB, 2 * GIB)]);
        assert!(
            put_in(&mut balloon, &[last], WithEarlier).is_empty(),
            "not new"
        );
        balloon.take_out(&[last]);
        assert_eq!(put_in(&mut balloon, &[last], WithEarlier), [(GIB, 2 * GIB)]);
        balloon.clear();
        assert!(put_in(&mut balloon, &[last], WithEarlier).is_empty());
    }

    #[test]
    fn i15_one_bit_for_each_page_is_all_it_takes() {
        let balloon = balloon(&[(0, 2 * GIB), (4 * GIB, GIB)], 2 * MIB).unwrap();
        let regions = balloon.regions.iter();
        let bytes: usize = regions.map(|(_, inside)| inside.as_slice().len() * 8).sum();
        assert_eq!(bytes, 3 * (32 << 10));
    }

    #[test]
    fn pages_of_several_regions_and_of_none_are_told_apart() {
        use Completes::{Alone, WithEarlier};
        for completes in [Alone, WithEarlier] {
            let regions = [(0, 4 * MIB), (8 * MIB, 4 * MIB)];
            let mut balloon = balloon(&regions, 2 * MIB).unwrap();
            let all = pfns(MIB..16 * MIB);
            let whole = [(2, 4), (8, 10), (10, 12)].map(|(start, end)| (start * MIB, end * MIB));
            assert_eq!(put_in(&mut balloon, &all, completes), whole);
            balloon.take_out(&all);
            for (pfn, is_ram) in [(0, true), (1023, true), (1024, false), (u32::MAX, false)] {
                assert_eq!(balloon.is_ram(pfn), is_ram, "{pfn}");
            }
            assert!(put_in(&mut balloon, &[1024, u32::MAX], completes).is_empty());
        }
    }

    #[test]
    fn i05_a_page_is_completed_by_its_last_piece_or_by_all_at_once() {
        for (completes, with_earlier) in [(Completes::Alone, 0), (Completes::WithEarlier, 1)] {
            let mut balloon = balloon(&[(0, 4 * MIB)], 2 * MIB).unwrap();
            let page = pfns(0..2 * MIB);
            assert!(put_in(&mut balloon, &page[..511], completes).is_empty());
            let whole = put_in(&mut balloon, &page[511..], completes);
            assert_eq!(whole.len(), with_earlier, "{completes:?}");
            assert_eq!(put_in(&mut balloon, &page, completes), [(0, 2 * MIB)]);
        }
    }

    #[test]
    fn the_rest_of_a_region_that_is_no_whole_page_is_never_completed() {
        let mut balloon = balloon(&[(0, 3 * MIB)], 2 * MIB).unwrap();
        let whole = put_in(&mut balloon, &pfns(0..3 * MIB), Completes::WithEarlier);
        assert_eq!(whole, [(0, 2 * MIB)]);
    }

    #[test]
    fn memory_that_cannot_be_counted_is_refused() {
        for (start, len, page_size) in [
            (0, 4 * MIB, 0),
            (0, 4 * MIB, 2048),
            (0, 4 * MIB, 3 * 4096),
            (0, 4096 + 512, 4096),
            (MIB, 4 * MIB, 2 * MIB),
        ] {
            let refused = balloon(&[(start, len)], page_size).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            let sizes = format!("{page_size:#x}");
            assert!(refused.to_string().contains(&sizes), "{refused}");
        }
    }
}
