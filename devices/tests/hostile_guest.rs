//! A guest that does everything wrong. Whatever it does: no panic and no hang,
//! every chain completed exactly once, nothing written but where the guest
//! asked for it, and no promise of zero that is not true.

use std::collections::HashSet;
use std::ops::Range;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use crate::fake_guest::chain_rules::{Descriptor, promised, walk};
use crate::fake_guest::driver::{FULL, NEEDS_RESET, reg, ring_base};
use crate::fake_guest::machine::range;
use crate::fake_guest::ring::{INDIRECT, NEXT, WRITE};
use crate::fake_guest::{
    DEVICE_INIT_REPORTED, Driver, HUGE, Machine, Numbering, PAGE, Queue, Ring, SCRATCH, full_spec,
    writable,
};

/// Guest RAM of these tests, small enough to be compared byte by byte.
const LOW: Range<u64> = 0..6 << 20;
const HIGH: Range<u64> = 8 << 20..10 << 20;
/// What requests point at: everything but rings and page numbers.
const DATA: Range<u64> = HUGE..6 << 20;
const SIZE: u16 = 16;

fn machine() -> Machine {
    let regions = [LOW, HIGH].map(|r| (GuestAddress(r.start), (r.end - r.start) as usize));
    let machine = Machine::with_memory(full_spec(), &regions);
    machine.fill(DATA, 0xaa);
    machine.fill(HIGH, 0xaa);
    machine
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => DATA,
        3 => (DATA.start / PAGE..DATA.end / PAGE).prop_map(|page| page * PAGE),
        2 => SCRATCH..SCRATCH + 64,
        1 => LOW.end - 5000..HIGH.start + 5000,
        1 => HIGH.end - 5000..HIGH.end + 5000,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => Just(4096),
        3 => 0..10_000_u32,
        2 => 0..3 * HUGE as u32,
        1 => any::<u32>(),
    ]
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    let flags = prop_oneof![
        8 => prop::sample::select(vec![0, NEXT, WRITE, WRITE | NEXT]),
        1 => prop::sample::select(vec![INDIRECT, INDIRECT | NEXT, INDIRECT | WRITE]),
        1 => any::<u16>(),
    ];
    let next = prop_oneof![9 => 0..SIZE, 1 => any::<u16>()];
    (address(), length(), flags, next).prop_map(|(addr, len, flags, next)| Descriptor {
        addr,
        len,
        flags,
        next,
    })
}

fn table() -> impl Strategy<Value = Vec<Descriptor>> {
    prop::collection::vec(descriptor(), usize::from(SIZE))
}

/// A queue whose chains are all completed at once.
fn prompt_queue() -> impl Strategy<Value = Queue> {
    prop::sample::select(vec![
        Queue::Inflate,
        Queue::Deflate,
        Queue::Hint,
        Queue::Reporting,
    ])
}

/// Any queue, also the one that keeps a chain.
fn queue() -> impl Strategy<Value = Queue> {
    prop_oneof![4 => prompt_queue(), 1 => Just(Queue::Stats)]
}

/// Page numbers that are found where requests read them.
fn pfns() -> impl Strategy<Value = Vec<u32>> {
    let whole = (HUGE / PAGE) as u32;
    let some = prop_oneof![0..3000_u32, any::<u32>()];
    prop_oneof![
        prop::collection::vec(some, 0..600),
        Just((whole..2 * whole).rev().collect()),
    ]
}

fn put_table(ring: &Ring, table: &[Descriptor]) {
    for (index, d) in (0..).zip(table) {
        ring.write_descriptor(index, d.addr, d.len, d.flags, d.next);
    }
}

/// What a queue that keeps a chain completes, of these: each that is malformed,
/// and each that another one replaces.
fn replaced(table: &[Descriptor], heads: &[u16]) -> Vec<u16> {
    let mut kept = None;
    let completed = heads.iter().filter_map(|head| match walk(table, *head) {
        Some(_) => kept.replace(*head),
        None => Some(*head),
    });
    completed.collect()
}

/// All of guest RAM.
struct Image {
    regions: [(Range<u64>, Vec<u8>); 2],
}

impl Image {
    fn of(machine: &Machine) -> Self {
        let regions = [LOW, HIGH].map(|region| (region.clone(), machine.bytes(region)));
        Self { regions }
    }

    /// `None` if it is not all RAM.
    fn read(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let (region, bytes) = self.regions.iter().find(|(r, _)| r.contains(&addr))?;
        let at = (addr - region.start) as usize;
        bytes.get(at..at + len)
    }

    /// Addresses of bytes that are different in `later`.
    fn changes(&self, later: &Self) -> Vec<u64> {
        let mut changes = Vec::new();
        for ((region, old), (_, new)) in self.regions.iter().zip(&later.regions) {
            let pages = region.clone().step_by(PAGE as usize);
            let contents = old.chunks(PAGE as usize).zip(new.chunks(PAGE as usize));
            for (page, (old, new)) in pages.zip(contents).filter(|(_, (o, n))| o != n) {
                let bytes = (page..).zip(old.iter().zip(new));
                changes.extend(bytes.filter(|(_, (o, n))| o != n).map(|(addr, _)| addr));
            }
        }
        changes
    }
}

/// The pages a chain of the inflate queue names, if all of it can be read. No
/// more page numbers count than the guest has pages.
fn named_pages(chain: &[Descriptor], image: &Image) -> HashSet<u64> {
    let mut left = (LOW.end + HIGH.end - HIGH.start) / PAGE * 4;
    let mut bytes = Vec::new();
    for d in chain.iter().filter(|d| d.flags & WRITE == 0) {
        let len = left.min(d.len.into());
        match image.read(d.addr, len as usize) {
            _ if len == 0 => {}
            Some(part) => bytes.extend_from_slice(part),
            None => return HashSet::new(),
        }
        left -= len;
    }
    let pfns = bytes.chunks_exact(4);
    pfns.map(|pfn| u32::from_le_bytes(pfn.try_into().unwrap()).into())
        .collect()
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn v05_v06_n02_n03_any_chain_is_completed_once_and_tells_the_truth(
        queue in prompt_queue(),
        table in table(),
        heads in prop::collection::vec(0..SIZE, 1..6),
        pfns in pfns(),
        failing in prop::option::of((DATA.start / PAGE..DATA.end / PAGE, 1..100_u64)),
        told: bool,
    ) {
        let machine = machine();
        machine.put_pfns(SCRATCH, &pfns);
        let failing = failing.map(|(page, pages)| page * PAGE..(page + pages) * PAGE);
        if let Some(failing) = &failing {
            machine.ram.fail(range(failing.start, failing.end - failing.start));
        }
        let features = if told { FULL } else { FULL & !DEVICE_INIT_REPORTED };
        let mut driver = Driver::with(&machine, features, Numbering::Dense, SIZE);
        // The first run has id 2, which a hostile guest knows.
        machine.balloon.start_hinting().unwrap();
        put_table(&driver[queue], &table);
        let before = Image::of(&machine);

        for head in heads.iter().copied() {
            let used = driver.submit_head(queue, head);
            match walk(&table, head) {
                Some(chain) if queue == Queue::Reporting && told => {
                    for range in promised(&chain, used) {
                        prop_assert!(machine.holds(range.clone(), 0), "{range:x?} is promised");
                        let bad = failing.as_ref().is_some_and(|bad| overlaps(bad, &range));
                        prop_assert!(!bad, "{range:x?} could not be zeroed");
                    }
                }
                Some(_) | None => prop_assert_eq!(used, 0, "nothing is promised"),
            }
        }
        let after = Image::of(&machine);
        driver.settle_on(queue);
        let completed = usize::from(driver[queue].used_index());
        prop_assert_eq!(completed, heads.len());
        prop_assert_eq!(driver.status() & NEEDS_RESET, 0);

        let reported: Vec<_> = table
            .iter()
            .filter(|d| queue == Queue::Reporting && d.flags & WRITE != 0)
            .map(|d| d.addr..d.addr.saturating_add(d.len.into()))
            .collect();
        let chains = heads.iter().filter_map(|head| walk(&table, *head));
        let inflated: HashSet<u64> = chains
            .filter(|_| queue == Queue::Inflate)
            .flat_map(|chain| named_pages(&chain, &before))
            .collect();
        // The driver itself writes to its available ring.
        let ring = &driver[queue];
        let in_use = [ring.available, ring.used].map(|start| start..start + 0x1000);
        for addr in before.changes(&after) {
            let asked_for = in_use.iter().chain(&reported).any(|r| r.contains(&addr))
                || inflated.contains(&(addr / PAGE));
            prop_assert!(asked_for, "{addr:#x} was written to");
        }
    }

    #[test]
    fn v05_a_batch_of_chains_is_completed_one_by_one(
        queue in queue(),
        table in table(),
        heads in prop::collection::vec(0..SIZE, 1..=usize::from(SIZE)),
        event_idx: bool,
    ) {
        let machine = machine();
        let features = if event_idx { FULL } else { FULL & !(1 << 29) };
        let mut driver = Driver::with(&machine, features, Numbering::Fixed, SIZE);
        put_table(&driver[queue], &table);
        for head in heads.iter().copied() {
            driver[queue].make_available(head);
        }
        driver.kick(queue);
        let expected = if queue == Queue::Stats {
            replaced(&table, &heads)
        } else {
            heads
        };
        let mut used: Vec<u16> = Vec::new();
        for _ in &expected {
            used.push(driver.next_used(queue).0 as u16);
        }
        prop_assert_eq!(&used, &expected, "in the order of the available ring");
        driver.settle_on(queue);
        prop_assert_eq!(usize::from(driver[queue].used_index()), used.len());
    }

    #[test]
    fn a_guest_that_writes_noise_into_a_ring_can_reset_and_start_over(
        queue in queue(),
        noise in prop::collection::vec(any::<u8>(), 0x2800),
        at in 0_u64..0x3000,
        kicks in 1..4,
    ) {
        let machine = machine();
        let driver = Driver::with(&machine, FULL, Numbering::Dense, SIZE);
        let base = ring_base(driver.index_of(queue));
        let len = (noise.len() as u64).min(0x4000 - at) as usize;
        machine.memory.write_slice(&noise[..len], GuestAddress(base + at)).unwrap();
        for _ in 0..kicks {
            driver.kick(queue);
        }
        machine.write(reg::STATUS, 0);
        works(&machine);
    }

    #[test]
    fn a_guest_that_writes_noise_into_registers_can_reset_and_start_over(
        accesses in prop::collection::vec(access(), 0..200)
    ) {
        let machine = machine();
        for Access { offset, write, len } in accesses {
            if let Some(value) = write {
                let mut data = [0; 16];
                data[..8].copy_from_slice(&value.to_le_bytes());
                machine.mmio.write(offset, &data[..len]);
            } else {
                let mut data = [0xee; 16];
                machine.mmio.read(offset, &mut data[..len]);
            }
        }
        machine.write(reg::STATUS, 0);
        works(&machine);
    }
}

#[derive(Debug, Clone, Copy)]
struct Access {
    offset: u64,
    write: Option<u64>,
    len: usize,
}

fn access() -> impl Strategy<Value = Access> {
    let offset = prop_oneof![
        10 => (0..0x80_u64).prop_map(|word| word * 4),
        10 => prop::sample::select(vec![reg::STATUS, reg::QUEUE_READY, reg::QUEUE_NOTIFY,
            reg::DRIVER_FEATURES, reg::QUEUE_SEL, reg::QUEUE_SIZE]),
        1 => any::<u64>(),
    ];
    let value = prop_oneof![
        4 => 0..16_u64,
        2 => (0..LOW.end / 16).prop_map(|addr| addr * 16),
        1 => (0..64_u32).prop_map(|bit| 1 << bit),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![8 => Just(4), 1 => 0..=16_usize];
    (offset, prop::option::weighted(0.8, value), len).prop_map(|(offset, write, len)| Access {
        offset,
        write,
        len,
    })
}

/// The device serves an honest driver.
fn works(machine: &Machine) {
    let mut driver = Driver::with(machine, FULL, Numbering::Dense, SIZE);
    machine.fill(DATA, 0xaa);
    let report = [writable(DATA.start, 2 * HUGE as u32)];
    assert_eq!(driver.submit(Queue::Reporting, &report), 2 * HUGE as u32);
    assert!(machine.holds(DATA, 0));
}
