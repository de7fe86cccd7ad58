//! What was built for these tests, as `cargo xtask test` tells it.

use std::path::PathBuf;

use serde::Deserialize;

/// See the builder of the same name in xtask.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Artifacts {
    pub(crate) aerostat: PathBuf,
    pub(crate) host_kernel: PathBuf,
    pub(crate) bzimage: PathBuf,
    pub(crate) vmlinux: PathBuf,
    pub(crate) initrd: PathBuf,
    pub(crate) stock: Vec<StockKernel>,
}

/// A distribution's kernel.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StockKernel {
    pub(crate) name: String,
    pub(crate) image: PathBuf,
    pub(crate) initrd: PathBuf,
}

impl Artifacts {
    /// From the file that `AEROSTAT_ARTIFACTS` names; only `cargo xtask test` sets
    /// it, right after building, so nothing stale is tested.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let path = std::env::var_os("AEROSTAT_ARTIFACTS")
            .ok_or("SKIPPED, nothing was booted: run them with `cargo xtask test`")?;
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path:?}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{path:?}: {error}"))
    }
}
