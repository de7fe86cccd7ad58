//! A file of hugetlb pages, which exists in memory only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use super::zero_scan::{ZeroScan, scan};
use crate::failure::StepError;

/// How much is read at once, in bytes.
const CHUNK: usize = 1 << 16;
/// The base two logarithm of the page size is here in the flags of memfd_create(2).
const MFD_HUGE_SHIFT: u32 = 26;

/// A file of hugetlb pages; they are freed when it is dropped.
#[derive(Debug)]
pub(crate) struct HugetlbFile {
    file: File,
    bytes: u64,
}

impl HugetlbFile {
    /// Makes a file that is to hold `bytes` in pages of `page_bytes`, without
    /// allocating any.
    pub(crate) fn create(bytes: u64, page_bytes: u64) -> Result<Self, StepError> {
        let size = MemfdFlags::from_bits_retain(page_bytes.trailing_zeros() << MFD_HUGE_SHIFT);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | size;
        let file = memfd_create("guest-init", flags)
            .map_err(|source| failed("memfd_create(MFD_HUGETLB)", bytes, source.into()))?;
        Ok(Self {
            file: file.into(),
            bytes,
        })
    }

    /// Allocates all pages: the `fallocate` call and nothing else.
    pub(crate) fn allocate(&self) -> Result<(), StepError> {
        fallocate(&self.file, FallocateFlags::empty(), 0, self.bytes)
            .map_err(|source| failed("fallocate", self.bytes, source.into()))
    }

    /// Reads every byte.
    pub(crate) fn scan(&self) -> Result<ZeroScan, StepError> {
        let mut found = ZeroScan::default();
        let mut chunk = vec![0; CHUNK];
        while found.bytes < self.bytes {
            let read = self
                .file
                .read_at(&mut chunk, found.bytes)
                .map_err(|source| failed("read", self.bytes, source))?;
            match chunk.get(..read) {
                Some(part) if read > 0 => found.append(scan(part)),
                _ => {
                    return Err(failed(
                        "read",
                        self.bytes,
                        io::ErrorKind::UnexpectedEof.into(),
                    ));
                }
            }
        }
        Ok(found)
    }
}

fn failed(call: &'static str, bytes: u64, source: io::Error) -> StepError {
    StepError::Memory {
        call,
        bytes,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::page_kind::PMD_PAGE_BYTES;

    #[test]
    fn what_was_not_allocated_cannot_be_read_nor_more_than_there_is_allocated() {
        // A kernel without such pages refuses already to make the file.
        let Ok(file) = HugetlbFile::create(1 << 50, PMD_PAGE_BYTES) else {
            eprintln!("skipped: no hugetlb pages of 2 MiB");
            return;
        };
        for (error, call) in [
            (file.scan().unwrap_err(), "read"),
            (file.allocate().unwrap_err(), "fallocate"),
        ] {
            let start = format!("{call} of 1125899906842624 bytes failed");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
    }
}
