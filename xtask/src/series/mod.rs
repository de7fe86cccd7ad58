//! `cargo xtask series`: work on the patches of the guest kernel.

mod cost;
mod export;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use clap::{Args, Subcommand};
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;

use crate::command::say;
use crate::kernel::{self, Series, Workshop};
use crate::{Failure, packages};

/// Options of `cargo xtask series`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The patches in order, each with what fails without it
    List,
    /// Apply one patch after the other; checkpatch, and build a kernel after each
    Check(Check),
    /// Compare allocations on the release and on the patched kernel, features off
    Cost {
        /// Pairs of guests
        #[arg(long, value_name = "N", default_value_t = 30)]
        pairs: u32,
    },
    /// Make a git work tree with a commit for each patch
    Tree {
        /// Where; must not exist
        path: PathBuf,
    },
    /// Write the commits of such a work tree back to guest-kernel/patches
    Export {
        /// The work tree
        path: PathBuf,
    },
}

#[derive(Args)]
struct Check {
    /// Start after so many patches
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: usize,
    /// Build nothing
    #[arg(long)]
    no_build: bool,
}

/// Runs one of them.
pub(crate) fn series(options: &Options) -> Result<(), Failure> {
    packages::install_missing()?;
    match &options.task {
        Task::List => list(),
        Task::Check(options) => check(options),
        Task::Cost { pairs } => cost::cost(*pairs),
        Task::Tree { path } => export::tree(path),
        Task::Export { path } => export::export(path),
    }
}

fn list() -> Result<(), Failure> {
    let series = kernel::series()?;
    let mut table = Table::new();
    table
        .load_preset(UTF8_BORDERS_ONLY)
        .set_header(["", "patch", "what", "fails without it"]);
    for (number, patch) in (1..).zip(series.patches()) {
        let subject = Series::subject(patch);
        table.add_row([
            number.to_string(),
            patch.name.clone(),
            subject,
            patch.tests.join("\n"),
        ]);
    }
    println!("{table}");
    let without = series.patches().iter().filter(|p| p.tests.is_empty());
    let without: Vec<_> = without.map(|patch| patch.name.as_str()).collect();
    if without.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no test is named in patches/series for {}",
        without.join(", ")
    )
    .into())
}

/// Every state of the series has to build, and every patch to please checkpatch.
fn check(options: &Check) -> Result<(), Failure> {
    let workshop = kernel::workshop()?;
    let patches = workshop.series().patches();
    let mut failed = Vec::new();
    for (number, patch) in (1..).zip(patches).skip(options.after) {
        workshop.at(number)?;
        let begun = Instant::now();
        if let Err(error) = checkpatch(&workshop) {
            say(&format!("{}: {error}", patch.name));
            failed.push(format!("{} (checkpatch)", patch.name));
        }
        if options.no_build {
            continue;
        }
        let built = workshop.build(&[]);
        let seconds = begun.elapsed().as_secs();
        let of = patches.len();
        match built {
            Ok(_) => say(&format!("{number}/{of} {} builds, {seconds} s", patch.name)),
            Err(error) => {
                say(&format!("{number}/{of} {}: {error}", patch.name));
                failed.push(patch.name.clone());
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("failed: {}", failed.join(", ")).into())
}

/// The kernel's own check of the patch that is applied last.
fn checkpatch(workshop: &Workshop) -> Result<(), Failure> {
    let mut checkpatch = Command::new("perl");
    checkpatch.current_dir(workshop.tree()).args([
        "scripts/checkpatch.pl",
        "--quiet",
        "--git",
        "HEAD",
    ]);
    kernel::tools::run(&mut checkpatch)?;
    Ok(())
}
