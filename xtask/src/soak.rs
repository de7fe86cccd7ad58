//! `cargo xtask soak`: a guest on each backing that allocates, dirties, frees,
//! inflates and deflates for a long time, with every claim of zero verified.

use std::time::Instant;

use clap::Args;
use vmm::host::{HostChoice, HostOptions, Session};
use vmm::results::{GuestLine, RunResults};
use vmm_sys_util::eventfd::EventFd;

use crate::artifacts::{self, Artifacts};
use crate::command::say;
use crate::demo::guest;
use crate::{Failure, packages};

/// How long one round of stress takes, in seconds; rounds are what samples lie
/// between. Filling the balloon again and a flush come on top.
const ROUND: u64 = 15;
/// What the VMM may have more in memory at the end: the guest's lines it keeps.
const GROWTH: u64 = 1 << 20;
/// What the guest may take or give by itself while it only flushes.
const MEANWHILE: u64 = 32 * MIB;
/// The largest request there is, 32 blocks of 4 MiB: it may be under way at any
/// other moment, released and not yet counted.
const UNDER_WAY: u64 = 128 * MIB;
const MIB: u64 = 1 << 20;

/// Options of `cargo xtask soak`.
#[derive(Args)]
pub(crate) struct Options {
    /// Minutes of stress on each backing
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Only backings whose name contains this (2M, 2M-shared, 1G, thp, pages)
    #[arg(long, value_name = "NAME")]
    backing: Option<String>,
}

/// A backing: its name and what makes it.
type Backing = (&'static str, &'static [&'static str]);

const BACKINGS: &[Backing] = &[
    ("2M", &["memory.page=2M"]),
    ("2M-shared", &["memory.page=2M", "memory.shared=true"]),
    ("1G", &["memory.page=1G"]),
    ("thp", &["memory.backing=thp"]),
    ("pages", &["memory.backing=pages"]),
];

/// Runs all of them in one host.
pub(crate) fn soak(options: &Options) -> Result<(), Failure> {
    packages::install_missing()?;
    let built = artifacts::build()?;
    let host = HostOptions {
        host_kernel: Some(built.bzimage.clone()),
        agent: Some(built.aerostat.clone()),
        gigantic_pages: 1,
        ..HostOptions::default()
    };
    let mut session = Session::start(HostChoice::Auto, &host, EventFd::new(0)?)
        .map_err(|verdict| format!("no host: {verdict}"))?;
    let wanted = options.backing.as_deref().unwrap_or("");
    let mut failed = Vec::new();
    for backing in BACKINGS.iter().filter(|(name, _)| name.contains(wanted)) {
        let (name, _) = backing;
        say(&format!("{} minutes on {name}", options.minutes));
        let begun = Instant::now();
        match run(&mut session, &built, options.minutes, backing) {
            Ok(summary) => say(&format!(
                "{name}: {summary}, in {} s",
                begun.elapsed().as_secs()
            )),
            Err(failure) => {
                say(&format!("{name}: FAILED: {failure}"));
                failed.push(*name);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed on {}", failed.join(", ")).into()),
    }
}

fn run(
    session: &mut Session,
    built: &Artifacts,
    minutes: u64,
    (_, backing): &Backing,
) -> Result<String, Failure> {
    let steps = format!(
        "verify=on wait_balloon=256M loop={}s \
         stress=3,96M,{ROUND},balloon wait_balloon=256M sleep=0 flush sleep=0 end \
         balloon=unbind wait_balloon=0",
        minutes * 60,
    );
    let limit = format!("timeout.run={}m", 2 * minutes + 10);
    let always = [
        "memory.size=1G",
        "cpus.count=2",
        "balloon.target=256M",
        "balloon.device_init_on_inflate=true",
        "timeout.boot=2m",
        &limit,
    ];
    let sets = always.iter().chain(*backing);
    let sets: Vec<_> = sets.map(|set| (*set).to_owned()).collect();
    let (results, config) = guest::run(session, built, &steps, &sets)?;
    check(&results, config.memory.page.bytes())
}

/// What must hold at each sample and at the end.
fn check(results: &RunResults, page_bytes: u64) -> Result<String, Failure> {
    let samples: Vec<_> = results
        .guest
        .iter()
        .map(|line| Sample::of(line, page_bytes))
        .collect();
    for pair in samples.windows(2) {
        if let [before, after] = pair {
            before.check_next(after)?;
        }
    }
    let checked = total(results, "stress", "/checked_bytes");
    let nonzero = total(results, "stress", "/nonzero_bytes");
    let bad = total(results, "exit", "/pgzero_bad");
    // With the verifier on, each of these was read before it was believed.
    let verified = total(results, "stress", "/vmstat/pgzero_skipped")
        + total(results, "stress", "/vmstat/pgzero_unused");
    if nonzero + bad > 0 {
        return Err(format!("{nonzero} bytes were not zero, {bad} pages claimed zero").into());
    }
    if checked == 0 || results.counters.inflate_promised_pages == 0 {
        return Err("nothing was checked, or nothing was promised".into());
    }
    let sizes = results.footprint.zip(results.footprint_at_end);
    let (begun, ended) = sizes.ok_or("no footprint")?;
    let growth = ended.vmm_rss_bytes.saturating_sub(begun.vmm_rss_bytes);
    if growth > GROWTH {
        return Err(format!("the VMM grew by {growth} bytes").into());
    }
    let counters = &results.counters;
    Ok(format!(
        "{} samples, {} MiB read back as zero, {} MiB claimed and verified, 0 mismatches; inflated {} MiB, promised {} MiB of \
         it; reported {} MiB, promised {} MiB; released {} MiB; the VMM grew by {} KiB",
        samples.len(),
        checked / MIB,
        verified / 256,
        counters.inflated_pages / 256,
        counters.inflate_promised_pages / 256,
        counters.reported_bytes / MIB,
        counters.promised_bytes / MIB,
        (counters.released_bytes + counters.inflate_released_bytes) / MIB,
        growth / 1024,
    ))
}

/// The host's numbers when the guest gave a line, in bytes.
#[derive(Debug)]
struct Sample {
    flush: bool,
    reported: u64,
    zeroed: u64,
    promised: u64,
    released: u64,
    /// Free memory of the pool, where there is one.
    free: Option<u64>,
}

impl Sample {
    fn of(line: &GuestLine, page_bytes: u64) -> Self {
        let counters = &line.counters;
        Self {
            flush: line.line.get("type").is_some_and(|kind| kind == "flush"),
            reported: counters.reported_bytes,
            zeroed: counters.zeroed_bytes,
            promised: counters.promised_bytes,
            released: counters
                .released_bytes
                .saturating_add(counters.inflate_released_bytes),
            free: line.pool_free_pages.map(|pages| pages * page_bytes),
        }
    }

    /// What came free was counted as released; and while the guest only has memory
    /// reported, what was counted came free.
    fn check_next(&self, next: &Self) -> Result<(), Failure> {
        let why = |what: &str| Err(format!("{what}: {self:?}, then {next:?}").into());
        if next.zeroed > next.reported || next.promised > next.zeroed {
            return why("more zeroed than reported, or promised than zeroed");
        }
        let released = next.released.saturating_sub(self.released);
        let Some((before, after)) = self.free.zip(next.free) else {
            return Ok(());
        };
        let slack = if next.flush { MEANWHILE } else { UNDER_WAY };
        if after > before.saturating_add(released).saturating_add(slack) {
            return why("the pool grew by more than was released");
        }
        if next.flush && before.saturating_add(released) > after.saturating_add(slack) {
            return why("the pool grew by less than was released in a flush");
        }
        Ok(())
    }
}

/// The sum of what this JSON pointer leads to over all lines of this type.
fn total(results: &RunResults, kind: &str, pointer: &str) -> u64 {
    let lines = results.guest.iter().map(|line| &line.line);
    let of_kind = lines.filter(|line| line.get("type").is_some_and(|is| is == kind));
    of_kind
        .filter_map(|line| line.pointer(pointer).and_then(serde_json::Value::as_u64))
        .sum()
}
