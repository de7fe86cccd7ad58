//! Private anonymous memory of a chosen kind of pages.

use memmap2::{Advice, MmapMut, MmapOptions};

use crate::failure::StepError;
use crate::steps::page_kind::{PMD_PAGE_BYTES, PageKind};
use crate::steps::table::Region;

/// What memory is dirtied with.
pub(crate) const DIRT: u8 = 0xAB;

/// A private anonymous mapping, aligned to 2 MiB; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct AnonymousMemory {
    map: MmapMut,
    /// Where the aligned part starts in `map`.
    start: usize,
    len: usize,
}

impl AnonymousMemory {
    /// Maps `region` without touching it, and says what pages it wants.
    pub(crate) fn map(region: Region) -> Result<Self, StepError> {
        let failed = |call: &'static str| {
            move |source| StepError::Memory {
                call,
                bytes: region.bytes,
                source,
            }
        };
        let too_large = || StepError::Memory {
            call: "mmap",
            bytes: region.bytes,
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        let len = usize::try_from(region.bytes).map_err(|_| too_large())?;
        let align = usize::try_from(PMD_PAGE_BYTES).map_err(|_| too_large())?;
        let mut options = MmapOptions::new();
        let advice = match region.kind {
            PageKind::Hugetlb(page) => {
                // hugetlb mappings are aligned by the kernel.
                options
                    .len(len)
                    .huge(u8::try_from(page.trailing_zeros()).ok());
                None
            }
            PageKind::Small => {
                options.len(len.saturating_add(align));
                Some(Advice::NoHugePage)
            }
            // Shared kinds are not for this type; see `Memory::map`.
            PageKind::Thp | PageKind::Mthp(_) | PageKind::Shmem(_) | PageKind::Memfd(_) => {
                options.len(len.saturating_add(align));
                Some(Advice::HugePage)
            }
        };
        let map = options.map_anon().map_err(failed("mmap"))?;
        let address = map.as_ptr().addr();
        let start = match advice {
            Some(_) => address.next_multiple_of(align) - address,
            None => 0,
        };
        let memory = Self { map, start, len };
        if let Some(advice) = advice {
            match memory.map.advise_range(advice, memory.start, memory.len) {
                // A kernel without THP refuses the advice, and has only small pages.
                Err(_) if region.kind == PageKind::Small => {}
                result => result.map_err(failed("madvise(MADV_HUGEPAGE)"))?,
            }
        }
        Ok(memory)
    }

    /// Allocates all pages: the `MADV_POPULATE_WRITE` call and nothing else.
    pub(crate) fn populate(&self) -> Result<(), StepError> {
        self.populate_range(0, self.len)
            .map_err(|source| StepError::Memory {
                call: "madvise(MADV_POPULATE_WRITE)",
                bytes: self.len as u64,
                source,
            })
    }

    /// Allocates the pages of `len` bytes from `offset` on.
    pub(crate) fn populate_range(&self, offset: usize, len: usize) -> std::io::Result<()> {
        let start = self.start.saturating_add(offset);
        self.map.advise_range(Advice::PopulateWrite, start, len)
    }

    /// The memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map
            .get(self.start..self.start.saturating_add(self.len))
            .unwrap_or_default()
    }

    /// The memory.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.map
            .get_mut(self.start..self.start.saturating_add(self.len))
            .unwrap_or_default()
    }

    /// Fills it with non-zero bytes.
    pub(crate) fn dirty(&mut self) {
        self.bytes_mut().fill(DIRT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::zero_scan::scan;

    #[test]
    fn fresh_memory_is_aligned_whole_and_zero_until_written() {
        for kind in [PageKind::Small, PageKind::Thp] {
            let region = Region {
                bytes: 4 << 20,
                kind,
            };
            let mut memory = AnonymousMemory::map(region).unwrap();
            memory.populate().unwrap();
            assert_eq!(memory.bytes().len(), 4 << 20);
            assert_eq!(memory.bytes().as_ptr().addr() % (2 << 20), 0);
            assert_eq!(scan(memory.bytes()).nonzero_bytes, 0);
            memory.dirty();
            assert_eq!(scan(memory.bytes()).nonzero_bytes, 4 << 20);
            memory.bytes_mut().fill(0);
            memory.bytes_mut()[4097] = 1;
            let found = scan(memory.bytes());
            assert_eq!(found.first_nonzero_offset_bytes, Some(4097));
        }
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        let region = Region {
            bytes: 1 << 50,
            kind: PageKind::Small,
        };
        let error = AnonymousMemory::map(region).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("mmap of 1125899906842624 bytes failed"),
            "{error}"
        );
    }
}
