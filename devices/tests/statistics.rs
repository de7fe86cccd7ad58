//! Checklist, section statistics, first half: what a buffer says, and that it is
//! held: S01, S03 to S09 and S12.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use devices::balloon::statistics::{Statistic, StatisticsSample};
use vm_memory::{Bytes, GuestAddress};

use crate::fake_guest::driver::FULL;
use crate::fake_guest::machine::{range, wait_until};
use crate::fake_guest::{
    Driver, FREE, HIGH, Machine, Numbering, Queue, SCRATCH, full_spec, readable, writable,
};

pub fn machine() -> Machine {
    Machine::new(full_spec())
}

pub fn driver(machine: &Machine) -> Driver<'_> {
    Driver::with(machine, FULL, Numbering::Dense, 64)
}

/// Entries as a driver lays them out: a 16-bit tag, a 64-bit value.
pub fn entries(stats: &[(u16, u64)]) -> Vec<u8> {
    let entries = stats.iter().map(|(tag, value)| {
        let mut entry = tag.to_le_bytes().to_vec();
        entry.extend(value.to_le_bytes());
        entry
    });
    entries.collect::<Vec<_>>().concat()
}

pub fn put(machine: &Machine, addr: u64, bytes: &[u8]) -> u32 {
    machine
        .memory
        .write_slice(bytes, GuestAddress(addr))
        .unwrap();
    bytes.len() as u32
}

/// Fills the one buffer at descriptor `head` and offers it.
pub fn offer(driver: &mut Driver<'_>, head: u16, bytes: &[u8]) {
    let len = put(driver.machine, SCRATCH, bytes);
    driver[Queue::Stats].write_chain(head, &[readable(SCRATCH, len)]);
    driver[Queue::Stats].make_available(head);
    driver.kick(Queue::Stats);
}

/// Waits for the sample with this number.
pub fn sample(machine: &Machine, number: u64) -> StatisticsSample {
    let last = || machine.balloon.statistics();
    wait_until("a sample", || last().is_some_and(|s| s.number >= number));
    let sample = last().unwrap();
    assert_eq!(sample.number, number);
    sample
}

/// Offers bytes as the first buffer of a fresh device.
fn first_sample(bytes: &[u8]) -> StatisticsSample {
    let machine = machine();
    offer(&mut driver(&machine), 0, bytes);
    sample(&machine, 1)
}

pub fn named(values: &[(Statistic, u64)]) -> BTreeMap<Statistic, u64> {
    values.iter().copied().collect()
}

#[test]
fn s01_the_first_buffer_is_read_and_held_until_a_request() {
    let machine = machine();
    let mut driver = driver(&machine);
    assert_eq!(machine.balloon.statistics(), None);
    offer(&mut driver, 0, &entries(&[(5, 1 << 30)]));
    assert_eq!(
        sample(&machine, 1).values,
        named(&[(Statistic::Total, 1 << 30)])
    );
    driver.settle();
    assert_eq!(driver[Queue::Stats].used_index(), 0, "held");
}

#[test]
fn s03_tags_0_to_15_have_names_and_unknown_ones_are_passed_through() {
    let tags = (0..=20).chain([65535]);
    let all: Vec<(u16, u64)> = tags.map(|tag| (tag, u64::from(tag) << 40 | 7)).collect();
    let sample = first_sample(&entries(&all));
    assert_eq!(sample.values.len(), 16);
    assert_eq!(sample.values[&Statistic::SwapIn], 7);
    assert_eq!(sample.values[&Statistic::DirectReclaim], 15 << 40 | 7);
    let unknown: Vec<_> = sample.unknown.into_iter().collect();
    assert_eq!(unknown, all[16..]);
}

#[test]
fn s03_names_end_with_their_unit() {
    let names = Statistic::ALL.iter().map(|s| s.name());
    let expected = "swap_in_bytes swap_out_bytes major_faults minor_faults free_bytes total_bytes \
                    available_bytes disk_caches_bytes hugetlb_allocations hugetlb_failures \
                    oom_kills alloc_stalls async_scan_bytes direct_scan_bytes \
                    async_reclaim_bytes direct_reclaim_bytes";
    assert_eq!(
        names.collect::<Vec<_>>(),
        expected.split_whitespace().collect::<Vec<_>>()
    );
}

#[test]
fn s04_order_is_free_and_the_last_of_a_tag_counts() {
    let sample = first_sample(&entries(&[
        (5, 1),
        (0, 2),
        (5, 3),
        (99, 4),
        (0, 5),
        (99, 6),
    ]));
    let expected = named(&[(Statistic::Total, 3), (Statistic::SwapIn, 5)]);
    assert_eq!(sample.values, expected);
    assert_eq!(sample.unknown, BTreeMap::from([(99, 6)]));
}

#[test]
fn s05_s06_entries_have_10_bytes_and_a_partial_one_is_ignored() {
    let all: Vec<(u16, u64)> = (0..16).map(|tag| (tag, 1)).collect();
    let bytes = entries(&all);
    for (len, whole) in [
        (0, 0),
        (9, 0),
        (10, 1),
        (25, 2),
        (60, 6),
        (100, 10),
        (160, 16),
    ] {
        let sample = first_sample(&bytes[..len]);
        assert_eq!(sample.values.len(), whole, "{len} bytes");
        assert!(sample.unknown.is_empty());
    }
}

#[test]
fn s07_what_is_absent_is_neither_0_nor_what_it_was_and_each_sample_has_its_time() {
    let machine = machine();
    let mut driver = driver(&machine);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let before = now().as_millis() as u64;
    offer(&mut driver, 0, &entries(&[(4, 1), (5, 2)]));
    let first = sample(&machine, 1);
    std::thread::sleep(Duration::from_millis(5));
    machine.balloon.request_statistics().unwrap();
    driver.next_used(Queue::Stats);
    offer(&mut driver, 0, &entries(&[(5, 3)]));
    let second = sample(&machine, 2);
    assert_eq!(second.values, named(&[(Statistic::Total, 3)]));
    assert!(before <= first.taken_unix_ms);
    assert!(first.taken_unix_ms < second.taken_unix_ms);
    assert!(second.taken_unix_ms <= now().as_millis() as u64);
}

#[test]
fn s08_a_second_buffer_replaces_the_first_which_is_returned() {
    let machine = machine();
    let mut driver = driver(&machine);
    offer(&mut driver, 0, &entries(&[(5, 1)]));
    sample(&machine, 1);
    offer(&mut driver, 1, &entries(&[(5, 2)]));
    assert_eq!(driver.next_used(Queue::Stats), (0, 0));
    assert_eq!(sample(&machine, 2).values, named(&[(Statistic::Total, 2)]));
    machine.balloon.request_statistics().unwrap();
    assert_eq!(driver.next_used(Queue::Stats), (1, 0), "the new one");
}

#[test]
fn s09_an_oversized_buffer_is_read_in_part_held_and_returned() {
    let machine = machine();
    let mut driver = driver(&machine);
    let mut many: Vec<(u16, u64)> = (1000..1409).map(|tag| (tag, 1)).collect();
    many.push((5, 1));
    put(&machine, FREE, &entries(&many));
    driver[Queue::Stats].write_chain(0, &[readable(FREE, 1 << 30); 3]);
    driver[Queue::Stats].make_available(0);
    driver.kick(Queue::Stats);
    let sample = sample(&machine, 1);
    assert_eq!(sample.unknown.len(), 409, "4096 bytes");
    assert!(sample.values.is_empty(), "what is beyond is not looked at");
    driver.settle();
    assert_eq!(driver[Queue::Stats].used_index(), 0, "held");
    machine.balloon.request_statistics().unwrap();
    assert_eq!(driver.next_used(Queue::Stats), (0, 0));
}

#[test]
fn s09_a_buffer_that_cannot_be_read_is_held_returned_and_no_sample() {
    let machine = machine();
    machine.ram.take_away(range(FREE, 4096));
    for (round, addr) in (0..).zip([20 << 20, HIGH.end - 9, u64::MAX - 3, FREE]) {
        let mut driver = driver(&machine);
        driver[Queue::Stats].write_chain(0, &[readable(addr, 10)]);
        driver[Queue::Stats].make_available(0);
        driver.kick(Queue::Stats);
        let malformed = || machine.balloon.counters().malformed_chains;
        wait_until("the buffer is seen", || malformed() == 2 * round + 1);
        driver.settle();
        assert_eq!(driver[Queue::Stats].used_index(), 0, "{addr:#x} is held");
        assert_eq!(machine.balloon.request_statistics().unwrap(), 0);
        assert_eq!(driver.next_used(Queue::Stats), (0, 0));
        // The answer is unreadable again: the next request is not stuck.
        driver[Queue::Stats].make_available(0);
        driver.kick(Queue::Stats);
        wait_until("the buffer is seen", || malformed() == 2 * round + 2);
        machine.balloon.request_statistics().unwrap();
        assert_eq!(driver.next_used(Queue::Stats), (0, 0));
    }
    assert_eq!(machine.balloon.statistics(), None);
}

#[test]
fn s12_entries_may_be_split_over_descriptors() {
    let machine = machine();
    let mut driver = driver(&machine);
    put(
        &machine,
        SCRATCH,
        &entries(&[(5, 0x0102_0304_0506), (4, 9)]),
    );
    let parts = [
        readable(SCRATCH, 7),
        readable(SCRATCH, 0),
        readable(SCRATCH + 7, 13),
        writable(FREE, 10),
    ];
    machine.fill(FREE..FREE + 10, 0xaa);
    driver[Queue::Stats].write_chain(0, &parts);
    driver[Queue::Stats].make_available(0);
    driver.kick(Queue::Stats);
    let expected = named(&[(Statistic::Total, 0x0102_0304_0506), (Statistic::Free, 9)]);
    assert_eq!(sample(&machine, 1).values, expected);
    assert!(machine.holds(FREE..FREE + 10, 0xaa), "nothing is written");
}
