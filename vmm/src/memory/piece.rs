//! A piece of guest RAM as the host sees it, and what can be done to it.
// UNSAFETY: system calls on, and stores to, mapped guest RAM by address.
#![expect(unsafe_code)]

use std::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use vm_memory::GuestRegionMmap;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::fallocate::{FallocateMode, fallocate};

use devices::balloon::guest_range::GuestRange;

/// Granularity of the host's page tables, and of every call here.
pub(super) const HOST_PAGE: usize = 4096;

/// A cache line, the unit of [`Piece::store_zeros`].
const LINE: usize = 64;

/// A non-empty piece of one region of guest RAM, in offsets into the region.
///
/// Guest RAM is shared with running vCPUs, so no Rust reference to its bytes
/// exists anywhere (vm-memory gives out volatile slices only). That is why
/// changing it here is sound at any time, whatever a guest makes of it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    region: &'a GuestRegionMmap,
    start: usize,
    end: usize,
}

/// What the kernel is told about guest RAM.
#[derive(Debug, Clone, Copy)]
pub(super) enum Advice {
    /// Drop whole pages of a private mapping.
    DontNeed,
    /// Fault pages in for writing, failing instead of raising SIGBUS.
    PopulateWrite,
    /// Fault pages in for reading, failing instead of raising SIGBUS.
    PopulateRead,
    /// Use transparent huge pages.
    HugePage,
    /// Use no transparent huge pages.
    NoHugePage,
    /// Leave it out of core dumps.
    DontDump,
    /// A child process does not inherit it.
    DontFork,
}

impl<'a> Piece<'a> {
    /// How many are dropped in one call at most: all blocks of a report of Linux, twice.
    pub(super) const TOGETHER: usize = 64;

    /// A whole region.
    pub(super) fn whole(region: &'a GuestRegionMmap) -> Self {
        Self {
            region,
            start: 0,
            end: region.size(),
        }
    }

    /// The pieces that make up `range`, or `None` if any byte of it is not RAM.
    pub(super) fn of_range(
        memory: &'a GuestMemoryMmap,
        range: GuestRange,
    ) -> Option<impl Iterator<Item = Self>> {
        let from = move |at: u64| {
            let region = memory.find_region(GuestAddress(at))?;
            let base = region.start_addr().0;
            let start = usize::try_from(at - base).ok()?;
            let end = usize::try_from(range.end() - base).unwrap_or(usize::MAX);
            let piece = Self::whole(region).part(start, end)?;
            Some((piece, base + piece.end as u64))
        };
        let mut at = range.start();
        while at < range.end() {
            (_, at) = from(at)?;
        }
        let mut at = range.start();
        Some(std::iter::from_fn(move || {
            let (piece, end) = from(at)?;
            at = end;
            Some(piece)
        }))
    }

    /// What lies in `start..end` of it (offsets into the region), or `None` if
    /// nothing does.
    pub(super) fn part(self, start: usize, end: usize) -> Option<Self> {
        let (start, end) = (start.max(self.start), end.min(self.end));
        (start < end).then_some(Self { start, end, ..self })
    }

    /// What it shares with `other` of the same region.
    pub(super) fn overlap(self, other: Self) -> Option<Self> {
        self.part(other.start, other.end)
    }

    /// The pages of `page` bytes (a power of two) that lie wholly inside.
    pub(super) fn whole_pages(self, page: usize) -> Option<Self> {
        let start = self.start.checked_next_multiple_of(page)?;
        self.part(start, self.end & !(page - 1))
    }

    /// From its start to the end of `last`, with what lies between.
    pub(super) fn through(self, last: Self) -> Self {
        Self {
            end: last.end.max(self.end),
            ..self
        }
    }

    /// Whether both are of the same region.
    pub(super) fn is_beside(self, other: Self) -> bool {
        std::ptr::eq(self.region, other.region)
    }

    /// It and what is missing to whole host pages on both sides.
    pub(super) fn in_host_pages(self) -> Self {
        Self {
            start: self.start & !(HOST_PAGE - 1),
            // Regions consist of whole host pages, so this stays inside.
            end: self.end.next_multiple_of(HOST_PAGE),
            ..self
        }
    }

    /// First byte, as an offset into the region.
    pub(super) fn start(self) -> usize {
        self.start
    }

    /// Past the last byte, as an offset into the region.
    pub(super) fn end(self) -> usize {
        self.end
    }

    /// Length in bytes, at least 1.
    pub(super) fn len(self) -> usize {
        self.end - self.start
    }

    /// First byte, as an address of this process.
    pub(super) fn host_address(self) -> usize {
        self.pointer() as usize
    }

    fn pointer(self) -> *mut u8 {
        // SAFETY: `start` is inside the mapping of `region`, which outlives it.
        unsafe { self.region.as_ptr().add(self.start) }
    }

    /// Drops `pieces`, whole pages of private mappings, with one call and one flush
    /// of the TLBs: `process_madvise(2)` on this very process, which Linux has from
    /// 6.13 on. At most [`Piece::TOGETHER`] of them.
    ///
    /// # Errors
    /// As the call, and `EIO` if it stopped half way. Success alone says nothing
    /// about the contents.
    pub(super) fn drop_all(pieces: &[Self], this_process: BorrowedFd<'_>) -> io::Result<()> {
        const FLAGS: libc::c_uint = 0;
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut vectors = [none; Self::TOGETHER];
        let mut bytes = 0;
        for (vector, piece) in vectors.iter_mut().zip(pieces) {
            vector.iov_base = piece.pointer().cast();
            vector.iov_len = piece.len();
            bytes += piece.len();
        }
        loop {
            // SAFETY: the vectors describe parts of mappings this process owns;
            // dropping pages unmaps nothing, about contents see `Piece`. The rest
            // of the array is empty ranges.
            let advised = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    this_process.as_raw_fd(),
                    vectors.as_ptr(),
                    pieces.len().min(Self::TOGETHER),
                    libc::MADV_DONTNEED,
                    FLAGS,
                )
            };
            if usize::try_from(advised) == Ok(bytes) && pieces.len() <= Self::TOGETHER {
                return Ok(());
            }
            if advised >= 0 {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                _ => return Err(error),
            }
        }
    }

    /// `madvise(2)`, retried while interrupted.
    ///
    /// # Errors
    /// As the call. Success alone says nothing about the contents.
    pub(super) fn advise(self, advice: Advice) -> io::Result<()> {
        let advice = match advice {
            Advice::DontNeed => libc::MADV_DONTNEED,
            Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
            Advice::PopulateRead => libc::MADV_POPULATE_READ,
            Advice::HugePage => libc::MADV_HUGEPAGE,
            Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
            Advice::DontDump => libc::MADV_DONTDUMP,
            Advice::DontFork => libc::MADV_DONTFORK,
        };
        loop {
            // SAFETY: the range is inside a mapping this process owns, and none
            // of the advices above unmaps; contents may change, see `Piece`.
            let result = unsafe { libc::madvise(self.pointer().cast(), self.len(), advice) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                _ => return Err(error),
            }
        }
    }

    /// Punches it out of the file behind a shared mapping: whole backing pages
    /// leave the file, parts of one are zeroed in it, and what the file does not
    /// hold stays absent.
    ///
    /// # Errors
    /// `EBADF` if there is no file; otherwise as `fallocate(2)`.
    pub(super) fn punch_hole(self) -> io::Result<()> {
        let file = self
            .region
            .file_offset()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let offset = file.start() + self.start as u64;
        fallocate(
            file.file(),
            FallocateMode::PunchHole,
            true,
            offset,
            self.len() as u64,
        )
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }

    /// Takes a new reservation for the pages of a hugetlb file that were
    /// punched out of it, by mapping them once more for a moment: the
    /// reservation of a shared mapping belongs to the file and stays.
    ///
    /// # Errors
    /// As `mmap(2)`: `ENOMEM` if the pool has promised its pages to others.
    pub(super) fn reserve_again(self) -> io::Result<()> {
        let bad_file = || io::Error::from_raw_os_error(libc::EBADF);
        let file = self.region.file_offset().ok_or_else(bad_file)?;
        let offset =
            libc::off_t::try_from(file.start() + self.start as u64).map_err(|_| bad_file())?;
        // SAFETY: a new mapping at an address of the kernel's choice, which
        // nobody can access.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                self.len(),
                libc::PROT_NONE,
                libc::MAP_SHARED,
                file.file().as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: exactly the mapping made above; nobody else knows it.
        unsafe { libc::munmap(address, self.len()) };
        Ok(())
    }

    /// For each of its host pages, whether a page is behind it in this process's
    /// page table (`mincore(2)`), present or on its way to another place: bit 0
    /// of a byte of `status`. What `status` has no room for is left out.
    ///
    /// # Errors
    /// As the call.
    pub(super) fn mapped(self, status: &mut [u8]) -> io::Result<()> {
        let pages = self.in_host_pages();
        let len = pages.len().min(status.len() * HOST_PAGE);
        // SAFETY: the range is inside a mapping of this process; one byte is
        // written for each host page, for which there is room.
        let result = unsafe { libc::mincore(pages.pointer().cast(), len, status.as_mut_ptr()) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Stores zeros to every byte, past the caches, and makes them visible to
    /// other CPUs before anything stored later.
    ///
    /// Why streaming stores: in a loop over 512 MiB of 2 MiB huge pages, in
    /// pieces of 2 MiB, on Linux 6.18 on an AMD EPYC, these 16 byte stores reach
    /// 34 to 46 GiB/s, as do 32 byte ones and `clzero`; `rep stosb`, `memset` and
    /// the kernel's own zeroing in a hole punch reach 12 to 14 GiB/s. On a busy
    /// machine all are slower and the ratio stays. They also leave the caches to
    /// the guest.
    ///
    /// A page that is absent is faulted in; the fault raises SIGBUS if the pool
    /// is empty. Whoever calls it has made sure that this cannot be.
    pub(super) fn store_zeros(self) {
        let begin = self.pointer();
        let head = begin.align_offset(LINE).min(self.len());
        let lines = (self.len() - head) / LINE;
        let tail = self.len() - head - lines * LINE;
        // SAFETY: head, lines and tail make up exactly `len` bytes from
        // `begin`, all inside the mapping; `begin + head` is aligned to LINE
        // where `lines` is not 0. About races with the guest see `Piece`.
        unsafe {
            store_zero_bytes(begin, head);
            let zero = _mm_setzero_si128();
            let mut line: *mut __m128i = begin.add(head).cast();
            for _ in 0..lines {
                _mm_stream_si128(line, zero);
                _mm_stream_si128(line.add(1), zero);
                _mm_stream_si128(line.add(2), zero);
                _mm_stream_si128(line.add(3), zero);
                line = line.add(4);
            }
            store_zero_bytes(line.cast(), tail);
            _mm_sfence();
        }
    }

    /// Whether every byte is `value`. An absent page is faulted in, see
    /// [`Piece::store_zeros`].
    pub(super) fn reads_all(self, value: u8) -> bool {
        let begin = self.pointer();
        let word = u64::from_ne_bytes([value; 8]);
        let head = begin.align_offset(size_of::<u64>()).min(self.len());
        let words = (self.len() - head) / size_of::<u64>();
        let tail = head + words * size_of::<u64>();
        // SAFETY: head, words and tail make up exactly `len` bytes from `begin`,
        // all inside the mapping; `begin + head` is aligned for u64.
        unsafe {
            let first_word: *const u64 = begin.add(head).cast();
            (0..head)
                .chain(tail..self.len())
                .all(|offset| begin.add(offset).read_volatile() == value)
                && (0..words).all(|index| first_word.add(index).read_volatile() == word)
        }
    }

    /// Stores `value` to every byte.
    pub(super) fn fill(self, value: u8) {
        // SAFETY: the bytes are inside the mapping; about races see `Piece`.
        unsafe { self.pointer().write_bytes(value, self.len()) };
    }
}

/// # Safety
/// `at..at + len` is inside a mapping.
unsafe fn store_zero_bytes(at: *mut u8, len: usize) {
    for offset in 0..len {
        // SAFETY: by the contract of this function.
        unsafe { at.add(offset).write_volatile(0) };
    }
}
