//! A guest that puts rings and requests where it has no memory, on a host that
//! has none left: an access would end the VMM, so there must be none.

use devices::balloon::device::{BalloonSpec, Reclaim};

use crate::fake_guest::driver::KNOWN;
use crate::fake_guest::host::Call;
use crate::fake_guest::machine::{range, wait_until};
use crate::fake_guest::ring::Ring;
use crate::fake_guest::{
    Driver, FREE, HIGH, HUGE, MUST_TELL_HOST, Machine, Numbering, PAGE, Queue, SCRATCH, readable,
    reporting_spec, writable,
};

/// Device status: it cannot go on (virtio 1.3, 2.1).
const NEEDS_RESET: u32 = 0x40;

#[test]
fn each_area_of_a_ring_is_asked_for_before_it_is_looked_at() {
    for (index, queue) in [(0, Queue::Inflate), (2, Queue::Reporting)] {
        let machine = Machine::new(reporting_spec());
        let mut driver = Driver::start(&machine);
        let used = driver.submit(Queue::Reporting, &[writable(FREE, HUGE as u32)]);
        assert_eq!(u64::from(used), HUGE, "baseline: it works");

        let area = Ring::area(crate::fake_guest::driver::ring_base(index));
        machine
            .ram
            .take_away(range(area.start, area.end - area.start));
        let before = machine.bytes(area.clone());
        let calls = machine.ram.calls().len();
        driver.kick(queue);
        wait_until("the device gives up", || driver.status() & NEEDS_RESET != 0);
        assert_eq!(machine.bytes(area), before, "{queue:?}: nothing is written");
        assert_eq!(machine.ram.calls().len(), calls, "{queue:?}");
    }
}

#[test]
fn page_numbers_without_memory_are_not_read_and_the_request_is_completed() {
    let machine = Machine::new(reporting_spec());
    let mut driver = Driver::start(&machine);
    let here = FREE + HUGE;
    let gone = FREE + 2 * HUGE;
    machine.put_pfns(here, &[1]);
    machine.put_pfns(gone, &[2]);
    machine.ram.take_away(range(gone, 4096));
    driver.submit(Queue::Inflate, &[readable(here, 4), readable(gone, 4)]);
    driver.settle();
    let counters = machine.balloon.counters();
    assert_eq!((counters.malformed_chains, counters.inflated_pages), (1, 1));
    driver.submit(Queue::Inflate, &[readable(here, 4)]);
    driver.settle();
    assert_eq!(machine.balloon.counters().inflated_pages, 2, "it goes on");
}

/// The guest uses those pages again, whichever they are: none of them may be taken
/// for ballooned when the rest of its backing page comes.
#[test]
fn a_deflate_that_cannot_be_read_to_its_end_takes_all_pages_out() {
    let gone = FREE + 2 * HUGE;
    let nowhere = HIGH.end;
    let number = readable(SCRATCH, 4);
    for (what, chain, stays) in [
        ("baseline: read", vec![number], true),
        ("no memory", vec![number, readable(gone, 4)], false),
        ("not RAM", vec![number, readable(nowhere, 4)], false),
        ("more than pages", vec![readable(HIGH.start, !3)], false),
        ("half a number", vec![number, readable(SCRATCH, 2)], false),
        ("to be written", vec![writable(SCRATCH, 4)], false),
        ("no chain", vec![writable(SCRATCH + 64, 4), number], false),
    ] {
        let spec = BalloonSpec {
            must_tell_host: true,
            on_inflate: Reclaim::Discard,
            ..reporting_spec()
        };
        let machine = Machine::new(spec);
        let mut driver = Driver::with(&machine, KNOWN | MUST_TELL_HOST, Numbering::Dense, 64);
        let first = (FREE / PAGE) as u32;
        let pages: Vec<u32> = (first..).take((HUGE / PAGE) as usize).collect();
        let (last, earlier) = pages.split_last().unwrap();
        driver.name_pages(Queue::Inflate, earlier);
        machine.put_pfns(SCRATCH, &[*last]);
        machine.ram.take_away(range(gone, 4096));
        driver.submit(Queue::Deflate, &chain);
        driver.name_pages(Queue::Inflate, &[*last]);
        let released = machine
            .ram
            .calls()
            .contains(&Call::Release(range(FREE, HUGE)));
        assert_eq!(released, stays, "{what}");
    }
}
