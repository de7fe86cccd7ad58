//! What can go wrong, in words that name the fix.

use std::path::PathBuf;

use super::config::Lost;

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error("{action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {message}", path.display())]
    BadFile { path: PathBuf, message: String },
    #[error("Debian's source package: {0}")]
    Debian(String),
    #[error("{} has sha256 {found}, not one of: {expected}", path.display())]
    WrongHash {
        path: PathBuf,
        found: String,
        expected: String,
    },
    #[error(
        "no kernel source: {tried}; give a tarball or tree with --source (AEROSTAT_KERNEL_SOURCE)"
    )]
    NoSource { tried: String },
    #[error("source says it is Linux {found}, but Linux {expected} is pinned")]
    WrongVersion { found: String, expected: String },
    #[error("patch {patch} does not apply:\n{output}")]
    Patch { patch: String, output: String },
    #[error("the configuration lost {} symbols of the fragments:\n{}", .0.len(), list(.0))]
    LostSymbols(Vec<Lost>),
    #[error("{command} failed ({status}):\n{output}")]
    Command {
        command: String,
        status: String,
        output: String,
    },
}

fn list(lost: &[Lost]) -> String {
    let lines: Vec<String> = lost.iter().map(|l| format!("  {l}")).collect();
    lines.join("\n")
}

/// Turns an I/O error into a [`KernelError`] that says what was tried on what.
pub(crate) fn io(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> KernelError {
    let path = path.into();
    move |source| KernelError::Io {
        action,
        path,
        source,
    }
}
