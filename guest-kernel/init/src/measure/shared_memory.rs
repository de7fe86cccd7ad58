//! Shared memory of the kernel's shmem: what `MAP_SHARED | MAP_ANONYMOUS` maps,
//! and a memfd.
//!
//! Others can change shared memory at any time, so it is no slice of bytes. It
//! is read and written through `/proc/self/mem`, by address.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use super::anonymous_memory::DIRT;
use super::zero_scan::{ZeroScan, scan};
use crate::failure::StepError;
use crate::steps::page_kind::{BASE_PAGE_BYTES, PageKind};
use crate::steps::table::{FileState, Region};

const PAGE: usize = 4096;
/// Bytes that are read or written at a time.
const CHUNK: usize = 1 << 20;

/// A shared mapping; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    map: MmapRaw,
    /// The process's memory, by address.
    view: File,
    bytes: u64,
}

impl SharedMemory {
    /// Maps `region` without touching it, over a file in the state `file`.
    pub(crate) fn map(region: Region, file: FileState) -> Result<Self, StepError> {
        let failed = |call: &'static str| {
            move |source: std::io::Error| StepError::Memory {
                call,
                bytes: region.bytes,
                source,
            }
        };
        let backing = match region.kind {
            PageKind::Memfd(_) => {
                let memfd = memfd_create("guest-init", MemfdFlags::CLOEXEC)
                    .map(File::from)
                    .map_err(|error| failed("memfd_create")(error.into()))?;
                memfd.set_len(region.bytes).map_err(failed("ftruncate"))?;
                prepare(&memfd, region.bytes, file).map_err(failed("preparing a memfd"))?;
                memfd
            }
            // A shared mapping of it is the same as one that is anonymous.
            _ => open("/dev/zero").map_err(failed("opening /dev/zero"))?,
        };
        let len = usize::try_from(region.bytes)
            .map_err(|_| failed("mmap")(std::io::ErrorKind::OutOfMemory.into()))?;
        let map = MmapOptions::new()
            .len(len)
            .map_raw(&backing)
            .map_err(failed("mmap"))?;
        Ok(Self {
            map,
            view: open("/proc/self/mem").map_err(failed("opening /proc/self/mem"))?,
            bytes: region.bytes,
        })
    }

    /// Allocates `len` bytes from `offset` on with `MADV_POPULATE_WRITE`.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> std::io::Result<()> {
        self.map.advise_range(Advice::PopulateWrite, offset, len)
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Reads every byte.
    pub(crate) fn scan(&self) -> Result<ZeroScan, StepError> {
        let mut found = ZeroScan::default();
        let mut buffer = vec![0; CHUNK];
        self.chunks(|view, address, len| {
            let part = buffer.get_mut(..len).unwrap_or_default();
            view.read_exact_at(part, address)?;
            found.append(scan(part));
            Ok(())
        })?;
        Ok(found)
    }

    /// Fills it with non-zero bytes.
    pub(crate) fn dirty(&self) -> Result<(), StepError> {
        let dirt = vec![DIRT; CHUNK];
        self.chunks(|view, address, len| {
            view.write_all_at(dirt.get(..len).unwrap_or_default(), address)
        })
    }

    fn chunks(
        &self,
        mut each: impl FnMut(&File, u64, usize) -> std::io::Result<()>,
    ) -> Result<(), StepError> {
        let start = self.map.as_ptr().addr();
        for offset in (0..self.len()).step_by(CHUNK) {
            let len = CHUNK.min(self.len() - offset);
            each(&self.view, (start + offset) as u64, len).map_err(|source| StepError::Memory {
                call: "reading or writing shared memory",
                bytes: self.bytes,
                source,
            })?;
        }
        Ok(())
    }
}

fn open(path: &str) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Brings a memfd that is a hole into the state `file`.
fn prepare(memfd: &File, bytes: u64, file: FileState) -> std::io::Result<()> {
    if file == FileState::Hole {
        return Ok(());
    }
    fallocate(memfd, FallocateFlags::empty(), 0, bytes)?;
    if file == FileState::Punched {
        let every_second = || (0..bytes).step_by(2 * PAGE);
        for offset in every_second() {
            memfd.write_all_at(&[DIRT; PAGE], offset)?;
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for offset in every_second() {
            fallocate(memfd, punch, offset, BASE_PAGE_BYTES)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_shared_memory_is_zero_until_written() {
        for (kind, file) in [
            (PageKind::Shmem(4096), FileState::Hole),
            (PageKind::Memfd(4096), FileState::Hole),
            (PageKind::Memfd(4096), FileState::Fallocated),
            (PageKind::Memfd(4096), FileState::Punched),
        ] {
            let bytes = (2 << 20) + 4096;
            let memory = SharedMemory::map(Region { bytes, kind }, file).unwrap();
            memory.populate(0, memory.len()).unwrap();
            let found = memory.scan().unwrap();
            assert_eq!((found.bytes, found.nonzero_bytes), (bytes, 0), "{kind}");
            memory.dirty().unwrap();
            assert_eq!(memory.scan().unwrap().nonzero_bytes, bytes, "{kind}");
        }
    }

    #[test]
    fn dirt_is_found_where_it_is() {
        let region = Region {
            bytes: 4 << 20,
            kind: PageKind::Memfd(4096),
        };
        let memory = SharedMemory::map(region, FileState::Hole).unwrap();
        let address = memory.map.as_ptr().addr() as u64 + (3 << 20) + 5;
        memory.view.write_all_at(&[7], address).unwrap();
        let found = memory.scan().unwrap();
        assert_eq!(found.first_nonzero_offset_bytes, Some((3 << 20) + 5));
    }
}
