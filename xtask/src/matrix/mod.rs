//! `cargo xtask matrix`: the series under other configurations of the kernel.

mod rows;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde_json::Value;

pub(crate) use self::rows::Row;
use self::rows::{Expect, ROWS};
use crate::artifacts::{self, Artifacts, Extras, write_initrd};
use crate::busybox;
use crate::command::say;
use crate::guest::{Guest, Lab, Ran};
use crate::kernel::{self, Workshop};
use crate::{Failure, packages};

/// Of what is allocated after a flush, the share that must be skipped.
const SKIPPED: f64 = 95.0;
/// How a run ends in which the verifier found claimed memory that was not zero; see
/// the exit codes of `aerostat`.
const NOT_ZERO: u8 = 69;
/// What the kernel says when it finds something wrong with itself.
const SPLATS: [&str; 7] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "INFO: possible",
    "INFO: task",
    "Bad page",
    "kernel BUG",
];

/// Options of `cargo xtask matrix`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    row: Option<String>,
    /// Only rows of the kernel with this optional fragment
    #[arg(long, value_name = "NAME")]
    with: Option<String>,
}

/// What came of a row.
#[derive(Default)]
pub(crate) struct Cells {
    skipped: String,
    claimed: String,
    bad: String,
    verdict: String,
}

/// The row with this name.
pub(crate) fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// Runs the rows and prints them as a table; fails if one is not as expected.
pub(crate) fn matrix(options: &Options) -> Result<(), Failure> {
    packages::install_missing()?;
    let wanted = |row: &&Row| {
        let named = options
            .row
            .as_ref()
            .is_none_or(|name| row.name.contains(name.as_str()));
        let with = options.with.as_deref();
        named && with.is_none_or(|with| row.with.contains(&with))
    };
    let rows: Vec<_> = ROWS.iter().filter(wanted).collect();
    if rows.is_empty() {
        return Err("no row is called so".into());
    }
    let artifacts = artifacts::build()?;
    let workshop = kernel::workshop()?;
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header([
        "kernel and boot options",
        "skipped, %",
        "claimed, MiB",
        "bad",
        "",
    ]);
    let mut failed = Vec::new();
    let mut kernels: Vec<(&[&str], PathBuf)> = Vec::new();
    for row in rows {
        let known = kernels.iter().find(|(with, _)| *with == row.with);
        let built = match known {
            Some((_, built)) => built.clone(),
            None => {
                say(&format!("building: {}", row.with.join(" ")));
                let built = workshop.build(row.with)?;
                kernels.push((row.with, built.clone()));
                built
            }
        };
        let begun = Instant::now();
        let cells = run(&artifacts, &workshop, row, &built)?.unwrap_or_else(|why| {
            failed.push(row.name);
            Cells {
                verdict: format!("FAILED: {why}"),
                ..Cells::default()
            }
        });
        let seconds = begun.elapsed().as_secs();
        say(&format!("{}: {}, {seconds} s", row.name, cells.verdict));
        let verdict = cells.verdict.lines().next().unwrap_or_default().to_owned();
        table.add_row([
            row.name.to_owned(),
            cells.skipped,
            cells.claimed,
            cells.bad,
            verdict,
        ]);
    }
    println!("{table}");
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("not as expected: {}", failed.join(", ")).into())
}

/// Runs a row on the kernel in `built`; why it is not as expected, if so.
pub(crate) fn run(
    artifacts: &Artifacts,
    workshop: &Workshop,
    row: &Row,
    built: &Path,
) -> Result<Result<Cells, String>, Failure> {
    let mut extras = Extras::default();
    if row.with.contains(&"module") {
        extras.modules = workshop.modules(row.with)?;
    }
    if row.steps.contains("busybox") {
        extras.programs = vec![busybox::fetch()?];
    }
    let mut artifacts = artifacts.clone();
    artifacts.initrd = built.join("initrd.cpio");
    write_initrd(&artifacts.guest_init, &extras, &artifacts.initrd)?;
    let mut sets = vec![
        "memory.size=1G".to_owned(),
        "balloon.device_init_on_inflate=true".to_owned(),
    ];
    sets.extend(row.sets.iter().map(|set| (*set).to_owned()));
    let guest = Guest {
        kernel: built.join("bzImage"),
        cmdline: row.cmdline.to_owned(),
        steps: row.steps.to_owned(),
        sets,
    };
    let ran = Lab::start(&artifacts)?.run(&guest)?;
    Ok(judge(row, &ran))
}

fn judge(row: &Row, ran: &Ran) -> Result<Cells, String> {
    let liar = row.expect == Expect::Caught;
    let splat = ran.console.lines().find(|line| {
        // The verifier's own warning.
        let expected = liar && line.contains("page_zeroed");
        !expected && SPLATS.iter().any(|splat| line.contains(splat))
    });
    if let Some(line) = splat {
        return Err(format!("the kernel says: {line}"));
    }
    if ran.results.exit_code != 0 && !(liar && ran.results.exit_code == NOT_ZERO) {
        let last = ran.results.guest.last().map(|line| line.line.to_string());
        let tail: Vec<_> = ran.console.lines().rev().take(8).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        return Err(format!(
            "{}; last line: {}\n{}",
            ran.results.verdict,
            last.unwrap_or_default(),
            tail.join("\n")
        ));
    }
    let lines = || ran.results.guest.iter().map(|line| &line.line);
    let of = |kind: &str| lines().find(|line| line.get("type").is_some_and(|is| is == kind));
    let populate = of("populate").ok_or("no memory was populated")?;
    let pages = number(populate, "/pages").unwrap_or(0);
    let skipped = number(populate, "/pages_skipped").unwrap_or(0);
    let nonzero: u64 = lines()
        .filter_map(|line| number(line, "/check/nonzero_bytes"))
        .sum();
    let share = percent(skipped, pages);
    let as_expected = match row.expect {
        Expect::Skipped => share >= SKIPPED,
        Expect::Nothing => skipped == 0,
        Expect::Half => (30.0..=70.0).contains(&share),
        Expect::Caught => skipped == 0 && ran.results.exit_code == NOT_ZERO,
    };
    if !as_expected || nonzero > 0 {
        return Err(format!(
            "{share:.1} % skipped where {:?} was expected; {nonzero} bytes not zero",
            row.expect
        ));
    }
    let info = of("info").unwrap_or(&Value::Null);
    let counter = |name: &str| number(info, &format!("/vmstat/{name}"));
    let claimed = counter("pgzero_skipped").map(|n| n + counter("pgzero_unused").unwrap_or(0));
    let shown = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
    Ok(Cells {
        skipped: format!("{share:.1}"),
        claimed: shown(claimed.map(|pages| pages / 256)),
        bad: shown(counter("pgzero_bad")),
        verdict: "as expected".to_owned(),
    })
}

/// What this JSON pointer (RFC 6901) leads to, if that is a number.
fn number(line: &Value, pointer: &str) -> Option<u64> {
    line.pointer(pointer)?.as_u64()
}

fn percent(part: u64, whole: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "pages of one guest, far below 2^52"
    )]
    let share = part as f64 / whole.max(1) as f64;
    share * 100.0
}
