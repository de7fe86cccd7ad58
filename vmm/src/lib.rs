//! Aerostat as a library: from a configuration to a guest's verdict.
//!
//! 1. [`config`]: the TOML file and the command line become one checked [`config::Config`].
//! 2. [`host`]: native KVM here, or an emulated host that runs the same thing.
//! 3. `memory`: guest RAM is reserved, mapped and populated; the proof of zero lives there.
//! 4. `x86`, `kvm`: kernel, boot structures and vCPUs.
//! 5. `run`: the machine is built, runs, and ends in an [`outcome::Verdict`].

pub mod config;
pub mod forced_exit;
pub mod host;
pub mod host_facts;
pub mod logger;
pub mod outcome;
pub mod results;
pub mod results_file;
pub mod run_io;
pub mod stop_signals;
pub mod terminal;
