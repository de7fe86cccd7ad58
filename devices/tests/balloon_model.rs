//! Any sequence of requests to inflate and deflate, by drivers of every kind,
//! against a model of the balloon: what is released, what is promised, what
//! reads zero, and what must not change.

use std::collections::BTreeSet;

use devices::balloon::device::{BalloonSpec, Reclaim};
use proptest::prelude::*;

use crate::fake_guest::driver::KNOWN;
use crate::fake_guest::machine::range;
use crate::fake_guest::{
    DEVICE_INIT_ON_INFLATE, Driver, FREE, HUGE, MUST_TELL_HOST, Machine, Numbering, PAGE, Queue,
    reporting_spec,
};

/// The pages of the model, from [`FREE`] on: two huge ones.
const PAGES: u32 = 1024;
const PER_HUGE: u32 = (HUGE / PAGE) as u32;
/// What the guest keeps in pages it uses.
const DATA: u8 = 0xaa;

#[derive(Debug, Clone)]
enum Step {
    /// Pages, and bytes given for the bitmap.
    Inflate(Named, u32),
    /// Pages; the guest uses them again then, and writes to them.
    Deflate(Named),
    Reset,
}

/// A stretch of pages in some order, and a few anywhere.
#[derive(Debug, Clone)]
struct Named {
    start: u32,
    len: u32,
    step: u32,
    some: Vec<u32>,
}

impl Named {
    fn pages(&self) -> Vec<u32> {
        let stretch = (0..self.len).map(|i| (self.start + i * self.step) % PAGES);
        stretch.chain(self.some.iter().copied()).collect()
    }
}

fn named() -> impl Strategy<Value = Named> {
    let order = prop::sample::select(vec![1, 77, 513]);
    let some = prop::collection::vec(0..PAGES, 0..6);
    (0..PAGES, 0..=PAGES, order, some).prop_map(|(start, len, step, some)| Named {
        start,
        len,
        step,
        some,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (named(), prop_oneof![Just(200), 0..130_u32]).prop_map(|(p, r)| Step::Inflate(p, r)),
        5 => named().prop_map(Step::Deflate),
        1 => Just(Step::Reset),
    ]
}

/// What is true by the specification.
#[derive(Default)]
struct Model {
    inside: BTreeSet<u32>,
    promised: BTreeSet<u32>,
    released: u64,
}

impl Model {
    /// Puts pages in; returns the huge pages that this completes.
    fn inflate(&mut self, pages: &[u32], with_earlier: bool) -> Vec<u32> {
        let brought: BTreeSet<u32> = pages.iter().copied().collect();
        let new = |page: &u32| brought.contains(page) && !self.inside.contains(page);
        let huge_pages = (0..PAGES / PER_HUGE).filter(|huge| {
            let mut pages = huge * PER_HUGE..(huge + 1) * PER_HUGE;
            let alone = pages.clone().all(|page| brought.contains(&page));
            let there = |page| brought.contains(&page) || self.inside.contains(&page);
            let by_this = pages.clone().any(|page| new(&page));
            alone || with_earlier && by_this && pages.all(there)
        });
        let whole = huge_pages.collect();
        self.inside.extend(brought);
        whole
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn i04_i08_n10_n11_the_balloon_does_what_its_model_does(
        on_inflate in prop::sample::select(vec![Reclaim::Discard, Reclaim::Zero]),
        told: bool,
        with_earlier: bool,
        failing in prop::option::of(0..PAGES),
        steps in prop::collection::vec(step(), 1..12),
    ) {
        let machine = Machine::new(BalloonSpec {
            must_tell_host: true,
            device_init_on_inflate: true,
            on_inflate,
            ..reporting_spec()
        });
        let first = (FREE / PAGE) as u32;
        let all = FREE..FREE + u64::from(PAGES) * PAGE;
        machine.fill(all.clone(), DATA);
        if let Some(page) = failing {
            machine.ram.fail(range(FREE + u64::from(page) * PAGE, PAGE));
        }
        let features = KNOWN
            | if told { DEVICE_INIT_ON_INFLATE } else { 0 }
            | if with_earlier { MUST_TELL_HOST } else { 0 };
        let start = || Driver::with(&machine, features, Numbering::Dense, 64);
        let mut driver = start();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Inflate(named, room) => {
                    let pages = named.pages();
                    let whole = model.inflate(&pages, with_earlier);
                    let sound = |huge: &&u32| failing.is_none_or(|page| page / PER_HUGE != **huge);
                    let discards = on_inflate == Reclaim::Discard;
                    let count = whole.iter().filter(sound).filter(|_| discards).count();
                    model.released += count as u64 * HUGE;

                    let pfns: Vec<u32> = pages.iter().map(|page| first + page).collect();
                    let (used, bitmap) = driver.inflate_for_bitmap(&pfns, room);
                    let needed = pages.len().div_ceil(8) as u32;
                    prop_assert_eq!(used, if told { needed.min(room) } else { 0 });
                    for (n, page) in pages.iter().enumerate() {
                        let bit = n / 8 < used as usize && bitmap[n / 8] & (1 << (n % 8)) != 0;
                        let valid = told && n / 8 < used as usize;
                        prop_assert_eq!(bit, valid && failing != Some(*page), "page {}", page);
                        if bit {
                            model.promised.insert(*page);
                        }
                    }
                    let beyond = bitmap.iter().skip(used as usize);
                    prop_assert!(beyond.copied().all(|byte| byte == 0xcc));
                }
                Step::Deflate(named) => {
                    let pages = named.pages();
                    let pfns: Vec<u32> = pages.iter().map(|page| first + page).collect();
                    prop_assert_eq!(driver.name_pages(Queue::Deflate, &pfns), 0);
                    for page in pages {
                        let addr = FREE + u64::from(page) * PAGE;
                        model.inside.remove(&page);
                        if model.promised.remove(&page) {
                            prop_assert!(machine.holds(addr..addr + PAGE, 0), "page {}", page);
                        }
                        machine.fill(addr..addr + PAGE, DATA);
                    }
                }
                Step::Reset => {
                    driver = start();
                    // It gave its pages back before, as Linux does.
                    for page in std::mem::take(&mut model).inside {
                        let addr = FREE + u64::from(page) * PAGE;
                        machine.fill(addr..addr + PAGE, DATA);
                    }
                    let released = machine.balloon.counters().inflate_released_bytes;
                    model.released = released;
                }
            }
            let memory = machine.bytes(all.clone());
            for (page, bytes) in (0..PAGES).zip(memory.chunks_exact(PAGE as usize)) {
                if model.promised.contains(&page) {
                    prop_assert!(bytes == [0; PAGE as usize], "promised page {} changed", page);
                } else if !model.inside.contains(&page) {
                    prop_assert!(bytes == [DATA; PAGE as usize], "the guest's page {} changed", page);
                }
            }
            let counters = machine.balloon.counters();
            prop_assert_eq!(counters.inflate_released_bytes, model.released);
        }
        prop_assert_eq!(machine.balloon.counters().malformed_chains, 0);
    }
}
