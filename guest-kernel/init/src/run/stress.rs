//! Threads that allocate, check for zero, dirty and free, while free memory is
//! reported and compacted: what breaks tracking of zeroed pages shows here.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::ClockId;

use super::balloon::Rebinder;
use super::reporting::{Flushed, flush_now};
use super::session::Outcome;
use super::settings;
use crate::failure::StepError;
use crate::lines::{Line, StressLine};
use crate::measure::anonymous_memory::AnonymousMemory;
use crate::measure::meminfo::require_available;
use crate::measure::perf::now_ns;
use crate::measure::vmstat::Vmstat;
use crate::measure::zero_scan::scan;
use crate::steps::page_kind::{BASE_PAGE_BYTES, PageKind};
use crate::steps::table::Region;

/// Passes per flush: memory is freed all the time, so more would find more.
const PASSES_PER_FLUSH: u32 = 2;
/// Time between two flushes.
const ROUND: Duration = Duration::from_secs(1);

/// What one thread did.
#[derive(Debug, Default)]
struct Tally {
    iterations: u64,
    checked_bytes: u64,
    nonzero_bytes: u64,
    failed: u64,
    last_error: Option<StepError>,
}

/// Runs `workers` threads of at most `bytes` each for `duration`; with `balloon`
/// its driver comes and goes. There has to be memory for all when the balloon
/// is full.
pub(crate) fn stress(
    workers: u32,
    bytes: u64,
    duration: Duration,
    balloon: bool,
) -> Result<Outcome, StepError> {
    let mut rebinder = if balloon {
        Some(Rebinder::new()?)
    } else {
        None
    };
    require_available(bytes.saturating_mul(u64::from(workers)))?;
    let before = Vmstat::now()?;
    let start = now_ns(ClockId::Monotonic);
    let deadline = Instant::now() + duration;
    let threads: Vec<_> = (1..=workers)
        .map(|seed| thread::spawn(move || work(u64::from(seed), bytes, deadline)))
        .collect();
    let flushes = disturb(deadline, rebinder.as_mut());
    let mut all = Tally::default();
    for worker in threads {
        // A panic of a thread has ended the program before this.
        let tally = worker.join().unwrap_or_default();
        all.iterations += tally.iterations;
        all.checked_bytes += tally.checked_bytes;
        all.nonzero_bytes += tally.nonzero_bytes;
        all.failed += tally.failed;
        all.last_error = tally.last_error.or(all.last_error);
    }
    if all.iterations == 0 {
        let error = all.last_error.map(|error| error.to_string());
        return Err(StepError::NoProgress(
            error.unwrap_or_else(|| "none, the time was too short".to_owned()),
        ));
    }
    let line = Line::Stress(StressLine {
        threads: workers,
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        iterations: all.iterations,
        checked_bytes: all.checked_bytes,
        nonzero_bytes: all.nonzero_bytes,
        failed: all.failed,
        flushes: flushes?,
        balloon_unbinds: rebinder.as_ref().map(|rebinder| rebinder.unbinds),
        balloon_binds: rebinder.as_ref().map(|rebinder| rebinder.binds),
        vmstat: Vmstat::now()?.since(&before).into_counters(),
    });
    Ok(if all.nonzero_bytes == 0 {
        Outcome::Report(line)
    } else {
        Outcome::NotZero(line)
    })
}

/// Flushes, compacts, drops caches and perhaps binds or unbinds each second;
/// returns how many flushes.
fn disturb(deadline: Instant, mut rebinder: Option<&mut Rebinder>) -> Result<u64, StepError> {
    let mut flushes = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if let Some(rebinder) = &mut rebinder {
                rebinder.finish()?;
            }
            return Ok(flushes);
        }
        thread::sleep(left.min(ROUND));
        if let Flushed::Yes(_) = flush_now(PASSES_PER_FLUSH)? {
            flushes += 1;
        }
        settings::compact()?;
        settings::drop_caches()?;
        // Last: the balloon that was bound a round ago was compacted just now.
        if let Some(rebinder) = &mut rebinder {
            rebinder.toggle()?;
        }
    }
}

fn work(seed: u64, limit: u64, deadline: Instant) -> Tally {
    let mut random = Random(seed);
    let mut tally = Tally::default();
    while Instant::now() < deadline {
        let region = random_region(&mut random, limit);
        let result = AnonymousMemory::map(region).and_then(|memory| {
            memory.populate()?;
            Ok(memory)
        });
        match result {
            Ok(mut memory) => {
                let found = scan(memory.bytes());
                tally.checked_bytes += found.bytes;
                tally.nonzero_bytes += found.nonzero_bytes;
                memory.dirty();
                tally.iterations += 1;
            }
            Err(error) => {
                tally.failed += 1;
                tally.last_error = Some(error);
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    tally
}

/// From one page to 64 MiB, most of the time small, never above `limit`.
fn random_region(random: &mut Random, limit: u64) -> Region {
    let pages = (1 << random.below(12)) * (1 + random.below(8));
    Region {
        bytes: (pages * BASE_PAGE_BYTES).min(limit),
        kind: if random.below(2) == 0 {
            PageKind::Small
        } else {
            PageKind::Thp
        },
    }
}

/// xorshift64 of Marsaglia: the same sizes in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_whole_pages_within_the_limit_and_of_both_kinds() {
        let mut random = Random(1);
        let limit = 6 << 20;
        let regions: Vec<_> = (0..1000)
            .map(|_| random_region(&mut random, limit))
            .collect();
        let all_fit = |region: &Region| {
            (BASE_PAGE_BYTES..=limit).contains(&region.bytes) && region.bytes % BASE_PAGE_BYTES == 0
        };
        assert!(regions.iter().all(all_fit));
        for kind in [PageKind::Small, PageKind::Thp] {
            let count = regions.iter().filter(|region| region.kind == kind).count();
            assert!((400..600).contains(&count), "{kind}: {count}");
        }
    }

    #[test]
    fn a_worker_checks_what_it_allocates() {
        let tally = work(7, 4 << 20, Instant::now() + Duration::from_millis(200));
        assert!(
            tally.iterations > 0 && tally.checked_bytes >= 4096,
            "{tally:?}"
        );
        assert_eq!(tally.nonzero_bytes, 0);
    }
}
