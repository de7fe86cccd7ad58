//! The inflate and deflate queues: the guest gives pages and takes them back,
//! by 4 KiB page number.

use super::balloon_pages::{BalloonPages, Completes};
use super::bitmap_buffers::BitmapBuffers;
use super::device::Reclaim;
use super::guest_may_skip::{NamedPage, PageBitmap, UsedLength};
use super::guest_range::{self, GuestRange};
use super::host_zeroes::{HostWork, Scratch, ZeroBy, Zeroed};
use super::pfn_stream::{BadRequest, PfnStream};
use super::spec::{PFN_BYTES, PFN_SHIFT};
use crate::virtio::chain::Buffer;
use vm_memory::GuestMemoryMmap;

/// What an inflate request may do to pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnInflate {
    /// What is to be done with them.
    pub(crate) reclaim: Reclaim,
    /// The driver is told which of them read zero (DEVICE_INIT_ON_INFLATE).
    pub(crate) told: bool,
    /// Pages may be zeroed in place, and promised. Whole backing pages may go
    /// back even where not: a driver that uses another poison value than zero
    /// fills what it deflates with it (virtio 1.3, 5.5.6.6).
    pub(crate) may_zero: bool,
    /// Which backing pages it completes.
    pub(crate) completes: Completes,
}

impl OnInflate {
    fn promises(self) -> bool {
        self.told && self.may_zero
    }
}

/// Where a request is found, and what it meets there.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// Guest RAM.
    pub(crate) memory: &'a GuestMemoryMmap,
    /// Page numbers a request may name: as many as the guest has pages.
    pub(crate) limit: u64,
    /// Where the device writes by itself, in any queue.
    pub(crate) used_rings: &'a [GuestRange],
}

/// Handles inflate and deflate requests: which pages are in the balloon, and
/// room that is used again for each request.
#[derive(Debug)]
pub(crate) struct GuestInflates {
    balloon: BalloonPages,
    bytes: Vec<u8>,
    /// The page numbers of one part of a request: all, ascending.
    named: Vec<NamedPage>,
    /// Those that are RAM, each once.
    pfns: Vec<u32>,
    whole: Vec<GuestRange>,
    wanted: Vec<GuestRange>,
    scratch: Scratch,
    zeroed: Vec<Zeroed>,
    written: Vec<GuestRange>,
    bitmap: PageBitmap,
    promised: u64,
}

impl GuestInflates {
    /// With an empty balloon.
    pub(crate) fn new(balloon: BalloonPages) -> Self {
        Self {
            balloon,
            bytes: Vec::new(),
            named: Vec::new(),
            pfns: Vec::new(),
            whole: Vec::new(),
            wanted: Vec::new(),
            scratch: Scratch::default(),
            zeroed: Vec::new(),
            written: Vec::new(),
            bitmap: PageBitmap::default(),
            promised: 0,
        }
    }

    /// Nothing is taken to be in the balloon any more: the device was reset, or the
    /// guest took pages out and nobody can tell which. One that it may use again
    /// must not complete a backing page later.
    pub(crate) fn forget_all(&mut self) {
        self.balloon.clear();
    }

    /// Pages promised by the request just handled, once it is published.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }

    /// Does with the pages of this request, and with the backing pages it
    /// completes, what `on_inflate` says, before the request is published: once
    /// it is, its pages must not change any more (virtio 1.3, 5.5.6).
    ///
    /// Only page numbers read before anything was done are promised: a request
    /// may give away the very page its numbers are in. What comes after the
    /// first [`PFNS_AT_A_TIME`](super::pfn_stream::PFNS_AT_A_TIME) of them is
    /// put into the balloon without a promise.
    ///
    /// # Errors
    /// [`BadRequest`]; then nothing has been done.
    pub(crate) fn inflate(
        &mut self,
        chain: &[Buffer],
        on_inflate: OnInflate,
        at: Surroundings<'_>,
        host: &HostWork<'_>,
    ) -> Result<UsedLength, BadRequest> {
        self.promised = 0;
        self.bitmap.clear();
        let mut stream = open(chain, at, host)?;
        let buffers = BitmapBuffers::of(chain, stream.numbers());
        let mut promises = on_inflate.promises();
        while self.next_part(&mut stream, host) {
            let count = as_u64(self.pfns.len());
            host.counters.add(|c| &mut c.inflated_pages, count);
            self.put_in(on_inflate, promises, host);
            if promises {
                self.written.clear();
                self.written.extend_from_slice(at.used_rings);
                self.written.extend(buffers.places().flatten());
                guest_range::merge(&mut self.written);
                let Self { named, zeroed, .. } = self;
                self.bitmap.promise(named, zeroed, &self.written);
            }
            promises = false;
        }
        close(&stream, host);
        if !on_inflate.told || host.cancelled() {
            return Ok(UsedLength::NOTHING);
        }
        let (used, pages) = buffers.write(&self.bitmap, at.memory, host);
        self.promised = pages;
        Ok(used)
    }

    /// Takes the pages out of the balloon. They need no preparation: released
    /// memory comes back when it is touched.
    ///
    /// Where some of the page numbers cannot be read, all pages are taken out.
    ///
    /// # Errors
    /// [`BadRequest`]; then nothing has been counted.
    pub(crate) fn deflate(
        &mut self,
        chain: &[Buffer],
        at: Surroundings<'_>,
        host: &HostWork<'_>,
    ) -> Result<(), BadRequest> {
        let mut stream = open(chain, at, host).inspect_err(|_| self.forget_all())?;
        let is_whole = stream.bytes() > 0 && stream.bytes() % PFN_BYTES as u64 == 0;
        if stream.dropped() > 0 || !is_whole {
            self.forget_all();
        }
        while self.next_part(&mut stream, host) {
            let count = as_u64(self.pfns.len());
            host.counters.add(|c| &mut c.deflated_pages, count);
            self.balloon.take_out(&self.pfns);
        }
        if stream.lacking().is_some() {
            self.forget_all();
        }
        close(&stream, host);
        Ok(())
    }

    /// Puts the pages of one part of a request in. `zeroed` then has the proofs
    /// for those that read zero: all of them, if the part `promises` anything.
    fn put_in(&mut self, on_inflate: OnInflate, promises: bool, host: &HostWork<'_>) {
        self.zeroed.clear();
        self.whole.clear();
        let completes = on_inflate.completes;
        self.balloon.put_in(&self.pfns, completes, &mut self.whole);
        let released = match on_inflate.reclaim {
            Reclaim::Discard if on_inflate.promises() => {
                // Also pages of earlier requests: a promise that was made for
                // one of them is to stay true.
                let by = ZeroBy::Discarding;
                let Self { whole, scratch, .. } = self;
                host.zero(whole, by, scratch, &mut self.zeroed).released
            }
            Reclaim::Discard => {
                let Self { whole, scratch, .. } = self;
                host.release(whole, scratch)
            }
            Reclaim::Zero | Reclaim::Keep => 0,
        };
        host.counters
            .add(|c| &mut c.inflate_released_bytes, released);

        let pages = self.pfns.iter().filter_map(|pfn| page(*pfn));
        let zeroed = &self.zeroed;
        self.wanted.clear();
        self.wanted
            .extend(pages.filter(|page| !is_zeroed(*page, zeroed)));
        let mut count = as_u64(self.pfns.len() - self.wanted.len()) << PFN_SHIFT;
        if promises || on_inflate.reclaim == Reclaim::Zero && on_inflate.may_zero {
            let by = ZeroBy::Writing;
            let Self {
                wanted, scratch, ..
            } = self;
            count += host.zero(wanted, by, scratch, &mut self.zeroed).zeroed;
            self.zeroed
                .sort_unstable_by_key(|proof| proof.range().start());
        }
        host.counters.add(|c| &mut c.inflate_zeroed_bytes, count);
    }

    /// Reads the next part of a request; false if there is none.
    fn next_part(&mut self, stream: &mut PfnStream<'_>, host: &HostWork<'_>) -> bool {
        if host.cancelled() || !stream.next(&mut self.bytes, &mut self.pfns) {
            return false;
        }
        let named = (0..).zip(&self.pfns);
        self.named.clear();
        self.named.extend(named.map(|(position, pfn)| NamedPage {
            pfn: *pfn,
            position,
        }));
        self.named.sort_unstable();
        self.pfns.sort_unstable();
        self.pfns.dedup();
        let distinct = self.pfns.len();
        self.pfns.retain(|pfn| self.balloon.is_ram(*pfn));
        if distinct > self.pfns.len() {
            let not_ram = as_u64(distinct - self.pfns.len());
            host.counters.add(|c| &mut c.not_ram, not_ram);
            host.log
                .warn(format_args!("{not_ram} page numbers are not guest RAM"));
        }
        true
    }
}

/// Starts to read a request.
fn open<'a>(
    chain: &'a [Buffer],
    at: Surroundings<'a>,
    host: &HostWork<'a>,
) -> Result<PfnStream<'a>, BadRequest> {
    let stream = PfnStream::new(at.memory, host.ram, chain, at.limit)?;
    if stream.dropped() > 0 {
        host.counters.add(|c| &mut c.malformed_chains, 1);
        host.log.warn(format_args!(
            "a request names more than the guest's {} pages: {} bytes ignored",
            at.limit,
            stream.dropped()
        ));
    }
    Ok(stream)
}

/// A request was read as far as it can be.
fn close(stream: &PfnStream<'_>, host: &HostWork<'_>) {
    if let Some(addr) = stream.lacking() {
        host.counters.add(|c| &mut c.malformed_chains, 1);
        host.log
            .warn(format_args!("no memory for the page numbers at {addr:#x}"));
    }
}

fn page(pfn: u32) -> Option<GuestRange> {
    GuestRange::new(u64::from(pfn) << PFN_SHIFT, 1 << PFN_SHIFT)
}

/// Whether one of the proofs, which are ascending and disjoint, is about all of
/// `page`.
fn is_zeroed(page: GuestRange, zeroed: &[Zeroed]) -> bool {
    let first = zeroed.partition_point(|proof| proof.range().end() <= page.start());
    let proof = zeroed.get(first).map(Zeroed::range);
    proof.is_some_and(|proof| proof.start() <= page.start() && page.end() <= proof.end())
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balloon::counters::Counters;
    use crate::balloon::host_zeroes::{ZeroError, ZeroGuestRange};
    use crate::balloon::pace::Pace;
    use crate::virtio::log_budget::LogBudget;
    use std::cell::RefCell;
    use std::sync::atomic::AtomicBool;
    use vm_memory::{Bytes, GuestAddress};

    const HUGE: u64 = 2 << 20;
    const NUMBERS: u64 = HUGE;
    const BITMAP: u64 = HUGE + 0x1000;

    /// Memory that can only go back whole; zeroing it fails the test.
    struct OnlyReleased;

    impl ZeroGuestRange for OnlyReleased {
        fn page_size(&self, _region: u64) -> u64 {
            HUGE
        }
        fn zero(&self, range: GuestRange, by: ZeroBy) -> Result<Zeroed, ZeroError> {
            panic!("{range:x?} was zeroed, {by:?}");
        }
        fn release(&self, range: GuestRange) -> Result<u64, ZeroError> {
            Ok(range.len())
        }
        fn make_present(&self, _range: GuestRange) -> Result<(), ZeroError> {
            Ok(())
        }
    }

    /// Where free pages hold another value than zero, whole backing pages may
    /// go back (the driver fills them again), and that is all.
    #[test]
    fn p02_p03_without_leave_to_zero_pages_are_only_discarded_and_no_bit_is_set() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4 << 20)]).unwrap();
        let numbers: Vec<u8> = (0..512_u32).flat_map(u32::to_le_bytes).collect();
        memory.write_slice(&numbers, GuestAddress(NUMBERS)).unwrap();
        for (reclaim, told) in [
            (Reclaim::Discard, true),
            (Reclaim::Discard, false),
            (Reclaim::Zero, true),
            (Reclaim::Zero, false),
        ] {
            let (counters, log) = (Counters::default(), LogBudget::new());
            let host = HostWork {
                ram: &OnlyReleased,
                counters: &counters,
                log: &log,
                cancel: &AtomicBool::new(false),
                pace: &RefCell::new(Pace::new(None)),
            };
            let on_inflate = OnInflate {
                reclaim,
                told,
                may_zero: false,
                completes: Completes::WithEarlier,
            };
            let at = Surroundings {
                memory: &memory,
                limit: 1024,
                used_rings: &[],
            };
            memory
                .write_slice(&[0xcc; 64], GuestAddress(BITMAP))
                .unwrap();
            let buffer = |addr, len, writable| Buffer {
                addr,
                len,
                writable,
            };
            let chain = [buffer(NUMBERS, 2048, false), buffer(BITMAP, 64, true)];
            let balloon = BalloonPages::of(&memory, &OnlyReleased).unwrap();
            let mut inflates = GuestInflates::new(balloon);
            let used = inflates.inflate(&chain, on_inflate, at, &host).unwrap();
            let (len, contents) = if told { (64, 0) } else { (0, 0xcc) };
            assert_eq!(used.bytes(), len, "{reclaim:?}, told: {told}");
            let mut bitmap = [1; 64];
            memory
                .read_slice(&mut bitmap, GuestAddress(BITMAP))
                .unwrap();
            assert_eq!(bitmap, [contents; 64], "{reclaim:?}, told: {told}");
            assert_eq!(inflates.promised(), 0);
            let counted = counters.snapshot();
            let released = if reclaim == Reclaim::Discard { HUGE } else { 0 };
            assert_eq!(counted.inflate_released_bytes, released);
            assert_eq!(counted.inflate_zeroed_bytes, 0);
            assert_eq!(counted.inflated_pages, 512);
        }
    }
}
