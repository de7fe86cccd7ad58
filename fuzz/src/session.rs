//! A driver's time with the device, from one reset to the next, and what must
//! hold in it:
//!
//! - the device works on what was given to it and on nothing else;
//! - every chain made available is completed once, in order;
//! - what a used length or a bitmap promises reads zero at that moment, and a
//!   page in the balloon until it is deflated.
//!
//! A guest that harms its own rings cannot be told any of this. Then only what
//! the host checks holds ([`checked_host`](crate::checked_host)).

use std::collections::BTreeSet;
use std::ops::Range;

use devices::balloon::device::Hinting;

use crate::fake_guest::chain_rules::promised;
use crate::fake_guest::driver::{DRIVER_OK, NEEDS_RESET, reg};
use crate::fake_guest::ring::WRITE;
use crate::guest::{Guest, overlap};
use crate::ring_model::{QueueModel, Request, Role, page, queues_of};

/// MUST_TELL_HOST: pages in the balloon may change until they are deflated.
const MUST_TELL_HOST: u32 = 0;
/// PAGE_POISON: free pages keep the driver's value.
const PAGE_POISON: u32 = 4;
/// DEVICE_INIT_REPORTED: used lengths of reports promise.
const INIT_REPORTED: u32 = 6;
/// DEVICE_INIT_ON_INFLATE: inflate requests end with a bitmap.
const INIT_ON_INFLATE: u32 = 7;

/// poison_val in the configuration space (virtio 1.3, 5.5.4).
const CONFIG_POISON: u64 = reg::CONFIG + 12;

/// How a driver starts.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    /// Feature bits it takes if they are offered.
    pub(crate) wanted: u64,
    /// How it numbers its queues.
    pub(crate) dense: bool,
    /// Size of its rings.
    pub(crate) size: u16,
    /// What it fills free pages with.
    pub(crate) poison: u32,
    /// Areas of one of its rings, by position, at unusual places.
    pub(crate) places: Option<(usize, [u64; 3])>,
}

/// See the module.
pub(crate) struct Session {
    accepted: u64,
    pub(crate) queues: Vec<QueueModel>,
    /// The rings are as the driver wrote them.
    trusted: bool,
    /// Free pages keep a value other than zero.
    poisoned: bool,
    /// Page numbers in the balloon.
    inflated: BTreeSet<u32>,
    /// Those of them that read zero.
    promised: BTreeSet<u32>,
}

impl Session {
    /// Resets the device and starts it. A device that refuses is as good as
    /// one without queues.
    pub(crate) fn start(guest: &Guest, start: Start) -> Self {
        {
            let mut host = guest.host.state();
            host.allowed = None;
            host.meanwhile = None;
        }
        let accepted = guest.negotiate(start.wanted);
        let queues = accepted.map(|accepted| queues_of(accepted, start.dense));
        let queues = queues.unwrap_or_default().into_iter().enumerate();
        let queues = queues.filter_map(|(position, queue)| {
            let places = start.places.filter(|(at, _)| *at == position);
            QueueModel::set_up(guest, queue, start.size, places.map(|(_, places)| places))
        });
        let queues = queues.collect();
        guest.write(CONFIG_POISON, start.poison);
        let accepted = accepted.unwrap_or(0);
        Self {
            queues,
            accepted,
            poisoned: start.poison != 0 && accepted >> PAGE_POISON & 1 != 0,
            trusted: start.places.is_none(),
            inflated: BTreeSet::new(),
            promised: BTreeSet::new(),
        }
    }

    /// Sets DRIVER_OK.
    pub(crate) fn driver_ok(&self, guest: &Guest) {
        guest.write(reg::STATUS, guest.read(reg::STATUS) | DRIVER_OK);
    }

    /// The guest stored something by itself.
    pub(crate) fn guest_wrote(&mut self, written: &Range<u64>) {
        let own = |queue: &QueueModel| queue.driver_areas().iter().any(|a| overlap(a, written));
        let used = |queue: &QueueModel| overlap(&queue.device_area(), written);
        if self.queues.iter().any(|queue| own(queue) || used(queue)) {
            self.trusted = false;
        }
        self.promised.retain(|pfn| !overlap(&page(pfn), written));
    }

    /// The driver did with its rings what no driver does.
    pub(crate) fn distrust(&mut self) {
        self.trusted = false;
    }

    /// Lets the device do its work, and checks all of it.
    pub(crate) fn settle(&mut self, guest: &mut Guest) {
        let pending = self.requests(guest);
        let given = parts(&pending, |request| &request.given);
        // Where nothing is said about pages, nothing is written either.
        let told = self.accepted(INIT_ON_INFLATE);
        let bitmaps = parts(&pending, |request| &request.bitmap).into_iter();
        let bitmaps: Vec<_> = bitmaps.filter(|_| told).collect();
        let changed = [given.clone(), bitmaps.clone()].concat();
        self.promised
            .retain(|pfn| !changed.iter().any(|range| overlap(range, &page(pfn))));

        // What is given away, or stored to meanwhile, may be what the device has
        // to read.
        let meanwhile = guest.host.state().meanwhile.as_ref().map(stored);
        let changed: Vec<_> = changed.into_iter().chain(meanwhile).collect();
        let driver_areas = self.queues.iter().flat_map(QueueModel::driver_areas);
        let read = parts(&pending, |request| &request.read);
        if any_overlap(&changed, driver_areas.chain(read)) {
            self.trusted = false;
        }
        // One request alone: nothing else explains what is in memory after it.
        // Of statistics nothing is to be seen there.
        let queues = self.queues.iter();
        let seen = queues.filter(|queue| queue.role != Role::Statistics);
        let alone = seen.map(|queue| queue.pending.len()).sum::<usize>() == 1;
        let device_areas: Vec<_> = self.queues.iter().map(QueueModel::device_area).collect();
        let gives_used_rings = any_overlap(&changed, device_areas.iter().cloned());
        if gives_used_rings && !alone {
            self.trusted = false;
        }
        let in_balloon = self.inflated.iter().map(page);
        let in_balloon = in_balloon.filter(|_| self.accepted(MUST_TELL_HOST));
        let zeroed: Vec<_> = given.into_iter().chain(in_balloon).collect();
        guest.host.state().allowed = self.trusted.then(|| zeroed.clone());

        if self.trusted {
            guest.remember();
        }
        guest.let_device_work();
        let interfered = std::mem::take(&mut guest.host.state().interfered);
        if !self.trusted {
            return;
        }
        if !interfered {
            let written = [bitmaps, device_areas].concat();
            guest.assert_only_changed(&zeroed, &written);
        }
        let broken = guest.read(reg::STATUS) & (NEEDS_RESET | DRIVER_OK) != DRIVER_OK;
        let mut requests = pending.into_iter();
        let mut put_in = Vec::new();
        for index in 0..self.queues.len() {
            let count = self.queues[index].pending.len();
            let requests: Vec<_> = requests.by_ref().take(count).collect();
            if gives_used_rings && (count == 0 || self.queues[index].role == Role::Statistics) {
                // Its ring may be what was given away.
                continue;
            }
            for (place, used) in self.completed(index, broken) {
                let request = &requests[place];
                self.check(guest, index, request, used, alone && !interfered);
                if self.queues[index].role == Role::Inflate {
                    put_in.extend_from_slice(&request.pfns);
                }
            }
        }
        // Which queue came first is the device's choice: what may be in the
        // balloon counts as in it.
        self.inflated.extend(put_in);
        for pfn in &self.promised {
            assert!(guest.reads_zero(page(pfn)), "page {pfn:#x} is promised");
        }
        if gives_used_rings {
            // The indices in them went with the rest.
            self.trusted = false;
        }
    }

    /// Whether a feature was agreed upon.
    fn accepted(&self, bit: u32) -> bool {
        self.accepted >> bit & 1 != 0
    }

    /// All that is pending, queue by queue.
    fn requests(&self, guest: &Guest) -> Vec<Request> {
        let mut requests = Vec::new();
        for queue in &self.queues {
            let keeps = match queue.role {
                Role::Reporting => self.poisoned,
                Role::Hinting => self.poisoned || guest.spec.hinting != Hinting::Discard,
                Role::Inflate | Role::Deflate | Role::Statistics => false,
            };
            for head in &queue.pending {
                let mut request = queue.request(*head, &guest.memory);
                if keeps {
                    request.given.clear();
                }
                requests.push(request);
            }
        }
        requests
    }

    /// What the queue completed since the last time, by its place in `pending`,
    /// and the used lengths: in order, and all of it if the device was told to
    /// look.
    fn completed(&mut self, index: usize, broken: bool) -> Vec<(usize, u32)> {
        let queue = &mut self.queues[index];
        let count = queue.ring.used_index().wrapping_sub(queue.ring.seen);
        let mut left: Vec<_> = queue.pending.drain(..).enumerate().collect();
        assert!(
            usize::from(count) <= left.len(),
            "{:?}: {count} completed of {}",
            queue.role,
            left.len()
        );
        // The device may keep one statistics buffer until it wants news, and
        // complete what is behind it.
        let kept = usize::from(queue.role == Role::Statistics);
        let mut completed = Vec::new();
        for _ in 0..count {
            let (head, len) = queue.ring.used_entry(queue.ring.seen);
            queue.ring.seen = queue.ring.seen.wrapping_add(1);
            let mut oldest = left.iter().take(1 + kept);
            let place = oldest.position(|(_, pending)| u32::from(*pending) == head);
            let place = place.unwrap_or_else(|| panic!("{:?}: {head} of {left:?}", queue.role));
            completed.push((left.remove(place).0, len));
        }
        if !broken && std::mem::take(&mut queue.kicked) {
            assert!(
                left.len() <= kept,
                "{:?}: {left:?} not completed",
                queue.role
            );
        }
        queue.pending = left.into_iter().map(|(_, head)| head).collect();
        completed
    }

    /// What is promised with `used` is true, `alone` tells whether memory can
    /// tell.
    fn check(&mut self, guest: &Guest, index: usize, request: &Request, used: u32, alone: bool) {
        let role = self.queues[index].role;
        match (&request.chain, role) {
            (Some(chain), Role::Reporting) if self.accepted(INIT_REPORTED) => {
                assert!(used == 0 || !self.poisoned, "{used} bytes of poison");
                let ranges = promised(chain, used);
                for range in ranges.into_iter().filter(|_| alone) {
                    assert!(guest.reads_zero(range.clone()), "{range:x?} is promised");
                }
            }
            (Some(_), Role::Inflate) if self.accepted(INIT_ON_INFLATE) => {
                let most = request.pfns.len().div_ceil(8);
                assert!(used as usize <= most, "{used} bytes of a bitmap of {most}");
                // What overlaps is overwritten: with more of it, or used entries.
                let used_rings = self.queues.iter().map(QueueModel::device_area);
                let written: Vec<_> = request.bitmap.iter().cloned().chain(used_rings).collect();
                let legible = alone && !overlap_each_other(&written);
                let bits = legible.then(|| bitmap(guest, request, used));
                for pfn in bits.iter().flatten() {
                    assert!(!self.poisoned, "page {pfn:#x} is to keep its poison");
                    assert!(
                        guest.reads_zero(page(pfn)),
                        "page {pfn:#x} is promised used {used} {:x?} {:x?}",
                        request.pfns,
                        request.chain
                    );
                }
                self.promised.extend(bits.unwrap_or_default());
            }
            _ => assert_eq!(used, 0, "{role:?}: nothing is promised"),
        }
        if role == Role::Deflate {
            for pfn in &request.pfns {
                self.inflated.remove(pfn);
                self.promised.remove(pfn);
            }
        }
    }
}

/// The page numbers whose bits are set in the first `used` bytes of what the
/// device may write to: bit N is for the N-th one.
fn bitmap(guest: &Guest, request: &Request, used: u32) -> Vec<u32> {
    let chain = request.chain.iter().flatten();
    let writable = chain.filter(|d| d.flags & WRITE != 0);
    let addresses = writable.flat_map(|d| d.addr..d.addr.saturating_add(d.len.into()));
    let mut set = Vec::new();
    for (byte, addr) in addresses.take(used as usize).enumerate() {
        let bits = guest.byte(addr);
        for bit in (0..8).filter(|bit| bits >> bit & 1 != 0) {
            let pfn = request.pfns.get(8 * byte + bit);
            set.push(*pfn.expect("no bit is set beyond the request"));
        }
    }
    set
}

fn stored((addr, bytes): &(u64, Vec<u8>)) -> Range<u64> {
    *addr..addr.saturating_add(bytes.len() as u64)
}

fn overlap_each_other(ranges: &[Range<u64>]) -> bool {
    let mut rest = ranges.iter();
    while let Some(one) = rest.next() {
        if rest.clone().any(|other| overlap(one, other)) {
            return true;
        }
    }
    false
}

fn parts(requests: &[Request], of: fn(&Request) -> &Vec<Range<u64>>) -> Vec<Range<u64>> {
    requests.iter().flat_map(of).cloned().collect()
}

fn any_overlap(some: &[Range<u64>], mut others: impl Iterator<Item = Range<u64>>) -> bool {
    others.any(|other| some.iter().any(|one| overlap(one, &other)))
}
