//! `cargo xtask test`: everything that must hold.

use std::fs;
use std::path::Path;
use std::time::Instant;

use clap::Args;

use crate::Failure;
use crate::artifacts::{self, Artifacts, out};
use crate::command::{cargo, cargo_showing, run, say};
use crate::part::Part;
use crate::{conformance, fuzz, house_rules, packages, stock_kernels};

/// New hostile input on top of what is kept in the tree: only with `--all`, as the
/// programs for it take minutes to build.
const FUZZ_SECONDS: u32 = 60;

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only boot tests whose name contains this, and nothing else
    #[arg(long, value_name = "NAME")]
    boot: Option<String>,
    /// Also the boot tests that a usual run leaves out, and some fuzzing
    #[arg(long)]
    all: bool,
}

/// Lint beside the build of what is tested, then native tests beside boot tests: an
/// emulated host keeps little more than one CPU busy.
pub(crate) fn test(options: &Options) -> Result<(), Failure> {
    let started = Instant::now();
    packages::install_missing()?;
    let beside = |task| match options.boot {
        Some(_) => Ok(None),
        None => {
            fs::create_dir_all(out())?;
            Part::start(task, out().join(format!("{task}.log"))).map(Some)
        }
    };
    let lint = beside("lint")?;
    let mut built = timed("building", artifacts::build)?;
    built.stock = stock_kernels::fetch(&built.guest_init)?;
    lint.map_or(Ok(()), Part::finish)?;

    let native = beside("native")?;
    let booted = timed("boot tests", || boot_tests(&built, options));
    // Both are told of, whichever failed.
    let native = native.map_or(Ok(()), Part::finish);
    match (booted, native) {
        (Err(booted), Err(native)) => return Err(format!("{booted}\n{native}").into()),
        (booted, native) => booted.and(native)?,
    }
    if options.all && options.boot.is_none() {
        timed("fuzzing", || fuzz::briefly(FUZZ_SECONDS))?;
    }
    say(&format!("all passed in {} s", started.elapsed().as_secs()));
    Ok(())
}

/// Native tests, those with hostile input among them, and the checklist.
pub(crate) fn native() -> Result<(), Failure> {
    // Beside boot tests nothing they use may be written anew.
    let bzimage = out().join("bzImage");
    if !bzimage.exists() {
        artifacts::build()?;
    }
    timed("native tests", || native_tests(&bzimage))?;
    conformance::conformance()
}

/// Says how long a part of it took.
fn timed<T>(what: &str, part: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let started = Instant::now();
    let result = part();
    say(&format!("{what} took {} s", started.elapsed().as_secs()));
    result
}

/// Formatting, clippy, house rules.
pub(crate) fn lint() -> Result<(), Failure> {
    say("lint");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo_showing("clippy")
        .args(["--workspace", "--all-targets"])
        .args(["--", "-D", "warnings"]))?;
    house_rules::check()
}

/// All tests that boot no guest; those of the emulated host boot that.
fn native_tests(bzimage: &Path) -> Result<(), Failure> {
    say("native tests");
    run(cargo_showing("test")
        .args([
            "--workspace",
            "--exclude",
            "boot-tests",
            "--exclude",
            "benches",
        ])
        .env("AEROSTAT_HOST_KERNEL", bzimage)
        // What is missing here is a failure, not a skip.
        .env("AEROSTAT_REQUIRE", "1"))
}

fn boot_tests(built: &Artifacts, options: &Options) -> Result<(), Failure> {
    let manifest = out().join("artifacts.json");
    fs::write(&manifest, serde_json::to_string_pretty(built)?)?;
    say("boot tests");
    run(cargo_showing("test")
        .args(["-p", "boot-tests", "--"])
        .args(&options.boot)
        .args((options.all || options.boot.is_some()).then_some("--include-ignored"))
        .env("AEROSTAT_ARTIFACTS", &manifest))
}
