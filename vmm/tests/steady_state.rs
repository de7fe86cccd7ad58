//! In steady state the device allocates nothing for a request, whatever it does
//! with guest memory: no guest makes the VMM grow, and none waits for a lock of
//! the allocator.
// Helpers of tests may panic as tests do; clippy only knows the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

#[path = "../benches/huge_pages/device.rs"]
#[allow(dead_code)]
mod device;
/// The driver's side of rings and registers, shared with the device's tests.
#[path = "../../devices/tests/fake_guest/mod.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
mod fake_guest;
#[path = "../benches/huge_pages/pool.rs"]
mod pool;

use devices::balloon::device::{BalloonSpec, Reclaim};
use vm_memory::{Bytes, GuestAddress};
use vmm::config;

use device::{Device, HUGE, huge_pages, write_chains};
use fake_guest::{Buf, readable, writable};
use pool::Pool;

#[global_allocator]
static COUNTING: dhat::Alloc = dhat::Alloc;

/// Guest RAM: one block for rings and page numbers, and some to be given.
const RAM: u64 = 9 * HUGE;
/// Where page numbers lie, and room for a bitmap.
const NUMBERS: u64 = 0x10_0000;
const BITMAP: u64 = 0x11_0000;
/// Queues by index, where all are offered and the driver counts them.
const INFLATE: usize = 0;
const DEFLATE: usize = 1;
const REPORTING: usize = 3;

fn spec(reclaim: Reclaim) -> BalloonSpec {
    BalloonSpec {
        reporting: true,
        device_init_reported: true,
        device_init_on_inflate: true,
        must_tell_host: true,
        statistics: true,
        on_report: reclaim,
        on_inflate: reclaim,
        ..BalloonSpec::default()
    }
}

/// Two blocks with a gap, and an unaligned part of a third.
fn report() -> Vec<Buf> {
    vec![
        writable(HUGE, HUGE as u32),
        writable(3 * HUGE, HUGE as u32),
        writable(5 * HUGE + 4096, 12288),
    ]
}

/// A whole huge page in reverse, and pieces of another.
fn put_numbers(device: &Device) -> Vec<Buf> {
    let whole = (0..512).rev().map(|i| (7 * HUGE / 4096) as u32 + i);
    let pieces = (0..32).map(|i| (8 * HUGE / 4096) as u32 + 3 * i);
    let bytes: Vec<_> = whole.chain(pieces).flat_map(u32::to_le_bytes).collect();
    let at = GuestAddress(NUMBERS);
    device.memory().write_slice(&bytes, at).unwrap();
    vec![readable(NUMBERS, bytes.len() as u32), writable(BITMAP, 68)]
}

/// Allocations of `rounds` rounds of requests, after some that may allocate.
fn allocations(memory: &config::Memory, reclaim: Reclaim, rounds: usize) -> u64 {
    let (mut device, mut rings) = Device::start(memory, spec(reclaim), [64; 4]);
    let inflate = put_numbers(&device);
    let chains = [
        (INFLATE, inflate.clone()),
        (DEFLATE, inflate[..1].to_vec()),
        (REPORTING, report()),
    ];
    let heads = chains.map(|(queue, chain)| (queue, write_chains(&rings[queue], &[chain])));
    let mut round = |device: &mut Device| {
        // As a guest that uses its memory in between.
        device.touch((0..RAM / 4096).map(|page| page * 4096 + 4095).skip(512));
        for (queue, heads) in &heads {
            device.run(*queue as u32, &mut rings[*queue], heads);
        }
    };
    for _ in 0..3 {
        round(&mut device);
    }
    let before = dhat::HeapStats::get().total_blocks;
    for _ in 0..rounds {
        round(&mut device);
    }
    let allocated = dhat::HeapStats::get().total_blocks - before;
    // It was work: all of the report is promised, and each byte of the bitmap.
    for (queue, promised) in [(REPORTING, 2 * HUGE as u32 + 12288), (INFLATE, 68)] {
        let ring = &rings[queue];
        let last = ring.used_index().wrapping_sub(1);
        assert_eq!(ring.used_entry(last), (0, promised), "queue {queue}");
    }
    allocated
}

#[test]
fn no_request_allocates_in_steady_state() {
    let _counting = dhat::Profiler::builder().testing().build();
    // The baseline: what is allocated is counted.
    let before = dhat::HeapStats::get().total_blocks;
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(dhat::HeapStats::get().total_blocks - before, 1);

    let pool = Pool::with_available(RAM / HUGE);
    if let Err(why) = &pool {
        let required = std::env::var("AEROSTAT_REQUIRE").is_ok_and(|value| value == "1");
        assert!(!required, "required, but cannot run: {why}");
        eprintln!("SKIPPED on huge pages: {why}");
    }
    let small = config::Memory {
        backing: config::Backing::Pages,
        page: config::PageSize::Size4K,
        ..huge_pages(RAM, false)
    };
    let mut backings = vec![("pages", small)];
    if pool.is_ok() {
        backings.push(("huge pages", huge_pages(RAM, false)));
        backings.push(("shared huge pages", huge_pages(RAM, true)));
    }
    for (name, memory) in &backings {
        for reclaim in [Reclaim::Discard, Reclaim::Zero] {
            assert_eq!(allocations(memory, reclaim, 50), 0, "{name}, {reclaim:?}");
        }
    }
}
