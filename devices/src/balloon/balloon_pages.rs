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
