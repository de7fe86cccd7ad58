//! `cargo xtask kernel` and what can be said to it.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;

use super::build::{KernelOptions, KernelPaths, build};
use super::series::Series;
use super::workshop::Workshop;
use crate::command::root;
use crate::{Failure, packages};

/// Options of `cargo xtask kernel`.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// A local tarball or tree of the pinned release
    #[arg(long, value_name = "PATH", env = "AEROSTAT_KERNEL_SOURCE")]
    source: Option<PathBuf>,
    /// Accept a source with this sha256 besides the pinned ones
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Add a fragment of guest-kernel/config/optional
    #[arg(long, value_name = "NAME")]
    with: Vec<String>,
    /// Parallel jobs [default: one more than processors]
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
}

/// Builds the kernel and says where it is.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    packages::install_missing()?;
    let paths = build(&options.complete())?;
    let how = if paths.cached { "up to date" } else { "new" };
    println!("{} ({how})", paths.key);
    println!("{}", paths.bz_image.display());
    println!("{}", paths.vmlinux.display());
    Ok(())
}

/// The kernel the demo and the tests boot.
pub(crate) fn build_default() -> Result<KernelPaths, Failure> {
    let source = std::env::var_os("AEROSTAT_KERNEL_SOURCE").map(PathBuf::from);
    let options = Options {
        source,
        ..Options::default()
    };
    Ok(build(&options.complete())?)
}

impl Options {
    fn complete(&self) -> KernelOptions {
        KernelOptions {
            guest_kernel: root().join("guest-kernel"),
            source: self.source.clone(),
            sha256: self.sha256.clone(),
            with: self.with.clone(),
            jobs: self.jobs,
        }
    }
}

/// The series as it is in the tree.
pub(crate) fn series() -> Result<Series, Failure> {
    Ok(Series::read(&root().join("guest-kernel/patches"))?)
}

/// The workshop with all patches applied.
pub(crate) fn workshop() -> Result<Workshop, Failure> {
    let source = std::env::var_os("AEROSTAT_KERNEL_SOURCE").map(PathBuf::from);
    let options = Options {
        source,
        ..Options::default()
    };
    Ok(Workshop::open(options.complete())?)
}
