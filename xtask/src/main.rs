//! `cargo xtask`: what a developer or CI runs.

mod kernel;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use kernel::{KernelError, KernelPaths};

#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the guest kernel, unless it is built already.
    Kernel {
        /// A local tarball or tree of the pinned release.
        #[arg(long, env = "AEROSTAT_KERNEL_SOURCE")]
        source: Option<PathBuf>,
        /// Accept a source with this sha256 besides the pinned ones.
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
        /// Add a fragment of guest-kernel/config/optional.
        #[arg(long, value_name = "NAME")]
        with: Vec<String>,
        /// Parallel jobs [default: one for each processor].
        #[arg(long)]
        jobs: Option<NonZero<usize>>,
    },
}

fn main() -> ExitCode {
    let Task::Kernel {
        source,
        sha256,
        with,
        jobs,
    } = Arguments::parse().task;
    let options = kernel::KernelOptions {
        guest_kernel: workspace().join("guest-kernel"),
        source,
        sha256,
        with,
        jobs,
    };
    report_kernel(kernel::build(&options))
}

fn report_kernel(result: Result<KernelPaths, KernelError>) -> ExitCode {
    match result {
        Ok(paths) => {
            let how = if paths.cached { "up to date" } else { "new" };
            println!("{} ({how})", paths.key);
            println!("{}", paths.bz_image.display());
            println!("{}", paths.vmlinux.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace this program was built in.
fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
