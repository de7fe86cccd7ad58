//! Swap space for a test, taken from the disk and given back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pool_guard::skip;

const BYTES: usize = 64 << 20;

/// Swap space of 64 MiB in a file of its own; dropping it swaps all back in.
pub(super) struct SwapGuard(PathBuf);

impl SwapGuard {
    /// `None`, after saying why, where there can be none; with
    /// `AEROSTAT_REQUIRE=1` that is a failure.
    pub(super) fn new() -> Option<Self> {
        let name = format!("aerostat-test-swap-{}", std::process::id());
        let guard = Self(std::env::temp_dir().join(name));
        match guard.turn_on() {
            Ok(()) => Some(guard),
            Err(why) => skip(&format!("no swap space: {why}")),
        }
    }

    fn turn_on(&self) -> Result<(), String> {
        // Written out: swap space must have no holes.
        fs::write(&self.0, vec![0; BYTES]).map_err(|error| error.to_string())?;
        let file = File::open(&self.0).map_err(|error| error.to_string())?;
        file.sync_all().map_err(|error| error.to_string())?;
        run("chmod", &["600".as_ref(), &self.0])?;
        run("mkswap", &[&self.0])?;
        run("swapon", &[&self.0])
    }
}

impl Drop for SwapGuard {
    fn drop(&mut self) {
        // Fails where it was never turned on.
        let _ = run("swapoff", &[&self.0]);
        let _ = fs::remove_file(&self.0);
    }
}

fn run(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{program}: {}", stderr.trim_end()))
}
