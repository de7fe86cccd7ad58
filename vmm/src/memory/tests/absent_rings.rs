//! The balloon's queues in memory that is not there and cannot be had: an access
//! would raise SIGBUS, and end this very process.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use devices::balloon::device::{Balloon, BalloonSpec};
use devices::interrupt::Interrupt;
use vm_memory::{Bytes, GuestAddress};

use super::guest::*;
use super::pool_guard::PoolGuard;
use crate::config;
use crate::memory::GuestRam;
use crate::memory::pools::Pools;

/// Where memory is present, and where it is not.
const PRESENT: u32 = 0;
const ABSENT: u32 = 32 << 20;

const STATUS: u64 = 0x70;
const NEEDS_RESET: u32 = 0x40;

struct NoLine;

impl Interrupt for NoLine {
    fn trigger(&self) -> io::Result<()> {
        Ok(())
    }
}

fn balloon(ram: &GuestRam) -> Balloon {
    let spec = BalloonSpec::default();
    let memory = ram.guest_memory().clone();
    Balloon::new(spec, memory, ram.zeroer(), Arc::new(NoLine)).unwrap()
}

/// Starts the device with inflate and deflate queue at `rings`, kicks the first.
fn start(balloon: &Balloon, rings: u32) {
    let write = |register: u64, value: u32| balloon.mmio().write(register, &value.to_le_bytes());
    write(STATUS, 3);
    write(0x24, 1); // DriverFeaturesSel
    write(0x20, 1); // VERSION_1
    write(STATUS, 11);
    for queue in 0..2 {
        write(0x30, queue); // QueueSel
        write(0x38, 8); // QueueSize
        for (register, offset) in [(0x80, 0x1000), (0x90, 0x2000), (0xa0, 0x3000)] {
            write(register, rings + queue * 0x4000 + offset);
        }
        write(0x44, 1); // QueueReady
    }
    write(STATUS, 15);
    write(0x50, 0); // QueueNotify
}

fn status(balloon: &Balloon) -> u32 {
    let mut data = [0; 4];
    balloon.mmio().read(STATUS, &mut data);
    u32::from_le_bytes(data)
}

fn wait_until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(10), "waited in vain");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `test` on guest RAM whose first pages took all the pool has.
fn with_exhausted_pool(test: impl Fn(&GuestRam)) {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let Some(pool) = PoolGuard::with_available(2 * MIB, 1) else {
            return;
        };
        let config = config::Memory {
            overcommit: true,
            ..backed.config(64 * MIB)
        };
        let ram = GuestRam::create(&config).unwrap();
        ram.guest_memory()
            .write_obj(0_u64, GuestAddress(0))
            .unwrap();
        assert_eq!(pool.free(), 0, "the pool is exhausted");
        test(&ram);
    }
}

#[test]
fn rings_that_cannot_be_had_make_the_device_need_a_reset() {
    with_exhausted_pool(|ram| {
        let balloon = balloon(ram);
        start(&balloon, ABSENT);
        wait_until(|| status(&balloon) & NEEDS_RESET != 0);
        start(&balloon, PRESENT);
        assert_eq!(status(&balloon) & NEEDS_RESET, NEEDS_RESET, "until it is");
        balloon.mmio().write(STATUS, &[0; 4]);
        start(&balloon, PRESENT);
        assert_eq!(status(&balloon), 15, "and then it works again");
    });
}

#[test]
fn page_numbers_that_cannot_be_had_are_a_malformed_request() {
    with_exhausted_pool(|ram| {
        let put = |at: u64, value: u64| {
            ram.guest_memory()
                .write_obj(value, GuestAddress(at))
                .unwrap();
        };
        put(0x1000, u64::from(ABSENT)); // descriptor 0: address
        put(0x1008, 4); // length, no flags
        put(0x2000, 1 << 16); // available: index 1, of descriptor 0
        let balloon = balloon(ram);
        start(&balloon, PRESENT);
        wait_until(|| balloon.counters().malformed_chains == 1);
        let used: u16 = ram.guest_memory().read_obj(GuestAddress(0x3002)).unwrap();
        assert_eq!((used, status(&balloon)), (1, 15), "completed, and goes on");
    });
}

/// While the pool has surplus pages the kernel gives a page back without renewing its
/// reservation, in a private mapping too, and another VM may take it.
#[test]
fn rings_in_a_page_that_lost_its_reservation_make_the_device_need_a_reset() {
    let Some(pool) = PoolGuard::with_available(2 * MIB, 12) else {
        return;
    };
    let size_file = Pools::host().size_file(2 * MIB);
    let overcommit = size_file.with_file_name("nr_overcommit_hugepages");
    let before = std::fs::read_to_string(&overcommit).unwrap();
    std::fs::write(&overcommit, "4").unwrap();
    let made = [(); 2].map(|()| GuestRam::create(&HUGETLB_2M.config(16 * MIB)));
    std::fs::write(&overcommit, before).unwrap();
    let [ram, neighbour] = made.map(Result::unwrap);
    // Takes what there is, and fails where a store would raise SIGBUS.
    let take_all = |ram: &GuestRam| ram.prefault(Some(1), &|| false).is_ok();
    let _ = (take_all(&neighbour), take_all(&ram));
    let reserved = pool.reserved();
    ram.zeroer().release(range(4 * MIB, 2 * MIB)).unwrap();
    assert_eq!(pool.reserved(), reserved, "what this test is about");
    let others = config::Memory {
        overcommit: true,
        ..HUGETLB_2M.config(16 * MIB)
    };
    let others = GuestRam::create(&others);
    let _ = others.as_ref().map(take_all);
    assert_eq!(pool.available(), 0);

    let balloon = balloon(&ram);
    start(&balloon, 4 << 20);
    wait_until(|| status(&balloon) & NEEDS_RESET != 0);
}
