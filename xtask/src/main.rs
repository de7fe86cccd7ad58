//! What a developer or CI runs: `cargo xtask demo`, `cargo xtask test`, and the
//! pieces of them.

mod apt;
mod artifacts;
mod bench;
mod busybox;
mod command;
mod conformance;
mod demo;
mod fuzz;
mod guest;
mod house_rules;
mod kernel;
mod matrix;
mod mirror;
mod mutants;
mod packages;
mod part;
mod series;
mod soak;
mod stock_kernels;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Boot baseline and optimized VMs on 2M and 1G pages and print the loop as a table
    Demo(demo::Options),
    /// Lint, test natively, build everything, and boot real guests
    Test(test::Options),
    /// Guests that allocate, free, inflate and deflate at random for a long time, on each backing
    Soak(soak::Options),
    /// Measure the device on real huge pages beside the bare calls
    Bench,
    /// Name the rows of the device's conformance checklist that have no test
    Conformance,
    /// Feed hostile input to the device and the configuration, guided by coverage
    Fuzz(fuzz::Options),
    /// Build the guest kernel only
    Kernel(kernel::Options),
    /// List, check, edit and export the kernel's patches
    Series(series::Options),
    /// Break the kernel's patches one line at a time: each time a test has to fail
    Mutants(mutants::Options),
    /// Run the kernel's patches under other configurations, and print what came of each
    Matrix(matrix::Options),
    /// Formatting, clippy and the house rules
    Lint,
    /// The tests that boot no guest, and the checklist
    Native,
    /// Build aerostat, the guest kernel and the guest's initrd, and say where they are
    Build,
}

/// What went wrong, in one line for people.
pub(crate) type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Demo(options) => demo::demo(&options),
        Task::Test(options) => test::test(&options),
        Task::Soak(options) => soak::soak(&options),
        Task::Bench => match bench::bench() {
            Ok(false) => return ExitCode::from(bench::SKIPPED),
            done => done.map(drop),
        },
        Task::Conformance => conformance::conformance(),
        Task::Fuzz(options) => fuzz::fuzz(&options),
        Task::Kernel(options) => kernel::run(&options),
        Task::Series(options) => series::series(&options),
        Task::Mutants(options) => mutants::mutants(&options),
        Task::Matrix(options) => matrix::matrix(&options),
        Task::Lint => test::lint(),
        Task::Native => test::native(),
        Task::Build => build(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Failure> {
    packages::install_missing()?;
    let built = artifacts::build()?;
    println!("{}", serde_json::to_string_pretty(&built)?);
    Ok(())
}
