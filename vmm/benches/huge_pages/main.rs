//! What the device costs on real huge pages, beside the limit measured in the
//! same run. Times are per 2 MiB block, or per page number.
//!
//! `cargo xtask bench` runs it and prints ratios and goals.
// A program that measures may panic as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod bare;
mod device;
mod pool;

/// The driver's side of rings and registers, shared with the device's tests.
#[path = "../../../devices/tests/fake_guest/mod.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
mod fake_guest;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion};
use devices::balloon::device::{BalloonSpec, Reclaim};
use vm_memory::{Bytes, GuestAddress};

use bare::Block;
use device::{Device, HUGE, huge_pages, write_chains};
use fake_guest::{Buf, Ring, readable, writable};
use pool::Pool;

/// Blocks of one round: four reports as Linux makes them.
const BLOCKS: u64 = 4 * ENTRIES;
/// Entries of a report (mm/page_reporting.h, PAGE_REPORTING_CAPACITY).
const ENTRIES: u64 = 32;
/// First block: rings and page numbers lie below.
const FIRST: u64 = HUGE;
/// Page numbers of one inflate request (Linux, virtio_balloon.c).
const PFNS: u64 = 256;
/// Where they lie: one request after the other.
const NUMBERS: u64 = 0x10_0000;
/// Guest RAM: every other page is a block of the scattered ones.
const RAM: u64 = FIRST + 2 * BLOCKS * HUGE;
/// Exit code of a run that cannot be: it is skipped.
const SKIPPED: u8 = 77;

/// How the blocks of a report lie.
#[derive(Clone, Copy)]
enum Blocks {
    /// With a gap after each, so that each is a call of its own.
    Scattered,
    /// One after the other, so that they are joined.
    Adjacent,
}

impl Blocks {
    fn starts(self) -> impl Iterator<Item = u64> {
        let step = match self {
            Self::Scattered => 2 * HUGE,
            Self::Adjacent => HUGE,
        };
        (0..BLOCKS).map(move |i| FIRST + i * step)
    }

    fn reports(self) -> Vec<Vec<Buf>> {
        let starts: Vec<_> = self.starts().collect();
        let entries = starts.chunks(ENTRIES as usize);
        entries
            .map(|starts| starts.iter().map(|s| writable(*s, HUGE as u32)).collect())
            .collect()
    }
}

fn main() -> ExitCode {
    let pool = match Pool::with_available(RAM / HUGE) {
        Ok(pool) => pool,
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            return ExitCode::from(SKIPPED);
        }
    };
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(4))
        .configure_from_args();
    for (name, shared, blocks) in [
        ("discard", false, Blocks::Scattered),
        ("discard_adjacent", false, Blocks::Adjacent),
        ("discard_shared", true, Blocks::Scattered),
    ] {
        discard(&mut criterion, name, shared, blocks);
    }
    zero(&mut criterion);
    inflate(&mut criterion);
    criterion.final_summary();
    drop(pool);
    ExitCode::SUCCESS
}

fn reporting(on_report: Reclaim) -> BalloonSpec {
    BalloonSpec {
        reporting: true,
        device_init_reported: true,
        on_report,
        ..BalloonSpec::default()
    }
}

/// A device with its reporting queue (behind inflate and deflate).
fn reporting_device(shared: bool, on_report: Reclaim) -> (Device, Ring) {
    let memory = huge_pages(RAM, shared);
    let (device, [_, _, ring]) = Device::start(&memory, reporting(on_report), [64, 64, 256]);
    (device, ring)
}

fn discard(criterion: &mut Criterion, name: &str, shared: bool, blocks: Blocks) {
    let (mut device, mut ring) = reporting_device(shared, Reclaim::Discard);
    let heads = write_chains(&ring, &blocks.reports());
    let mut group = criterion.benchmark_group(name);
    // What the device is asked for, in as few calls as it could be made.
    let parts: Vec<_> = match blocks {
        Blocks::Scattered => blocks.starts().map(|start| (start, HUGE)).collect(),
        Blocks::Adjacent => vec![(FIRST, BLOCKS * HUGE)],
    };
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(start, len)| Block::new(device.memory(), start, len as usize))
        .collect();
    group.bench_function("bare", |bencher| {
        per_block(bencher, || {
            device.touch(blocks.starts());
            let begun = Instant::now();
            for part in &parts {
                if shared {
                    part.punch_hole();
                } else {
                    part.dont_need();
                }
            }
            begun.elapsed()
        });
    });
    group.bench_function("device", |bencher| {
        per_block(bencher, || {
            device.touch(blocks.starts());
            device.run(2, &mut ring, &heads)
        });
    });
    group.finish();
}

fn zero(criterion: &mut Criterion) {
    let (mut device, mut ring) = reporting_device(false, Reclaim::Zero);
    let blocks = Blocks::Scattered;
    let heads = write_chains(&ring, &blocks.reports());
    device.touch(blocks.starts());
    let parts = blocks.starts();
    let parts: Vec<_> = parts
        .map(|start| Block::new(device.memory(), start, HUGE as usize))
        .collect();
    let mut group = criterion.benchmark_group("zero");
    group.bench_function("bare", |bencher| {
        per_block(bencher, || each(&parts, |block| block.stream_zeros()));
    });
    group.bench_function("memset", |bencher| {
        per_block(bencher, || each(&parts, |block| block.memset()));
    });
    group.bench_function("device", |bencher| {
        per_block(bencher, || device.run(2, &mut ring, &heads));
    });
    group.finish();
}

/// How long `work` on all `blocks` takes.
fn each<'a>(blocks: &[Block<'a>], work: impl Fn(&Block<'a>)) -> Duration {
    let begun = Instant::now();
    blocks.iter().for_each(work);
    begun.elapsed()
}

/// Requests as Linux makes them, for pages of `BLOCKS` / 2 huge pages, and the
/// deflate that takes them back.
fn inflate(criterion: &mut Criterion) {
    let spec = BalloonSpec {
        must_tell_host: true,
        on_inflate: Reclaim::Discard,
        ..BalloonSpec::default()
    };
    let memory = huge_pages(RAM, false);
    let (mut device, [mut inflate, mut deflate]) = Device::start(&memory, spec, [256, 256]);
    let requests = BLOCKS / 2 * HUGE / 4096 / PFNS;
    let chains: Vec<_> = (0..requests)
        .map(|request| {
            let first = FIRST / 4096 + request * PFNS;
            let numbers = first..first + PFNS;
            let bytes: Vec<_> = numbers.flat_map(|pfn| (pfn as u32).to_le_bytes()).collect();
            let at = NUMBERS + request * PFNS * 4;
            device
                .memory()
                .write_slice(&bytes, GuestAddress(at))
                .unwrap();
            vec![readable(at, bytes.len() as u32)]
        })
        .collect();
    let heads = write_chains(&inflate, &chains);
    write_chains(&deflate, &chains);
    let count = (requests * PFNS) as u32;
    let mut group = criterion.benchmark_group("inflate");
    group.bench_function("device", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut total = Duration::ZERO;
            for _ in 0..rounds {
                device.touch((0..BLOCKS / 2).map(|i| FIRST + i * HUGE));
                total += device.run(0, &mut inflate, &heads);
                device.run(1, &mut deflate, &heads);
            }
            total / count
        });
    });
    group.finish();
}

/// Measures rounds of [`BLOCKS`] blocks; `round` says what it took.
fn per_block(bencher: &mut Bencher<'_>, mut round: impl FnMut() -> Duration) {
    bencher.iter_custom(|rounds| {
        let total: Duration = (0..rounds).map(|_| round()).sum();
        total / BLOCKS as u32
    });
}
