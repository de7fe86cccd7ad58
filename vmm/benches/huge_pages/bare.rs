//! The limits: the bare call or loop that does the work, and nothing around it.
// UNSAFETY: what the device is measured against has no safe wrapper, since
// that is the point of it.
#![expect(unsafe_code)]

use std::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};

use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::fallocate::{FallocateMode, fallocate};

/// A stretch of guest RAM in one region, for its bare address.
pub(crate) struct Block<'a> {
    memory: &'a GuestMemoryMmap,
    start: u64,
    len: usize,
}

impl<'a> Block<'a> {
    /// `len` bytes from `start` on, a multiple of 4096.
    pub(crate) fn new(memory: &'a GuestMemoryMmap, start: u64, len: usize) -> Self {
        assert!(memory.check_range(GuestAddress(start), len), "is RAM");
        assert_eq!(len % 4096, 0, "whole pages");
        Self { memory, start, len }
    }

    fn pointer(&self) -> *mut u8 {
        self.memory
            .get_host_address(GuestAddress(self.start))
            .unwrap()
    }

    /// `madvise(MADV_DONTNEED)`.
    pub(crate) fn dont_need(&self) {
        let address = self.pointer().cast();
        // SAFETY: a part of a mapping of guest RAM, of which there are no
        // references; its contents may change at any time.
        let result = unsafe { libc::madvise(address, self.len, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// `fallocate(FALLOC_FL_PUNCH_HOLE)`.
    pub(crate) fn punch_hole(&self) {
        let region = self.memory.find_region(GuestAddress(self.start)).unwrap();
        let file = region.file_offset().expect("shared memory has a file");
        let offset = file.start() + self.start - region_start(region);
        let len = self.len as u64;
        fallocate(file.file(), FallocateMode::PunchHole, true, offset, len).unwrap();
    }

    /// A plain loop of streaming stores of 16 bytes.
    pub(crate) fn stream_zeros(&self) {
        let start: *mut __m128i = self.pointer().cast();
        // SAFETY: the block is `len` bytes of mapped guest RAM, aligned to a
        // page; see `dont_need` for its contents.
        unsafe {
            let zero = _mm_setzero_si128();
            for at in 0..self.len / size_of::<__m128i>() {
                _mm_stream_si128(start.add(at), zero);
            }
            _mm_sfence();
        }
    }

    /// `memset`.
    pub(crate) fn memset(&self) {
        // SAFETY: as in `stream_zeros`.
        unsafe { self.pointer().write_bytes(0, self.len) };
    }
}

fn region_start(region: &vm_memory::GuestRegionMmap) -> u64 {
    vm_memory::GuestMemoryRegion::start_addr(region).0
}
