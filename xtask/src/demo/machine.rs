//! The four VMs of the demo, and the figures one of them gives.

use std::fmt;

use serde_json::Value;
use vmm::host::Session;
use vmm::results::{GuestLine, RunResults};

use super::guest;
use crate::Failure;
use crate::artifacts::Artifacts;

/// What is allocated in THP, in MiB, as in the mail the features come from.
pub(crate) const THP_MIB: u64 = 256;
/// What is allocated in 4 KiB pages, in MiB.
pub(crate) const SMALL_MIB: u64 = 64;

/// Dirty what will be measured, report it, allocate it again; then once more with
/// the verifier on, which reads every page that is claimed zero.
const STEPS: &str = "dirty=256M,thp flush populate=256M,thp flush populate=64M,small \
                     verify=on flush populate=256M,thp,check flush populate=64M,small,check";

/// A VM of the demo.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// Backing page, as in the configuration.
    pub(crate) page: &'static str,
    /// What is done with reported memory.
    pub(crate) on_report: &'static str,
    /// Whether bit 6 is offered.
    pub(crate) optimized: bool,
}

/// All of them, baseline before optimized.
pub(crate) const MACHINES: [Machine; 4] = [
    Machine {
        page: "2M",
        on_report: "discard",
        optimized: false,
    },
    Machine {
        page: "2M",
        on_report: "discard",
        optimized: true,
    },
    Machine {
        page: "1G",
        on_report: "zero",
        optimized: false,
    },
    Machine {
        page: "1G",
        on_report: "zero",
        optimized: true,
    },
];

/// What a VM of the demo showed.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) flush: Flush,
    pub(crate) thp: Populate,
    pub(crate) small: Populate,
    pub(crate) verified_thp: Populate,
    pub(crate) verified_small: Populate,
    /// 4 KiB pages that the verifier found claimed zero and not zero.
    pub(crate) mismatches: u64,
}

/// What the host did while the guest flushed its dirty memory out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flush {
    pub(crate) reported: u64,
    pub(crate) zeroed: u64,
    pub(crate) released: u64,
    /// By how much the free pages of the host's pool grew, in bytes.
    pub(crate) pool_growth: i64,
}

/// What the guest measured of one allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Populate {
    pub(crate) pages: u64,
    pub(crate) cleared: u64,
    pub(crate) skipped: u64,
    pub(crate) task_clock_ns: u64,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.optimized {
            "optimized"
        } else {
            "baseline"
        };
        write!(f, "{role} VM on {} pages", self.page)
    }
}

impl Machine {
    /// Runs it in `session`.
    pub(crate) fn run(&self, session: &mut Session, built: &Artifacts) -> Result<Figures, Failure> {
        let sets = [
            "memory.size=2G".to_owned(),
            format!("memory.page={}", self.page),
            format!("balloon.on_report={}", self.on_report),
            format!("balloon.device_init_reported={}", self.optimized),
        ];
        let (results, config) = guest::run(session, built, STEPS, &sets)
            .map_err(|failure| format!("the {self}: {failure}"))?;
        Figures::from(&results, config.memory.page.bytes())
    }
}

impl Figures {
    fn from(results: &RunResults, page_bytes: u64) -> Result<Self, Failure> {
        let [thp, small, verified_thp, verified_small] = populates(results)?;
        let exit = results.guest.last().ok_or("the guest said nothing")?;
        Ok(Self {
            flush: first_flush(results, page_bytes)?,
            thp,
            small,
            verified_thp,
            verified_small,
            mismatches: number(&exit.line, "pgzero_bad")?,
        })
    }
}

fn populates(results: &RunResults) -> Result<[Populate; 4], Failure> {
    let lines = results.guest.iter().map(|line| &line.line);
    let found: Result<Vec<_>, Failure> = lines
        .filter(|line| is(line, "populate"))
        .map(|line| {
            Ok(Populate {
                pages: number(line, "pages")?,
                cleared: number(line, "pages_cleared")?,
                skipped: number(line, "pages_skipped")?,
                task_clock_ns: number(line, "task_clock_ns")?,
            })
        })
        .collect();
    <[Populate; 4]>::try_from(found?)
        .map_err(|found| format!("{} populate steps instead of 4", found.len()).into())
}

/// The difference between what was counted after the first flush and before it.
fn first_flush(results: &RunResults, page_bytes: u64) -> Result<Flush, Failure> {
    let is_flush = |line: &GuestLine| is(&line.line, "flush");
    let at = results
        .guest
        .iter()
        .position(is_flush)
        .ok_or("no flush step")?;
    let before = at.checked_sub(1).and_then(|at| results.guest.get(at));
    let (before, after) = before
        .zip(results.guest.get(at))
        .ok_or("no step before the flush")?;
    let free = |line: &GuestLine| {
        line.pool_free_pages
            .and_then(|pages| i64::try_from(pages).ok())
    };
    let (free_before, free_after) = free(before).zip(free(after)).ok_or("no pool")?;
    Ok(Flush {
        reported: after.counters.reported_bytes - before.counters.reported_bytes,
        zeroed: after.counters.zeroed_bytes - before.counters.zeroed_bytes,
        released: after.counters.released_bytes - before.counters.released_bytes,
        pool_growth: (free_after - free_before) * i64::try_from(page_bytes)?,
    })
}

/// Whether it is a line of this type.
fn is(line: &Value, kind: &str) -> bool {
    line.get("type").and_then(Value::as_str) == Some(kind)
}

fn number(line: &Value, key: &str) -> Result<u64, Failure> {
    line.get(key)
        .and_then(Value::as_u64)
        .ok_or_else(|| format!("the guest's line has no number {key:?}: {line}").into())
}
