//! A small Linux in QEMU that runs guests under its own KVM.
//!
//! ```text
//!  this process                         QEMU (TCG: AMD CPU with SVM)
//!  machine ── link ──socketpair── virtio-serial ── agent (PID 1, this binary)
//!     │                                              │ one child per run
//!   files, job                                       └─ aerostat run --host native
//! ```
//!
//! Nothing of it touches the disk: the initial RAM file system is a memfd, the
//! channel a socket pair. QEMU dies with this process, however it ends.

mod command_line;
mod control_relay;
mod files;
mod initrd;
mod inner_results;
mod job;
mod link;
mod loadable;
mod machine;
mod pollable;
mod qemu;
mod tsc;

pub use machine::Sent;
pub(crate) use machine::{EmulatedHost, MachineSpec};
