//! Memory of any kind of pages.

use super::anonymous_memory::{AnonymousMemory, DIRT};
use super::shared_memory::SharedMemory;
use super::zero_scan::{ZeroScan, scan};
use crate::failure::StepError;
use crate::steps::page_kind::BASE_PAGE_BYTES;
use crate::steps::table::{FileState, Region};

/// A mapping; unmapped when dropped.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Private and anonymous.
    Anonymous(AnonymousMemory),
    /// Shared.
    Shared(SharedMemory),
}

impl Memory {
    /// Maps `region` without touching it; shared memory over a file in the state `file`.
    pub(crate) fn map(region: Region, file: FileState) -> Result<Self, StepError> {
        Ok(if region.kind.is_shared() {
            Self::Shared(SharedMemory::map(region, file)?)
        } else {
            Self::Anonymous(AnonymousMemory::map(region)?)
        })
    }

    /// Allocates all pages in one call.
    pub(crate) fn populate(&self) -> Result<(), StepError> {
        self.populate_range(0, self.len())
    }

    /// Allocates all pages of `page_bytes`, each by a fault at `offset` within it.
    pub(crate) fn populate_at(&self, offset: u64, page_bytes: u64) -> Result<(), StepError> {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        (0..self.len())
            .step_by(bytes(page_bytes).max(1))
            .try_for_each(|page| {
                self.populate_range(page.saturating_add(bytes(offset)), bytes(BASE_PAGE_BYTES))
            })
    }

    fn populate_range(&self, offset: usize, len: usize) -> Result<(), StepError> {
        match self {
            Self::Anonymous(memory) => memory.populate_range(offset, len),
            Self::Shared(memory) => memory.populate(offset, len),
        }
        .map_err(|source| StepError::Memory {
            call: "madvise(MADV_POPULATE_WRITE)",
            bytes: len as u64,
            source,
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Anonymous(memory) => memory.bytes().len(),
            Self::Shared(memory) => memory.len(),
        }
    }

    /// Reads every byte.
    pub(crate) fn scan(&self) -> Result<ZeroScan, StepError> {
        match self {
            Self::Anonymous(memory) => Ok(scan(memory.bytes())),
            Self::Shared(memory) => memory.scan(),
        }
    }

    /// Fills it with non-zero bytes.
    pub(crate) fn dirty(&mut self) -> Result<(), StepError> {
        match self {
            Self::Anonymous(memory) => memory.dirty(),
            Self::Shared(memory) => memory.dirty()?,
        }
        Ok(())
    }

    /// Writes the first 8 bytes of each page, if it is private.
    pub(crate) fn write_pages(&mut self) {
        let Self::Anonymous(memory) = self else {
            return;
        };
        for page in memory.bytes_mut().chunks_exact_mut(4096) {
            if let Some(word) = page.first_chunk_mut::<8>() {
                *word = [DIRT; 8];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::page_kind::PageKind;

    #[test]
    fn every_page_is_faulted_in_at_the_offset() {
        for kind in [PageKind::Thp, PageKind::Small, PageKind::Shmem(4096)] {
            let region = Region {
                bytes: 4 << 20,
                kind,
            };
            let page = kind.page_bytes();
            let mut memory = Memory::map(region, FileState::Hole).unwrap();
            memory.populate_at(page - BASE_PAGE_BYTES, page).unwrap();
            assert_eq!(memory.scan().unwrap().nonzero_bytes, 0, "{kind}");
            memory.dirty().unwrap();
            assert_eq!(memory.scan().unwrap().nonzero_bytes, 4 << 20, "{kind}");
        }
    }
}
