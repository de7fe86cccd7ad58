//! What the device writes itself (used rings, bitmaps) is not zero afterwards,
//! so it must not be promised: rows N03 of both new bits, and I12.

use devices::balloon::device::{BalloonSpec, Reclaim};
use vm_memory::GuestAddress;

use crate::fake_guest::driver::{KNOWN, ring_base};
use crate::fake_guest::machine::range;
use crate::fake_guest::{
    BITMAP, Buf, DEVICE_INIT_ON_INFLATE, Driver, FREE, HUGE, MUST_TELL_HOST, Machine, Numbering,
    PAGE, Queue, SCRATCH, readable, reporting_spec, writable,
};

const FIRST: u32 = (FREE / PAGE) as u32;
/// Where in a ring's memory the device writes.
const USED: u64 = 0x2000;
/// No RAM is there.
const HOLE: u64 = 20 << 20;

fn spec() -> BalloonSpec {
    BalloonSpec {
        must_tell_host: true,
        device_init_on_inflate: true,
        ..reporting_spec()
    }
}

fn machine() -> Machine {
    let machine = Machine::new(spec());
    machine.fill(FREE..FREE + 2 * HUGE, 0xaa);
    machine
}

fn start(machine: &Machine) -> Driver<'_> {
    let features = KNOWN | MUST_TELL_HOST | DEVICE_INIT_ON_INFLATE;
    Driver::with(machine, features, Numbering::Dense, 64)
}

fn page_number(addr: u64) -> u32 {
    (addr / PAGE) as u32
}

/// Inflates `pfns`, which are read at `numbers`, with a bitmap at `bitmap`.
fn inflate(driver: &mut Driver<'_>, numbers: u64, pfns: &[u32], bitmap: &[Buf]) -> u32 {
    let len = driver.machine.put_pfns(numbers, pfns);
    let mut chain = vec![readable(numbers, len)];
    chain.extend_from_slice(bitmap);
    driver.submit(Queue::Inflate, &chain)
}

#[test]
fn n03_i12_a_page_with_a_used_ring_of_any_queue_has_no_bit() {
    let machine = machine();
    let mut driver = start(&machine);
    let rings: Vec<u32> = (0..3).map(|i| page_number(ring_base(i) + USED)).collect();
    // The page behind a ring is not written to.
    let pfns = [rings[0], rings[0] + 1, rings[1], rings[2], FIRST];
    let (used, bitmap) = driver.inflate_for_bitmap(&pfns, 1);
    assert_eq!((used, bitmap), (1, vec![0b1_0010]));
    let behind = ring_base(0) + USED + PAGE;
    assert!(machine.holds(behind..behind + PAGE, 0));
    // The device goes on with what it writes there.
    assert_eq!(driver[Queue::Inflate].used_index(), 1);
    assert_eq!(driver.name_pages(Queue::Deflate, &pfns), 0);
}

#[test]
fn n03_a_report_is_promised_up_to_a_used_ring() {
    let used = ring_base(0) + USED;
    let len = 6 + 8 * 64;
    // Reported, and promised of it.
    let table = [
        (used..used + PAGE, 0),
        (used - 0x800..used, 0x800),
        (used - 0x800..used + 1, 0x800),
        (used + len - 1..used + PAGE, 0),
        (used + len..used + PAGE, PAGE - len),
    ];
    for (reported, promised) in table {
        let machine = machine();
        let mut driver = start(&machine);
        let entry = writable(reported.start, (reported.end - reported.start) as u32);
        let used = driver.submit(Queue::Reporting, &[entry, writable(FREE, 4096)]);
        let all = promised == reported.end - reported.start;
        let expected = promised + if all { 4096 } else { 0 };
        assert_eq!(u64::from(used), expected, "{reported:x?}");
        driver.submit(Queue::Inflate, &[]);
        let end = reported.start + promised;
        assert!(machine.holds(reported.start..end, 0), "{reported:x?}");
    }
}

#[test]
fn n03_a_page_the_bitmap_is_written_to_has_no_bit() {
    let pfns: Vec<u32> = (FIRST..FIRST + 12).collect();
    // Where it is, how long, and which pages are not zero any more.
    let table: [(u64, u32, &[usize]); 5] = [
        (FREE + 2 * PAGE, 2, &[2]),
        (FREE + 3 * PAGE - 1, 2, &[2, 3]),
        (FREE + 3 * PAGE - 2, 9000, &[2]),
        (FREE + 12 * PAGE, 2, &[]),
        (FREE - 1, 2, &[0]),
    ];
    for whole in [false, true] {
        for (at, room, written) in table {
            let machine = machine();
            let mut driver = start(&machine);
            if whole {
                // The first request leaves 12 pages to be brought.
                let others: Vec<u32> = (FIRST + 12..FIRST + 512).collect();
                driver.name_pages(Queue::Inflate, &others);
            }
            let used = inflate(&mut driver, SCRATCH, &pfns, &[writable(at, room)]);
            assert_eq!(used, 2);
            let mut expected = [0xff, 0x0f];
            for page in written {
                expected[page / 8] &= !(1 << (page % 8));
            }
            assert_eq!(machine.bytes(at..at + 2), expected, "{at:#x} {whole}");
            for (page, start) in (FREE..).step_by(PAGE as usize).take(12).enumerate() {
                let zero = machine.holds(start..start + PAGE, 0);
                assert_eq!(zero, !written.contains(&page), "{at:#x}: page {page}");
            }
            let released = machine.balloon.counters().inflate_released_bytes;
            assert_eq!(released, if whole { HUGE } else { 0 });
        }
    }
}

#[test]
fn n03_i12_page_numbers_in_a_page_they_give_away_are_read_before() {
    let machine = machine();
    let mut driver = start(&machine);
    let pfns = [FIRST + 1, FIRST, FIRST + 2];
    let used = inflate(&mut driver, FREE, &pfns, &[writable(BITMAP, 1)]);
    assert_eq!(used, 1);
    assert_eq!(machine.bytes(BITMAP..BITMAP + 1), [0b111]);
    assert!(machine.holds(FREE..FREE + 3 * PAGE, 0));
    assert!(machine.holds(FREE + 3 * PAGE..FREE + 4 * PAGE, 0xaa));
}

/// 65,536 numbers are read at a time. When the others are read, the page they
/// are in may have been given away and zeroed.
#[test]
fn n03_only_numbers_read_before_anything_was_done_are_promised() {
    let size = 512 << 20;
    let machine = Machine::with_memory(spec(), &[(GuestAddress(0), size)]);
    let mut driver = start(&machine);
    let pfns: Vec<u32> = (1024..1024 + 70_000).collect();
    let bitmap = BITMAP..BITMAP + 8752;
    machine.fill(bitmap.clone(), 0xcc);
    let room = (bitmap.end - bitmap.start) as u32;
    let used = inflate(&mut driver, FREE, &pfns, &[writable(BITMAP, room)]);
    assert_eq!(used, 8750);
    assert!(machine.holds(BITMAP..BITMAP + 8192, 0xff));
    assert!(machine.holds(BITMAP + 8192..BITMAP + 8750, 0));
    assert!(machine.holds(BITMAP + 8750..bitmap.end, 0xcc));
    driver.settle();
    let counters = machine.balloon.counters();
    assert_eq!(counters.inflated_pages, 70_000);
    assert_eq!(counters.inflate_promised_pages, 65_536);
    assert_eq!(counters.inflate_released_bytes, 136 * HUGE);
}

#[test]
fn n09_a_bitmap_ends_where_it_cannot_be_written() {
    let pfns: Vec<u32> = (FIRST..FIRST + 20).collect();
    let good = |len| writable(BITMAP, len);
    // The buffers, and how many bytes of the bitmap are valid.
    let table = [
        (vec![writable(HOLE, 3)], 0),
        (vec![writable(u64::MAX, 3)], 0),
        (vec![good(1), writable(HOLE, 3), good(3)], 1),
        (vec![good(2), writable((16 << 20) - 1, 2)], 3),
        (vec![good(1), writable((16 << 20) - 1, 2), good(3)], 1),
        (vec![good(3), writable(HOLE, 3)], 3),
    ];
    for (buffers, valid) in table {
        let machine = machine();
        let mut driver = start(&machine);
        let used = inflate(&mut driver, SCRATCH, &pfns, &buffers);
        assert_eq!(used, valid, "{buffers:x?}");
        driver.settle();
        let counters = machine.balloon.counters();
        assert_eq!(counters.inflated_pages, 20, "the request works");
        let promised = u64::from(8 * valid).min(20);
        assert_eq!(counters.inflate_promised_pages, promised);
        assert_eq!(counters.malformed_chains, u64::from(valid < 3));
    }
}

#[test]
fn a_bitmap_without_memory_is_not_written() {
    for (absent, valid) in [(BITMAP, 0), (BITMAP + 1, 1)] {
        let machine = machine();
        let mut driver = start(&machine);
        machine.fill(BITMAP..BITMAP + 3, 0xcc);
        machine.ram.take_away(range(absent, 1));
        let pfns: Vec<u32> = (FIRST..FIRST + 20).collect();
        let parts = [0, 1, 2].map(|i| writable(BITMAP + i, 1));
        assert_eq!(inflate(&mut driver, SCRATCH, &pfns, &parts), valid);
        assert!(machine.holds(absent..BITMAP + 3, 0xcc));
        assert_eq!(machine.balloon.counters().malformed_chains, 1);
    }
}

#[test]
fn n12_the_baseline_writes_none_of_it() {
    let machine = Machine::new(BalloonSpec {
        on_inflate: Reclaim::Zero,
        ..spec()
    });
    machine.fill(BITMAP..BITMAP + 8, 0xcc);
    let mut driver = Driver::with(&machine, KNOWN | MUST_TELL_HOST, Numbering::Dense, 64);
    for buffers in [[writable(BITMAP, 8)], [writable(HOLE, 8)]] {
        assert_eq!(inflate(&mut driver, SCRATCH, &[FIRST], &buffers), 0);
    }
    assert!(machine.holds(BITMAP..BITMAP + 8, 0xcc));
    assert_eq!(machine.balloon.counters().malformed_chains, 0);
}
