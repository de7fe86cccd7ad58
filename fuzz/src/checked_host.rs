//! The host's side of the device: zeroes for real, fails on demand, and checks
//! every call.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use devices::balloon::guest_range::GuestRange;
use devices::balloon::host_zeroes::{ZeroBy, ZeroError, ZeroGuestRange, Zeroed};
use devices::interrupt::Interrupt;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Backing page: small, so that a few page numbers make up a whole one.
pub(crate) const BACKING_PAGE: u64 = 4 * 4096;

/// Guest RAM as the device gets it.
pub(crate) struct CheckedHost {
    memory: GuestMemoryMmap,
    state: Mutex<State>,
}

/// What the host does wrong, and what the guest does meanwhile.
#[derive(Default)]
pub(crate) struct State {
    /// Calls that touch one of these fail.
    pub(crate) failing: Vec<Range<u64>>,
    /// There is no memory for these.
    pub(crate) absent: Vec<Range<u64>>,
    /// What the guest stores while the device's next request is worked on.
    pub(crate) meanwhile: Option<(u64, Vec<u8>)>,
    /// The guest stored that.
    pub(crate) interfered: bool,
    /// All that may be touched, if that is known.
    pub(crate) allowed: Option<Vec<Range<u64>>>,
}

impl CheckedHost {
    pub(crate) fn new(memory: GuestMemoryMmap) -> Self {
        let state = Mutex::default();
        Self { memory, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn begin(&self, range: GuestRange) -> Result<(), ZeroError> {
        let mut state = self.state();
        assert!(range.len() > 0, "nothing to do is no work");
        assert!(self.is_ram(range), "{range:x?} is not RAM");
        if let Some(allowed) = &state.allowed {
            assert!(covered(range, allowed), "{range:x?}: nobody asked for it");
        }
        if let Some((addr, bytes)) = state.meanwhile.take() {
            state.interfered = true;
            // One that reaches out of RAM stores what fits.
            let _ = self.memory.write(&bytes, GuestAddress(addr));
        }
        if state.failing.iter().any(|bad| overlap(bad, range)) {
            // As far as it came.
            if let Some(half) = GuestRange::new(range.start(), range.len() / 2) {
                self.fill_with_zeros(half);
            }
            return Err(ZeroError::Host { range, errno: 22 });
        }
        Ok(())
    }

    fn is_ram(&self, range: GuestRange) -> bool {
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        GuestMemoryBackend::check_range(&self.memory, GuestAddress(range.start()), len)
    }

    fn fill_with_zeros(&self, range: GuestRange) {
        let zeros = vec![0; range.len() as usize];
        let start = GuestAddress(range.start());
        self.memory.write_slice(&zeros, start).unwrap();
    }
}

/// Whether `parts` together hold all of `range`.
fn covered(range: GuestRange, parts: &[Range<u64>]) -> bool {
    let mut at = range.start();
    while at < range.end() {
        match parts.iter().find(|part| part.contains(&at)) {
            Some(part) => at = part.end,
            None => return false,
        }
    }
    true
}

fn overlap(a: &Range<u64>, b: GuestRange) -> bool {
    a.start < b.end() && b.start() < a.end
}

/// The whole backing pages in `range`.
fn whole_pages(range: GuestRange) -> Option<GuestRange> {
    let first = range.start().next_multiple_of(BACKING_PAGE);
    let end = range.end() - range.end() % BACKING_PAGE;
    GuestRange::new(first, end.checked_sub(first)?)
}

impl ZeroGuestRange for CheckedHost {
    fn page_size(&self, _region: u64) -> u64 {
        BACKING_PAGE
    }

    fn zero(&self, range: GuestRange, by: ZeroBy) -> Result<Zeroed, ZeroError> {
        self.begin(range)?;
        self.fill_with_zeros(range);
        let released = match by {
            ZeroBy::Discarding => whole_pages(range).map_or(0, GuestRange::len),
            ZeroBy::Writing => 0,
        };
        Ok(Zeroed::vouch(range, released))
    }

    fn discard_all(&self, ranges: &[GuestRange], zeroed: &mut Vec<Zeroed>) {
        let proofs = ranges.iter();
        let proofs = proofs.map_while(|range| self.zero(*range, ZeroBy::Discarding).ok());
        zeroed.extend(proofs);
    }

    fn release(&self, range: GuestRange) -> Result<u64, ZeroError> {
        self.begin(range)?;
        let whole = whole_pages(range);
        if let Some(whole) = whole {
            self.fill_with_zeros(whole);
        }
        Ok(whole.map_or(0, GuestRange::len))
    }

    /// Whoever calls it need not know whether it is RAM.
    fn make_present(&self, range: GuestRange) -> Result<(), ZeroError> {
        if !self.is_ram(range) {
            return Err(ZeroError::NotRam(range));
        }
        if self.state().absent.iter().any(|gone| overlap(gone, range)) {
            return Err(ZeroError::Host { range, errno: 14 });
        }
        Ok(())
    }
}

/// An interrupt line nobody listens to.
pub(crate) struct NoLine;

impl Interrupt for NoLine {
    fn trigger(&self) -> io::Result<()> {
        Ok(())
    }
}
