//! `cargo xtask mutants`: breaks the series one line at a time; each time the test
//! that is named for it has to fail.

mod list;
mod trial;

use std::fs;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;

use self::list::{Mutation, mutations};
use self::trial::{Laboratory, Outcome};
use crate::command::say;
use crate::{Failure, kernel, packages};

/// Options of `cargo xtask mutants`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only those whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Tries all of them, each alone; fails if one survives.
pub(crate) fn mutants(options: &Options) -> Result<(), Failure> {
    packages::install_missing()?;
    let only = options.only.as_deref().unwrap_or("");
    let all = mutations()?;
    let chosen: Vec<_> = all.iter().filter(|m| m.name.contains(only)).collect();
    if chosen.is_empty() {
        return Err(format!("no mutation is called like {only}").into());
    }
    let workshop = kernel::workshop()?;
    let tree = workshop.tree();
    // Before anything is built: all of them fit.
    for mutation in &chosen {
        mutation.broken(&tree)?;
    }
    let laboratory = Laboratory::new(&workshop)?;
    say("without a mutation");
    let mut tests: Vec<_> = chosen.iter().map(|mutation| &mutation.test).collect();
    tests.sort_unstable();
    tests.dedup();
    for test in tests {
        if laboratory.run(test)? == Outcome::Failed {
            return Err(format!("{test} fails without any mutation").into());
        }
    }

    let mut table = Table::new();
    table
        .load_preset(UTF8_BORDERS_ONLY)
        .set_header(["mutation", "of", "test", "", "s"]);
    let mut survivors = Vec::new();
    for mutation in chosen {
        let begun = Instant::now();
        let outcome = attempt(&laboratory, &tree, mutation);
        // Whatever came of it, nothing of it stays.
        workshop.at(workshop.series().patches().len())?;
        let caught = match &outcome {
            Ok(Outcome::Failed) => "caught".to_owned(),
            Ok(Outcome::Passed) => "SURVIVED".to_owned(),
            Err(error) => format!("NOT TRIED: {error}"),
        };
        let seconds = begun.elapsed().as_secs();
        say(&format!("{}: {caught}, {seconds} s", mutation.name));
        if !matches!(outcome, Ok(Outcome::Failed)) {
            survivors.push(mutation.name.as_str());
        }
        table.add_row([
            mutation.name.clone(),
            mutation.file.clone(),
            mutation.test.to_string(),
            caught.lines().next().unwrap_or_default().to_owned(),
            seconds.to_string(),
        ]);
    }
    println!("{table}");
    if survivors.is_empty() {
        return Ok(());
    }
    Err(format!("not caught: {}", survivors.join(", ")).into())
}

fn attempt(
    laboratory: &Laboratory<'_>,
    tree: &Path,
    mutation: &Mutation,
) -> Result<Outcome, Failure> {
    fs::write(tree.join(&mutation.file), mutation.broken(tree)?)?;
    laboratory.run(&mutation.test)
}
