//! The `aerostat` command.

mod cli;
mod cli_config;
mod cli_ctl;
mod cli_ctl_table;
mod cli_info;
mod cli_run;
mod talk;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use vmm::{forced_exit, host, logger};

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let exec = Instant::now();
    if host::agent::is_init() {
        host::agent::main();
    }
    let cli = Cli::parse();
    forced_exit::leave_on_panic();
    logger::start(logger::level(cli.verbose, cli.quiet), exec);
    ExitCode::from(match cli.command {
        Command::Run(args) => cli_run::run(args, cli.quiet, exec),
        Command::Config(command) => cli_config::run(&command, cli.quiet),
        Command::Ctl(args) => cli_ctl::run(&args, cli.quiet),
        Command::Info { json } => cli_info::run(json),
    })
}
