//! From a configuration to mapped regions: one function per way of backing.
// UNSAFETY: memfd_create, and choosing where the kernel maps.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{FileOffset, MmapRegion};

use super::error::MemoryError;
use crate::config;

/// What a transparent huge page is aligned to (x86-64: one PMD).
pub(super) const THP_BYTES: usize = 2 << 20;

/// A smaller hole above, or another thread, can be in the way: a few times.
const ALIGN_ATTEMPTS: usize = 8;

/// How guest RAM is backed, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backing {
    /// Pool, THP or plain pages.
    pub(super) kind: config::Backing,
    /// Bytes of a backing page: what can go back to the host on its own.
    pub(super) page: usize,
    /// A memfd that could be mapped elsewhere, instead of anonymous memory.
    pub(super) shared: bool,
    /// Huge pages are reserved when mapped, so that no fault can find the pool
    /// empty.
    pub(super) reserved: bool,
}

impl Backing {
    /// # Errors
    /// [`MemoryError::NotHugetlbPage`], [`MemoryError::NotWholePages`].
    pub(super) fn of(config: &config::Memory) -> Result<Self, MemoryError> {
        let page = match (config.backing, config.page) {
            (
                config::Backing::Hugetlb,
                page @ (config::PageSize::Size2M | config::PageSize::Size1G),
            ) => page,
            (config::Backing::Hugetlb, page @ config::PageSize::Size4K) => {
                return Err(MemoryError::NotHugetlbPage {
                    page: super::byte_size::ByteSize(page.bytes()),
                });
            }
            // A part of a transparent huge page can go back on its own.
            (config::Backing::Thp | config::Backing::Pages, _) => config::PageSize::Size4K,
        }
        .bytes();
        match usize::try_from(page) {
            Ok(host_page) if config.size > 0 && config.size % page == 0 => Ok(Self {
                kind: config.backing,
                page: host_page,
                shared: config.shared,
                reserved: !config.overcommit,
            }),
            _ => Err(MemoryError::not_whole_pages(config.size, page)),
        }
    }

    /// Whether a hugetlb pool backs it.
    pub(super) fn is_hugetlb(self) -> bool {
        self.kind == config::Backing::Hugetlb
    }

    /// Maps `len` bytes of it.
    ///
    /// # Errors
    /// The system call that failed, and its error.
    pub(super) fn map(self, len: usize) -> Result<MmapRegion, (&'static str, io::Error)> {
        let build = || {
            if self.shared {
                self.map_memfd(len)
            } else {
                self.map_anonymous(len)
            }
        };
        let region = build()?;
        if self.kind != config::Backing::Thp || len < THP_BYTES || !misaligned(&region) {
            return Ok(region);
        }
        self.map_aligned(region, build)
    }

    /// Kernels before 6.7 do not align mappings to huge pages by themselves, and
    /// later ones only those whose length is a multiple.
    fn map_aligned(
        self,
        mut region: MmapRegion,
        build: impl Fn() -> Result<MmapRegion, (&'static str, io::Error)>,
    ) -> Result<MmapRegion, (&'static str, io::Error)> {
        let len = region.size();
        let mut walls = Vec::new();
        for _ in 0..ALIGN_ATTEMPTS {
            // Where it was, there is just enough room for it to come again.
            let address = region.as_ptr() as usize;
            drop(region);
            walls.extend(Wall::at(address, len));
            let hole = aligned_hole(len).map_err(|error| ("mmap", error))?;
            region = build()?;
            drop(hole);
            if !misaligned(&region) {
                return Ok(region);
            }
        }
        log::warn!("guest RAM is not aligned to 2M: the host cannot use huge pages for all of it");
        Ok(region)
    }

    fn map_anonymous(self, len: usize) -> Result<MmapRegion, (&'static str, io::Error)> {
        let huge = match (self.is_hugetlb(), self.page) {
            (false, _) => 0,
            (true, THP_BYTES) => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
            (true, _) => libc::MAP_HUGETLB | libc::MAP_HUGE_1GB,
        };
        MmapRegionBuilder::new(len)
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge | self.no_reserve())
            .with_hugetlbfs(self.is_hugetlb())
            .build()
            .map_err(mmap_error)
    }

    fn map_memfd(self, len: usize) -> Result<MmapRegion, (&'static str, io::Error)> {
        let huge = match (self.is_hugetlb(), self.page) {
            (false, _) => 0,
            (true, THP_BYTES) => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            (true, _) => libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
        };
        let file = memfd(huge).map_err(|error| ("memfd_create", error))?;
        file.set_len(len as u64)
            .and_then(|()| seal_size(&file))
            .map_err(|error| ("ftruncate", error))?;
        MmapRegionBuilder::new(len)
            .with_file_offset(FileOffset::new(file, 0))
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_SHARED | self.no_reserve())
            .with_hugetlbfs(self.is_hugetlb())
            .build()
            .map_err(mmap_error)
    }

    fn no_reserve(self) -> libc::c_int {
        if self.reserved {
            0
        } else {
            libc::MAP_NORESERVE
        }
    }
}

fn misaligned(region: &MmapRegion) -> bool {
    region.as_ptr().align_offset(THP_BYTES) != 0
}

fn mmap_error(error: MmapRegionError) -> (&'static str, io::Error) {
    match error {
        MmapRegionError::Mmap(error) => ("mmap", error),
        other => ("mmap", io::Error::other(other)),
    }
}

fn memfd(huge: libc::c_uint) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | huge;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"guest-ram".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Whoever gets the descriptor cannot shrink the file under the mapping.
fn seal_size(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: takes and changes no memory.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a hole in the address space with an aligned start and exactly the
/// length of a mapping to come, and returns the walls on both sides. The kernel,
/// which maps as high as it can, maps there next, unless another thread is
/// quicker or there is a smaller hole above.
fn aligned_hole(len: usize) -> io::Result<[Option<Wall>; 2]> {
    let total = len
        .checked_add(THP_BYTES)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    let wall = Wall::map(0, total, 0)?;
    let (begin, end) = (wall.address, wall.address + total);
    let hole = begin.next_multiple_of(THP_BYTES);
    drop(wall);
    Ok([
        Wall::at(begin, hole - begin),
        Wall::at(hole + len, end - hole - len),
    ])
}

/// Addresses that nothing else is mapped at while it exists.
struct Wall {
    address: usize,
    len: usize,
}

impl Wall {
    /// At this very place, or not at all: it may be empty, or taken meanwhile.
    fn at(address: usize, len: usize) -> Option<Self> {
        Self::map(address, len, libc::MAP_FIXED_NOREPLACE).ok()
    }

    fn map(address: usize, len: usize, place: libc::c_int) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | place;
        // SAFETY: a new mapping that nobody can access, where nothing is mapped:
        // the kernel chooses the place or refuses a place that is taken.
        let got = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                len,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address: got as usize,
            len,
        })
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, which nobody can access.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.len) };
    }
}
