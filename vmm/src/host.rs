//! Stands in for `host/` until that is merged: fails every run.

use std::path::PathBuf;

use crate::config::Config;
use crate::host_facts;
use crate::outcome::FailureClass;
use crate::results::{HostKind, RunResults};
use crate::run_io::RunIo;

/// Which host runs the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostChoice {
    /// Native where KVM can run guests, else emulated.
    Auto,
    /// This machine's KVM.
    Native,
    /// A host emulated by QEMU.
    Emulated,
}

/// What the emulated host is made of.
#[derive(Debug, Clone, Default)]
pub struct HostOptions {
    /// Its kernel, before what the configuration says.
    pub host_kernel: Option<PathBuf>,
    /// The static binary that becomes its init; this program if not given.
    pub agent: Option<PathBuf>,
}

/// Runs the guest.
pub fn run(config: &Config, _: HostChoice, _: &HostOptions, _: RunIo) -> RunResults {
    let facts = host_facts::gather(HostKind::Native, Vec::new());
    let message = "this build has no host to run on";
    RunResults::failed(config, facts, FailureClass::Internal, message)
}

/// The init of the emulated host.
pub mod agent {
    /// Whether this process is that init.
    pub fn is_init() -> bool {
        false
    }

    /// Runs as PID 1.
    pub fn main() -> ! {
        std::process::exit(70)
    }
}
