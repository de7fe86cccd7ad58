//! Why a step failed, and the exit codes.

use std::io;
use std::process::ExitStatus;

/// All steps ran.
pub(crate) const EXIT_OK: i32 = 0;
/// A word on the command line is no step; nothing ran.
pub(crate) const EXIT_BAD_STEP: i32 = 3;
/// A step failed; those after it did not run.
pub(crate) const EXIT_STEP_FAILED: i32 = 4;
/// Fresh memory held non-zero bytes; this outranks every other code.
pub(crate) const EXIT_NOT_ZERO: i32 = 5;
/// This program has a bug.
pub(crate) const EXIT_PANIC: i32 = 70;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// A file of the kernel (procfs, sysfs) or a device could not be used.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// A verb.
        action: &'static str,
        /// Which file.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{call} of {bytes} bytes failed: {source}")]
    Memory {
        /// Which call.
        call: &'static str,
        /// Size of the region.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// More memory than there is: trying would end in an out-of-memory panic.
    #[error("needs {need} bytes of memory, {available} bytes are available")]
    TooLarge {
        /// Including page tables.
        need: u64,
        /// MemAvailable.
        available: u64,
    },
    /// The kernel lacks what the step needs.
    #[error("this kernel has no {0}")]
    Missing(String),
    /// Not something to do to a machine that is not a guest.
    #[error("refused: only the init of a guest (PID 1) does this")]
    NotGuest,
    /// The process that was to allocate could not even try.
    #[error(
        "the process that allocates {bytes} bytes ended with {status}; is that more than MemTotal?"
    )]
    Victim {
        /// How much it should allocate.
        bytes: u64,
        /// How it ended.
        status: ExitStatus,
    },
    /// Another program did not end well.
    #[error("{program} ended with {status}: {output}")]
    Exec {
        /// Which.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last of what it said.
        output: String,
    },
    /// The balloon does not get where it should.
    #[error("the balloon holds {held} bytes after {seconds} s, not {wanted}")]
    Balloon {
        /// What it should hold, in bytes.
        wanted: u64,
        /// What it holds, in bytes.
        held: u64,
        /// How long was waited.
        seconds: f64,
    },
    /// Threads could not do anything.
    #[error("no worker completed an allocation; last error: {0}")]
    NoProgress(String),
}
