//! Where a guest runs: KVM of this machine, or of an emulated one.
//!
//! 1. [`choose`] looks at this machine and picks, in one logged line.
//! 2. [`Session`] is the host that was picked, for one guest or many.
//! 3. [`native`] runs a guest on this machine's KVM.
//! 4. `emulated` boots a small Linux in QEMU and speaks [`protocol`] with
//! 5. [`agent`], its PID 1, which runs the guest natively there.

pub mod agent;
pub mod choose;
pub mod content_id;
pub mod cpio;
mod emulated;
mod failure;
pub mod native;
mod options;
pub mod protocol;
mod session;

pub use emulated::Sent;
pub use options::{HostChoice, HostOptions, JobOptions};
pub use session::{Session, run};
