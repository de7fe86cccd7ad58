//! `cargo xtask test`: everything that must hold, in the order of cost.

use std::time::Instant;

use clap::Args;

use crate::Failure;
use crate::artifacts::{self, out};
use crate::command::{cargo, run, say};
use crate::{house_rules, packages, stock_kernels};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only boot tests whose name contains this; skips everything else
    #[arg(long, value_name = "NAME")]
    boot: Option<String>,
}

/// Lints, native tests, boot tests.
pub(crate) fn test(options: &Options) -> Result<(), Failure> {
    let started = Instant::now();
    packages::install_missing()?;
    if options.boot.is_none() {
        lint()?;
        say("native tests");
        // A missing huge page pool is a failure here, not a skip.
        run(cargo()
            .args(["test", "--quiet", "--workspace", "--exclude", "boot-tests"])
            .env("AEROSTAT_REQUIRE", "1"))?;
    }
    boot_tests(options.boot.as_deref())?;
    say(&format!("all passed in {} s", started.elapsed().as_secs()));
    Ok(())
}

/// Formatting, clippy, house rules.
pub(crate) fn lint() -> Result<(), Failure> {
    say("lint");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    house_rules::check()
}

fn boot_tests(filter: Option<&str>) -> Result<(), Failure> {
    let mut built = artifacts::build()?;
    built.stock = stock_kernels::fetch(&built.guest_init)?;
    let manifest = out().join("artifacts.json");
    std::fs::write(&manifest, serde_json::to_string_pretty(&built)?)?;
    say("boot tests");
    run(cargo()
        .args(["test", "--quiet", "-p", "boot-tests", "--"])
        .args(filter)
        .env("AEROSTAT_ARTIFACTS", &manifest))
}
