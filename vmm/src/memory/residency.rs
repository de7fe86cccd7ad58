//! Which parts of guest RAM have memory behind them.
//!
//! What has none reads zero, so it can be promised without being touched; what
//! has some can be written to without a fault. Both conclusions need an answer
//! that is never "nothing" while there is something, not even while the kernel
//! moves a page. Read in Linux 7.3.4:
//!
//! - hugetlb: `mincore(2)`. It says "nothing" only for an empty page table
//!   entry, and looks under the page table lock. `/proc/self/pagemap` does not
//!   do: a huge page that is being migrated looks absent there
//!   (fs/proc/task_mmu.c, `pagemap_hugetlb_range` knows only present entries).
//!   `PAGEMAP_SCAN` knows migration entries but does not take the lock. Older
//!   kernels (up to 6.10 at least) do not take it in `mincore` either; there an
//!   answer can be wrong for the microseconds in which a migration replaces the
//!   entry.
//! - transparent huge pages and small pages: the `PAGEMAP_SCAN` ioctl (Linux
//!   6.7), under the page table lock. It tells swapped-out pages and pages under
//!   migration from absent ones, where `mincore` does not, and tells the zero
//!   page. On older kernels, or without /proc, the answer is "unknown".
//!
//! For a shared mapping, absent means only that this process has not mapped the
//! page: the file may hold it. Whoever promises zero must ask the file.
//!
//! Cost, measured on Linux 6.18 for a report of 2 MiB: 1.1 us for `mincore` of
//! one huge page (1.0 us for one pagemap entry), 1.0 us for a scan of one
//! transparent huge page, 7.3 us for a scan of 512 small pages (2.4 and 16 us
//! to read the pagemap entries).
// UNSAFETY: an ioctl with a pointer in its argument.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use super::mapping::Backing;
use super::piece::{HOST_PAGE, Piece};

/// How it is found out.
#[derive(Debug)]
pub(super) enum Residency {
    /// Pages of a hugetlb pool.
    Hugetlb {
        /// Their bytes.
        page: usize,
        /// /proc/self/pagemap, if it can be scanned.
        pagemap: Option<File>,
    },
    /// Anonymous or shmem memory; the file is /proc/self/pagemap.
    Scan(File),
    /// It cannot be found out.
    Unknown,
}

/// A part that has, or may have, memory behind it.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    /// The part.
    pub(super) piece: Piece<'a>,
    /// Whether it is certain that it is in RAM: not in swap, not on the move to
    /// another place, and not unknown.
    pub(super) present: bool,
}

impl Residency {
    /// The way for `backing` on this kernel.
    pub(super) fn of(backing: Backing) -> Self {
        if backing.is_hugetlb() {
            let pagemap = File::open("/proc/self/pagemap").ok();
            return Self::Hugetlb {
                page: backing.page,
                pagemap: pagemap.filter(scan_is_supported),
            };
        }
        match File::open("/proc/self/pagemap") {
            Ok(file) if scan_is_supported(&file) => Self::Scan(file),
            Ok(_) => {
                log::info!("no PAGEMAP_SCAN in this kernel: residency of guest RAM is unknown");
                Self::Unknown
            }
            Err(error) => {
                log::warn!("/proc/self/pagemap: {error}: residency of guest RAM is unknown");
                Self::Unknown
            }
        }
    }

    /// Whether "nothing there" can be told.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Visits, in ascending order, the parts of `piece` that have or may have
    /// memory behind them. Bytes in no run have none, or map the zero page; both
    /// read zero in a private mapping.
    ///
    /// # Errors
    /// Those of `visit`. What cannot be found out is visited as unknown.
    pub(super) fn visit_runs<'a>(
        &self,
        piece: Piece<'a>,
        visit: &mut dyn FnMut(Run<'a>) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Self::Hugetlb { page, .. } => visit_huge_pages(piece, *page, visit),
            Self::Scan(pagemap) => visit_scanned(piece, pagemap, visit),
            Self::Unknown => visit(Run {
                piece,
                present: false,
            }),
        }
    }

    /// Bytes in RAM behind each of `pieces`, which are ascending and of one region,
    /// looked up in as few calls as there can be. Good for counting only: a huge
    /// page that is just being moved is left out.
    pub(super) fn count<const N: usize>(&self, pieces: &[Piece<'_>]) -> [u64; N] {
        let mut bytes = [0; N];
        let mut add = |run: Run<'_>| {
            for (bytes, piece) in bytes.iter_mut().zip(pieces) {
                if let Some(overlap) = run.piece.overlap(*piece).filter(|_| run.present) {
                    *bytes += overlap.len() as u64;
                }
            }
            Ok(())
        };
        for near in pieces.chunk_by(|a, b| b.start() - a.end() <= NEAR) {
            let (Some(first), Some(last)) = (near.first(), near.last()) else {
                continue;
            };
            let all = first.through(*last);
            // An error could only be one of `add`, which has none.
            let _ = match self {
                Self::Hugetlb {
                    pagemap: Some(pagemap),
                    ..
                } => visit_scanned(all, pagemap, &mut add),
                _ => self.visit_runs(all, &mut add),
            };
        }
        bytes
    }
}

/// A gap that is rather scanned than skipped: 16 huge pages, for less than one more
/// call would take.
const NEAR: usize = 32 << 20;

/// Host pages looked at in one call: 32 MiB, what the balloon device asks for at
/// a time. Bounds the stack.
const LOOK_BATCH: usize = 8192;

fn visit_huge_pages<'a>(
    piece: Piece<'a>,
    page: usize,
    visit: &mut dyn FnMut(Run<'a>) -> io::Result<()>,
) -> io::Result<()> {
    let mut status = [0; LOOK_BATCH];
    // Of a page that is larger than a batch, its first host page tells all.
    let batch = page.max(LOOK_BATCH * HOST_PAGE);
    let mut at = piece.start();
    while let Some(looked_at) = piece.part(at, (at & !(batch - 1)) + batch) {
        at = looked_at.end();
        if looked_at.mapped(&mut status).is_err() {
            visit(Run {
                piece: looked_at,
                present: false,
            })?;
            continue;
        }
        let first = looked_at.in_host_pages().start();
        let is_mapped = |part: Piece<'_>| {
            let index = part.in_host_pages().start().saturating_sub(first) / HOST_PAGE;
            status.get(index).is_some_and(|status| status & 1 != 0)
        };
        let mut run: Option<Piece<'a>> = None;
        let mut next = looked_at.start();
        while let Some(part) = looked_at.part(next, (next & !(page - 1)) + page) {
            next = part.end();
            if is_mapped(part) {
                let start = run.map_or(part.start(), Piece::start);
                run = looked_at.part(start, part.end());
            } else if let Some(piece) = run.take() {
                visit(Run {
                    piece,
                    present: true,
                })?;
            }
        }
        if let Some(piece) = run {
            visit(Run {
                piece,
                present: true,
            })?;
        }
    }
    Ok(())
}

/// `struct page_region` of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`: direction, size, type, number.
const PAGEMAP_SCAN: libc::Ioctl =
    (3 << 30) | ((size_of::<ScanArg>() as libc::Ioctl) << 16) | ((b'f' as libc::Ioctl) << 8) | 16;

// Categories of pages, include/uapi/linux/fs.h.
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// Regions per call: bounds the stack and the kernel's buffer.
const SCAN_BATCH: usize = 64;

fn scan_is_supported(pagemap: &File) -> bool {
    let mut regions = [PageRegion::default(); SCAN_BATCH];
    // An empty range: the kernel checks the request and walks nothing.
    scan(pagemap, 0, 0, &mut regions).is_ok()
}

/// One call: the regions found from `start` on, and where it stopped.
fn scan<'r>(
    pagemap: &File,
    start: usize,
    end: usize,
    regions: &'r mut [PageRegion; SCAN_BATCH],
) -> io::Result<(&'r [PageRegion], usize)> {
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        start: start as u64,
        end: end as u64,
        vec: regions.as_mut_ptr() as u64,
        vec_len: SCAN_BATCH as u64,
        // Not the zero page, and one of present and swapped (which includes
        // pages under migration).
        category_inverted: PAGE_IS_PFNZERO,
        category_mask: PAGE_IS_PFNZERO,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        ..ScanArg::default()
    };
    // SAFETY: `arg` has the layout the kernel expects and says so in `size`;
    // `vec` and `vec_len` describe `regions`, borrowed for the call.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
    let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
    let stopped = usize::try_from(arg.walk_end).unwrap_or(usize::MAX);
    Ok((regions.get(..found).unwrap_or_default(), stopped))
}

fn visit_scanned<'a>(
    piece: Piece<'a>,
    pagemap: &File,
    visit: &mut dyn FnMut(Run<'a>) -> io::Result<()>,
) -> io::Result<()> {
    let pages = piece.in_host_pages();
    // Adding this to an offset into the region gives an address.
    let base = pages.host_address() - pages.start();
    let mut regions = [PageRegion::default(); SCAN_BATCH];
    let mut at = pages.start();
    while at < pages.end() {
        let scanned = scan(pagemap, base + at, base + pages.end(), &mut regions);
        let (found, stopped) = match scanned {
            Ok((found, stopped)) if stopped > base + at => (found, stopped - base),
            // No answer, or no progress: nothing is known from here on.
            _ => {
                return match piece.part(at, pages.end()) {
                    Some(piece) => visit(Run {
                        piece,
                        present: false,
                    }),
                    None => Ok(()),
                };
            }
        };
        for region in found {
            let offset = |address: u64| usize::try_from(address).map(|a| a.saturating_sub(base));
            let (Ok(start), Ok(end)) = (offset(region.start), offset(region.end)) else {
                continue;
            };
            if let Some(piece) = piece.part(start, end) {
                visit(Run {
                    piece,
                    present: region.categories & PAGE_IS_PRESENT != 0,
                })?;
            }
        }
        at = stopped;
    }
    Ok(())
}
