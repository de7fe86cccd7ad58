//! The host's side: an interrupt line that counts, RAM that can be zeroed.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use devices::balloon::guest_range::GuestRange;
use devices::balloon::host_zeroes::{ZeroBy, ZeroError, ZeroGuestRange, Zeroed};
use devices::interrupt::Interrupt;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use super::machine::LONG;

/// Counts interrupts.
#[derive(Default)]
pub struct FakeLine {
    raised: AtomicUsize,
}

impl FakeLine {
    pub fn raised(&self) -> usize {
        self.raised.load(Ordering::SeqCst)
    }
}

impl Interrupt for FakeLine {
    fn trigger(&self) -> io::Result<()> {
        self.raised.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// One call the device made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Zero(GuestRange, ZeroBy),
    Release(GuestRange),
}

/// Guest RAM that can really be zeroed, and made to fail.
pub struct FakeRam {
    memory: GuestMemoryMmap,
    /// Bytes of a backing page.
    page: u64,
    /// How many ranges are discarded in one go.
    at_once: AtomicUsize,
    failing: Mutex<Vec<GuestRange>>,
    absent: Mutex<Vec<GuestRange>>,
    calls: Mutex<Vec<Call>>,
    /// While true, calls wait (and are in `waiting`).
    closed: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl FakeRam {
    pub fn new(memory: GuestMemoryMmap, page: u64) -> Self {
        Self {
            memory,
            page,
            at_once: AtomicUsize::new(0),
            failing: Mutex::default(),
            absent: Mutex::default(),
            calls: Mutex::default(),
            closed: Mutex::new(false),
            opened: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Discards up to `ranges` ranges in one go from now on.
    pub fn discard_at_once(&self, ranges: usize) {
        self.at_once.store(ranges, Ordering::SeqCst);
    }

    /// Every call that touches `range` fails from now on, having zeroed half of
    /// what it was asked for.
    pub fn fail(&self, range: GuestRange) {
        self.failing.lock().unwrap().push(range);
    }

    /// No memory is to be had for `range` from now on.
    pub fn take_away(&self, range: GuestRange) {
        self.absent.lock().unwrap().push(range);
    }

    /// What was called, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Lets calls wait until [`FakeRam::open`].
    pub fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    fn begin(&self, call: Call, range: GuestRange) -> Result<(), ZeroError> {
        self.calls.lock().unwrap().push(call);
        let closed = self.closed.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Not for ever: a test that failed meanwhile ends, too.
        let open = self
            .opened
            .wait_timeout_while(closed, LONG, |closed| *closed)
            .unwrap();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(open);

        let (start, len) = (GuestAddress(range.start()), range.len() as usize);
        if !GuestMemoryBackend::check_range(&self.memory, start, len) {
            return Err(ZeroError::NotRam(range));
        }
        let failing = self.failing.lock().unwrap();
        if failing.iter().any(|bad| overlap(*bad, range)) {
            self.memory.write_slice(&vec![0; len / 2], start).unwrap();
            return Err(ZeroError::Host { range, errno: 22 });
        }
        Ok(())
    }

    /// Bytes of the whole backing pages inside `range`.
    fn whole_pages(&self, range: GuestRange) -> (u64, u64) {
        let first = range.start().next_multiple_of(self.page);
        let len = (range.end() - range.end() % self.page).saturating_sub(first);
        (first, len)
    }
}

fn overlap(a: GuestRange, b: GuestRange) -> bool {
    a.start() < b.end() && b.start() < a.end()
}

impl ZeroGuestRange for FakeRam {
    fn page_size(&self, _region: u64) -> u64 {
        self.page
    }

    fn zero(&self, range: GuestRange, by: ZeroBy) -> Result<Zeroed, ZeroError> {
        self.begin(Call::Zero(range, by), range)?;
        let zeros = vec![0; range.len() as usize];
        self.memory
            .write_slice(&zeros, GuestAddress(range.start()))
            .unwrap();
        let released = match by {
            ZeroBy::Discarding => self.whole_pages(range).1,
            ZeroBy::Writing => 0,
        };
        Ok(Zeroed::vouch(range, released).after_writing(range.len() - released))
    }

    fn discard_all(&self, ranges: &[GuestRange], zeroed: &mut Vec<Zeroed>) {
        let at_once = self.at_once.load(Ordering::SeqCst);
        let proofs = ranges.iter().take(at_once);
        let proofs = proofs.map_while(|range| self.zero(*range, ZeroBy::Discarding).ok());
        zeroed.extend(proofs);
    }

    fn release(&self, range: GuestRange) -> Result<u64, ZeroError> {
        self.begin(Call::Release(range), range)?;
        let (first, len) = self.whole_pages(range);
        let zeros = vec![0; len as usize];
        self.memory.write_slice(&zeros, GuestAddress(first)).ok();
        Ok(len)
    }

    /// There is memory everywhere, but for what a test took away.
    fn make_present(&self, range: GuestRange) -> Result<(), ZeroError> {
        let absent = self.absent.lock().unwrap();
        if absent.iter().any(|absent| overlap(*absent, range)) {
            return Err(ZeroError::Host { range, errno: 14 });
        }
        Ok(())
    }
}
