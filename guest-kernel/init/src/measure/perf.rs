//! Counters around one call, as `perf stat` would report them.

use std::fs::File;
use std::io::{self, Read};

use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, CountAndTime, Counter};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Serialize, Serializer};

/// A number, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Counted all the time.
    Count(u64),
    /// The machine has no such counter.
    NotSupported,
    /// The counter exists but did not run, or not all the time.
    NotCounted,
    /// The kernel does not let this process use it.
    NotPermitted,
}

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::NotSupported => serializer.serialize_str("not supported"),
            Self::NotCounted => serializer.serialize_str("not counted"),
            Self::NotPermitted => serializer.serialize_str("not permitted"),
        }
    }
}

/// Which clock `task_clock_ns` comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskClockSource {
    /// The software event of perf.
    Perf,
    /// `CLOCK_THREAD_CPUTIME_ID`, where perf is missing.
    ThreadCputime,
}

/// What one call took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Cost {
    /// CPU time of this thread.
    pub(crate) task_clock_ns: u64,
    /// Where that comes from.
    pub(crate) task_clock_source: TaskClockSource,
    /// Time on the wall.
    pub(crate) wall_ns: u64,
    /// Page faults without I/O, of this thread.
    pub(crate) minor_faults: Option<u64>,
    /// Instructions in user and kernel mode.
    pub(crate) instructions: Reading,
    /// Misses of the last level cache, as the CPU's event is defined.
    pub(crate) cache_misses: Reading,
}

/// Runs `call` and nothing else between the counters.
pub(crate) fn measure<T>(call: impl FnOnce() -> T) -> (T, Cost) {
    let mut instructions = open(Hardware::INSTRUCTIONS);
    let mut cache_misses = open(Hardware::CACHE_MISSES);
    let mut task_clock = open(Software::TASK_CLOCK);
    // Not perf's page-faults event: it misses the faults of MADV_POPULATE_WRITE,
    // which come without user registers.
    let faults = minor_faults();
    start(&mut instructions);
    start(&mut cache_misses);
    let cpu = now_ns(ClockId::ThreadCPUTime);
    let wall = now_ns(ClockId::Monotonic);
    start(&mut task_clock);

    let value = call();

    stop(&mut task_clock);
    let wall_ns = now_ns(ClockId::Monotonic).saturating_sub(wall);
    let cpu_ns = now_ns(ClockId::ThreadCPUTime).saturating_sub(cpu);
    stop(&mut cache_misses);
    stop(&mut instructions);
    let minor_faults = minor_faults()
        .zip(faults)
        .map(|(after, before)| after.saturating_sub(before));
    let (task_clock_ns, task_clock_source) = match read(task_clock) {
        Reading::Count(ns) => (ns, TaskClockSource::Perf),
        _ => (cpu_ns, TaskClockSource::ThreadCputime),
    };
    let (instructions, cache_misses) = plausible(read(instructions), read(cache_misses));
    let cost = Cost {
        task_clock_ns,
        task_clock_source,
        wall_ns,
        minor_faults,
        instructions,
        cache_misses,
    };
    (value, cost)
}

/// Nanoseconds of `clock`.
pub(crate) fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

fn open(event: impl Into<Event>) -> Result<Counter, Reading> {
    let mut builder = Builder::new().kind(event);
    builder.include_kernel();
    builder.build().map_err(|error| without(&error))
}

fn start(counter: &mut Result<Counter, Reading>) {
    switch(counter, Counter::enable);
}

fn stop(counter: &mut Result<Counter, Reading>) {
    switch(counter, Counter::disable);
}

fn switch(counter: &mut Result<Counter, Reading>, how: fn(&mut Counter) -> io::Result<()>) {
    let switched = match counter {
        Ok(open) => how(open),
        Err(_) => return,
    };
    if let Err(error) = switched {
        *counter = Err(without(&error));
    }
}

fn read(counter: Result<Counter, Reading>) -> Reading {
    match counter {
        Ok(mut counter) => match counter.read_count_and_time() {
            Ok(count) => judge(&count),
            Err(error) => without(&error),
        },
        Err(reading) => reading,
    }
}

/// A count is a number only if the counter ran whenever it should have.
fn judge(count: &CountAndTime) -> Reading {
    if count.time_running == 0 || count.time_running != count.time_enabled {
        return Reading::NotCounted;
    }
    Reading::Count(count.count)
}

/// No call takes 0 instructions: a PMU that says so counts nothing.
fn plausible(instructions: Reading, cache_misses: Reading) -> (Reading, Reading) {
    match (instructions, cache_misses) {
        (Reading::Count(0), Reading::Count(_)) => (Reading::NotCounted, Reading::NotCounted),
        (Reading::Count(0), other) => (Reading::NotCounted, other),
        both => both,
    }
}

fn without(error: &io::Error) -> Reading {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => Reading::NotPermitted,
        // ENOENT, ENODEV, EOPNOTSUPP: no such event; ENOSYS: no perf;
        // EINVAL: an event this kernel does not know.
        _ => Reading::NotSupported,
    }
}

/// Minor faults of this thread, from `/proc/thread-self/stat`.
fn minor_faults() -> Option<u64> {
    let mut text = [0_u8; 1024];
    let mut file = File::open("/proc/thread-self/stat").ok()?;
    let len = file.read(&mut text).ok()?;
    parse_minor_faults(std::str::from_utf8(text.get(..len)?).ok()?)
}

/// Field 10, counted after the name, which may hold blanks and brackets.
fn parse_minor_faults(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(count: u64, time_enabled: u64, time_running: u64) -> CountAndTime {
        CountAndTime {
            count,
            time_enabled,
            time_running,
        }
    }

    #[test]
    fn only_a_counter_that_ran_all_the_time_gives_a_number() {
        assert_eq!(judge(&count(7, 100, 100)), Reading::Count(7));
        assert_eq!(judge(&count(7, 100, 99)), Reading::NotCounted);
        assert_eq!(judge(&count(0, 100, 0)), Reading::NotCounted);
        assert_eq!(judge(&count(0, 0, 0)), Reading::NotCounted);
    }

    #[test]
    fn a_pmu_that_counts_nothing_gives_no_number() {
        let (zero, some) = (Reading::Count(0), Reading::Count(5));
        let none = Reading::NotCounted;
        assert_eq!(plausible(zero, zero), (none, none));
        assert_eq!(plausible(zero, some), (none, none));
        assert_eq!(plausible(some, zero), (some, zero));
        let missing = Reading::NotSupported;
        assert_eq!(plausible(missing, some), (missing, some));
        assert_eq!(plausible(zero, missing), (none, missing));
    }

    #[test]
    fn errors_say_why_there_is_no_number() {
        for (errno, reading) in [
            (Errno::NOENT, Reading::NotSupported),
            (Errno::OPNOTSUPP, Reading::NotSupported),
            (Errno::NODEV, Reading::NotSupported),
            (Errno::NOSYS, Reading::NotSupported),
            (Errno::ACCESS, Reading::NotPermitted),
            (Errno::PERM, Reading::NotPermitted),
        ] {
            assert_eq!(without(&errno.into()), reading, "{errno:?}");
        }
    }

    #[test]
    fn readings_are_numbers_or_the_words_of_perf_stat() {
        let json = |reading| serde_json::to_string(&reading).unwrap();
        assert_eq!(json(Reading::Count(12)), "12");
        assert_eq!(json(Reading::NotSupported), "\"not supported\"");
        assert_eq!(json(Reading::NotCounted), "\"not counted\"");
    }

    #[test]
    fn the_name_of_a_task_may_hold_anything() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 77 8 9";
        assert_eq!(parse_minor_faults(stat), Some(77));
        assert_eq!(parse_minor_faults(""), None);
    }

    #[test]
    fn faults_of_the_call_are_counted() {
        use crate::measure::anonymous_memory::AnonymousMemory;
        use crate::steps::page_kind::PageKind;
        use crate::steps::table::Region;
        let region = Region {
            bytes: 1 << 20,
            kind: PageKind::Small,
        };
        let memory = AnonymousMemory::map(region).unwrap();
        let (result, cost) = measure(|| memory.populate());
        result.unwrap();
        let faults = cost.minor_faults.unwrap();
        assert!((256..300).contains(&faults), "{faults}");
        assert!(cost.wall_ns > 0 && cost.task_clock_ns > 0);
        let (_, idle) = measure(|| ());
        assert!(idle.minor_faults.unwrap() < 16, "{idle:?}");
    }
}
