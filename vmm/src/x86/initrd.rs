//! Reads the initial RAM file system into guest memory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::address_map::low_ram_end;

/// It is placed at a multiple of this.
const PAGE: u64 = 4096;

/// An initrd in guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadedInitrd {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Why an initrd cannot be used.
#[derive(Debug, Error)]
pub enum InitrdError {
    /// It cannot be read.
    #[error("kernel.initrd {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It is a directory, empty, or the like.
    #[error("kernel.initrd {path}: {reason}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no room for it.
    #[error(
        "kernel.initrd {path}: has {} MiB, and beside the kernel only {} MiB of guest RAM \
         are left: raise memory.size",
        len.div_ceil(1 << 20), room >> 20
    )]
    TooLittleRam {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// Bytes of guest RAM it could have.
        room: u64,
    },
}

/// The kernel is in the first page of 1 GiB: where the initrd is as well, no second
/// one is populated, and cleared, before the guest runs.
const FIRST_GIGANTIC_PAGE: u64 = 1 << 30;

/// Reads the initrd at `path` into `memory`, as high in the first GiB as possible,
/// or if it does not fit there, as high as possible at all: below `addr_max` and
/// above the kernel, which ends at `kernel_end`.
///
/// # Errors
/// [`InitrdError`], one line with the path and what is wrong.
pub fn load(
    path: &Path,
    memory: &GuestMemoryMmap,
    kernel_end: u64,
    addr_max: u64,
) -> Result<LoadedInitrd, InitrdError> {
    let read = |source| InitrdError::Read {
        path: path.to_path_buf(),
        source,
    };
    let bad = |reason| InitrdError::Bad {
        path: path.to_path_buf(),
        reason,
    };
    let metadata = path.metadata().map_err(read)?;
    if !metadata.is_file() {
        return Err(bad("is not a regular file"));
    }
    let len = metadata.len();
    if len == 0 {
        return Err(bad("is empty"));
    }
    let end = low_ram_end(memory).min(addr_max.saturating_add(1));
    let start = place(len, kernel_end, end.min(FIRST_GIGANTIC_PAGE))
        .or_else(|_| place(len, kernel_end, end))
        .map_err(|room| InitrdError::TooLittleRam {
            path: path.to_path_buf(),
            len,
            room,
        })?;
    let mut file = File::open(path).map_err(read)?;
    // Fits, because it lies below the end of guest RAM.
    let count = usize::try_from(len).map_err(|_| bad("is too large"))?;
    memory
        .read_exact_volatile_from(GuestAddress(start), &mut file, count)
        .map_err(|error| read(io::Error::other(error)))?;
    Ok(LoadedInitrd { start, len })
}

/// The highest page at which `len` bytes fit between `kernel_end` and `end`, or
/// how many bytes would.
fn place(len: u64, kernel_end: u64, end: u64) -> Result<u64, u64> {
    let bottom = kernel_end.div_ceil(PAGE).saturating_mul(PAGE);
    let start = end.checked_sub(len).map(|start| start / PAGE * PAGE);
    start
        .filter(|start| *start >= bottom)
        .ok_or(end.saturating_sub(bottom))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_lies_as_high_as_a_page_boundary_allows() {
        assert_eq!(place(0x1000, 0x200_0000, 0x1000_0000), Ok(0xfff_f000));
        assert_eq!(place(0x1001, 0x200_0000, 0x1000_0000), Ok(0xfff_e000));
        assert_eq!(place(0x1, 0x200_0000, 0x7fff_ffff), Ok(0x7fff_f000));
    }

    #[test]
    fn where_it_does_not_fit_the_room_is_told() {
        assert_eq!(place(0x2000, 0x1000, 0x2fff), Err(0x1fff));
        assert_eq!(place(0x2000, 0x1000, 0x3000), Ok(0x1000));
        assert_eq!(place(0x2001, 0x1000, 0x3000), Err(0x2000));
        assert_eq!(place(10 << 30, 0x1000, 0x3000), Err(0x2000));
        assert_eq!(place(1, u64::MAX, 0x3000), Err(0));
    }

    proptest! {
        #[test]
        fn it_never_overlaps_the_kernel_nor_passes_the_end(
            len in 1..1_u64 << 40, kernel_end in 0..1_u64 << 33, end in 0..1_u64 << 33,
        ) {
            match place(len, kernel_end, end) {
                Ok(start) => {
                    prop_assert!(start >= kernel_end && start + len <= end);
                    prop_assert_eq!(start % PAGE, 0);
                }
                Err(room) => prop_assert!(room < len + PAGE),
            }
        }
    }

    fn memory(len: usize) -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), len)]).unwrap()
    }

    #[test]
    fn its_bytes_arrive() {
        let path = std::env::temp_dir().join(format!("initrd-test-{}", std::process::id()));
        std::fs::write(&path, b"contents of the initrd").unwrap();
        const MIB: u64 = 1 << 20;
        for (ram, kernel_end, addr_max, end) in [
            (4 * MIB, MIB, 0x7fff_ffff, 4 * MIB),
            (3072 * MIB, MIB, 0x7fff_ffff, 1024 * MIB),
            (3072 * MIB, MIB, 512 * MIB - 1, 512 * MIB),
            // No room in the first GiB.
            (3072 * MIB, 1024 * MIB, 0x7fff_ffff, 2048 * MIB),
        ] {
            let memory = memory(usize::try_from(ram).unwrap());
            let start = end - 4096;
            let loaded = load(&path, &memory, kernel_end, addr_max).unwrap();
            assert_eq!(loaded, LoadedInitrd { start, len: 22 });
            let mut read = [0; 22];
            memory.read_slice(&mut read, GuestAddress(start)).unwrap();
            assert_eq!(&read, b"contents of the initrd");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_an_initrd_is_named_with_its_reason() {
        let memory = memory(4 << 20);
        let message = |path: &str| {
            let error = load(Path::new(path), &memory, 0x10_0000, 0x7fff_ffff);
            error.unwrap_err().to_string()
        };
        assert!(message("/nonexistent/initrd").contains("No such file"));
        assert_eq!(message("/"), "kernel.initrd /: is not a regular file");
        assert_eq!(
            message("/dev/null"),
            "kernel.initrd /dev/null: is not a regular file"
        );
    }
}
