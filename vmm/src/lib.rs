//! Aerostat as a library: from a configuration to a guest's verdict.
//!
//! 1. [`config`]: the TOML file and the command line become one checked [`config::Config`].
//! 2. [`host`]: native KVM here, or an emulated host that runs the same thing.
//! 3. [`memory`]: guest RAM is reserved, mapped and populated; the proof of zero lives there.
//! 4. [`x86`], [`kvm`]: kernel, boot structures and vCPUs.
//! 5. [`run`]: the machine is built, runs, and ends in an [`outcome::Verdict`].
//! 6. [`control`]: what is asked of it meanwhile, through a socket.

pub mod builder;
pub mod config;
pub mod console_input;
pub mod console_output;
pub mod console_panic;
pub mod control;
pub mod early_stop;
pub mod ending;
pub mod event_loop;
pub mod fault_injection;
pub mod footprint;
pub mod forced_exit;
pub mod guest_lines;
pub mod host;
pub mod host_facts;
pub mod kvm;
pub mod logger;
pub mod machine;
pub mod memory;
pub mod milestones;
pub mod named_pipe;
pub mod outcome;
pub mod results;
pub mod results_file;
pub mod results_port;
pub mod run;
pub mod run_io;
pub mod stop_signals;
mod tail;
pub mod terminal;
pub mod x86;
