//! PID 1 of the emulated host.
//!
//! It takes files and jobs from the other side of the control channel and runs
//! each job as a child: this same program, as `aerostat run --host native`.

mod control_pipes;
mod file_store;
mod init;
mod job;
mod meminfo;
mod outbox;
mod pools;
mod port;
mod serve;

use std::path::PathBuf;
use std::time::Duration;

pub use init::{is_init, main};

/// What the kernel of an emulated host runs as init. Nobody else starts this
/// program under that name, also not where a container makes it PID 1.
pub const INIT_PATH: &str = "/aerostat-host";
/// Name of the virtio-serial port that is the control channel.
pub const PORT_NAME: &str = "aerostat";
/// Directories the agent mounts something on (and /dev).
pub const MOUNT_POINTS: [&str; 4] = ["/proc", "/sys", FILES, JOB];
/// Where the inner run leaves its results.
pub const RESULTS_PATH: &str = "/job/results.json";
/// How often the host gives a sign of life.
pub const ALIVE_EVERY: Duration = Duration::from_secs(2);

/// A tmpfs with the files by their content.
const FILES: &str = "/files";
/// A tmpfs with the files of the running job.
const JOB: &str = "/job";

/// Where a file of this content is in the host.
#[must_use]
pub fn stored_file(id: &str) -> PathBuf {
    PathBuf::from(FILES).join(id)
}
