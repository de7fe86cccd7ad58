//! A pool that runs empty under a guest (`memory.overcommit`): the guest waits and
//! goes on, or the run ends when the limit says so.

use std::io;
use std::time::Instant;

use vmm::host::JobOptions;
use vmm::outcome::Verdict;
use vmm::results::{PoolShortage, RunResults};
use vmm::run_io::RunIo;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::lab::Lab;
use crate::{Case, Failure};

/// Half of a guest of 1 GiB and a bit, in pages of 2 MiB.
const SCARCE: u64 = 320;
/// Together more than that; the second fits once the first is gone.
const STEPS: &str = "hold=3,256M,thp populate=384M,thp,check";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("overcommit::a_vcpu_waits_for_a_page_and_goes_on", waits),
        Case::new("overcommit::a_pool_with_room_is_no_wait", has_room),
        Case::new("overcommit::a_limit_ends_the_wait_cleanly", limit),
    ]
}

fn waits(lab: &Lab) -> Result<(), Failure> {
    let results = run(lab, STEPS, &[], Some(SCARCE))?;
    assert_eq!(results.exit_code, 0, "{:?}", results.verdict);
    let shortage = shortage(&results)?;
    assert!(shortage.waits >= 1, "{shortage:?}");
    assert!(shortage.waited_ms >= 100.0, "{shortage:?}");
    assert!(shortage.empty_ms >= shortage.waited_ms, "{shortage:?}");
    Ok(())
}

fn has_room(lab: &Lab) -> Result<(), Failure> {
    let results = run(lab, STEPS, &[], None)?;
    assert_eq!(results.exit_code, 0, "{:?}", results.verdict);
    let shortage = shortage(&results)?;
    assert_eq!(shortage, PoolShortage::default());
    Ok(())
}

fn limit(lab: &Lab) -> Result<(), Failure> {
    let steps = "populate=700M,thp";
    let results = run(lab, steps, &["timeout.pool=2s"], Some(SCARCE))?;
    assert_eq!(results.exit_code, 68, "{:?}", results.verdict);
    let Verdict::Timeout { what } = &results.verdict else {
        return Err(format!("{:?}", results.verdict).into());
    };
    assert!(what.contains("2s (timeout.pool)"), "{what}");
    assert!(shortage(&results)?.waited_ms >= 2000.0);
    Ok(())
}

fn run(
    lab: &Lab,
    steps: &str,
    sets: &[&str],
    pool_pages: Option<u64>,
) -> Result<RunResults, Failure> {
    let always = ["memory.size=1G", "memory.overcommit=true", "cpus.count=2"];
    let sets: Vec<_> = always.iter().chain(sets).copied().collect();
    let io = RunIo {
        output: Box::new(io::sink()),
        input: None,
        stop: EventFd::new(EFD_NONBLOCK)?,
        exec: Instant::now(),
        control: None,
    };
    lab.run_with(&lab.config(steps, &sets)?, JobOptions { pool_pages }, io)
}

fn shortage(results: &RunResults) -> Result<PoolShortage, Failure> {
    Ok(results.timings.pool_shortage.ok_or("no pool shortage")?)
}
