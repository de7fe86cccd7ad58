//! The command line.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use vmm::host::HostChoice;
use vmm::outcome::EXIT_CODES;

use crate::cli_ctl::CtlArgs;

/// Version and what is built in.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nhosts:    native (KVM), emulated (QEMU)",
    "\nbackings: hugetlb 2M, hugetlb 1G, thp, pages",
    "\nkernels:  bzImage, ELF with PVH entry",
    "\nballoon:  free page reporting, DEVICE_INIT_REPORTED, DEVICE_INIT_ON_INFLATE,\n          MUST_TELL_HOST, DEFLATE_ON_OOM",
);

/// Boot a Linux guest on huge pages, zero what it reports free, and spare it the clearing.
#[derive(Debug, Parser)]
#[command(name = "aerostat", version = VERSION, after_help = exit_codes(), max_term_width = 100)]
pub(crate) struct Cli {
    /// Log more: -v for debugging, -vv for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Boot a guest and exit with its verdict
    #[command(after_help = exit_codes())]
    Run(RunArgs),
    /// Look at a configuration without running it
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Control a running VM through its control.socket
    #[command(after_help = exit_codes())]
    Ctl(CtlArgs),
    /// Print what results say of a host: kernel, CPU, THP, huge page pools
    Info {
        /// As one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) source: ConfigSource,
    /// Where the guest runs
    #[arg(long, value_enum, default_value_t = Host::Auto)]
    pub(crate) host: Host,
    /// Kernel of the emulated host, instead of host.kernel
    #[arg(long, value_name = "PATH")]
    pub(crate) host_kernel: Option<String>,
    /// Write the results document here, instead of results.path
    #[arg(long, value_name = "FILE")]
    pub(crate) results: Option<String>,
    /// Check everything, print the merged configuration, start nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigSource {
    /// Configuration; configs/README.md documents each key
    #[arg(value_name = "CONFIG.toml")]
    pub(crate) config: PathBuf,
    /// Set one key, on top of the configuration: --set memory.page=1G
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the merged configuration as TOML
    Show {
        #[command(flatten)]
        source: ConfigSource,
        /// Say of each value where it comes from
        #[arg(long)]
        origin: bool,
    },
    /// Check it, and that the files it names are there and fit into guest RAM
    Check {
        #[command(flatten)]
        source: ConfigSource,
    },
}

/// Where the guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Host {
    /// Native if KVM here can run guests, else emulated
    Auto,
    /// KVM of this machine
    Native,
    /// KVM of a host that QEMU emulates: counters are exact, times are not
    Emulated,
}

impl From<Host> for HostChoice {
    fn from(host: Host) -> Self {
        match host {
            Host::Auto => Self::Auto,
            Host::Native => Self::Native,
            Host::Emulated => Self::Emulated,
        }
    }
}

fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in EXIT_CODES {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {code:<9} {meaning}");
    }
    text.push_str(
        "\nstdout carries the guest's console or the data asked for; everything else is on stderr.",
    );
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_has_every_exit_code() {
        let help = Cli::command().render_help().to_string();
        for (code, meaning) in EXIT_CODES {
            assert!(
                help.contains(&format!("{code:<9} {meaning}")),
                "{code}\n{help}"
            );
        }
    }
}
