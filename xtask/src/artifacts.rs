//! Builds what a run needs: `aerostat`, the guest kernel, the guest's initrd.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vmm::host::cpio;

use crate::Failure;
use crate::command::{cargo_showing, root, run, say};
use crate::kernel;

/// Where everything is. The boot tests get it as a JSON file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Artifacts {
    /// The `aerostat` binary, release build.
    pub(crate) aerostat: PathBuf,
    /// The emulated host's kernel.
    pub(crate) host_kernel: PathBuf,
    /// The guest kernel as bzImage; the host's, unless another one is tried.
    pub(crate) bzimage: PathBuf,
    /// The same kernel as ELF.
    pub(crate) vmlinux: PathBuf,
    /// The guest's init.
    pub(crate) guest_init: PathBuf,
    /// Initrd with our init.
    pub(crate) initrd: PathBuf,
    /// Kernels of distributions, each with an initrd of its own.
    pub(crate) stock: Vec<StockKernel>,
}

/// A distribution's kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StockKernel {
    /// Name for people, such as `debian-6.12-cloud`.
    pub(crate) name: String,
    /// Its bzImage.
    pub(crate) image: PathBuf,
    /// Initrd with our init and its virtio modules.
    pub(crate) initrd: PathBuf,
}

/// The folder of everything built here that is not cargo's; ignored by git.
pub(crate) fn out() -> PathBuf {
    root().join("guest-kernel/out")
}

/// Builds all but the stock kernels.
pub(crate) fn build() -> Result<Artifacts, Failure> {
    say("building aerostat and the guest's init (release)");
    run(cargo_showing("build").args(["--release", "-p", "vmm", "-p", "guest-init"]))?;
    let kernel = kernel::build_default()?;
    let release = root().join("target/x86_64-unknown-linux-gnu/release");
    let guest_init = release.join("guest-init");
    let initrd = out().join("initrd.cpio");
    write_initrd(&guest_init, &Extras::default(), &initrd)?;
    Ok(Artifacts {
        aerostat: release.join("aerostat"),
        host_kernel: kernel.bz_image.clone(),
        bzimage: kernel.bz_image,
        vmlinux: kernel.vmlinux,
        guest_init,
        initrd,
        stock: Vec::new(),
    })
}

/// What an initrd holds beside its init.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// Modules, which init loads in that order.
    pub(crate) modules: Vec<PathBuf>,
    /// Programs, in `/bin`.
    pub(crate) programs: Vec<PathBuf>,
}

/// Writes an initrd of `init` and `extras`.
pub(crate) fn write_initrd(init: &Path, extras: &Extras, to: &Path) -> Result<(), Failure> {
    let mut archive = cpio::Archive::new(Vec::new());
    archive.directory("dev")?;
    // The kernel opens /dev/console for init before anything is mounted.
    archive.character_device("dev/console", (5, 1))?;
    archive.file("init", 0o755, &fs::read(init)?)?;
    let mut folder = |name: &str, mode: u32, files: &[PathBuf]| -> Result<(), Failure> {
        if !files.is_empty() {
            archive.directory(name)?;
        }
        for file in files {
            let base = file.file_name().unwrap_or_default().to_string_lossy();
            archive.file(&format!("{name}/{base}"), mode, &fs::read(file)?)?;
        }
        Ok(())
    };
    folder("modules", 0o644, &extras.modules)?;
    folder("bin", 0o755, &extras.programs)?;
    let unfinished = to.with_extension("unfinished");
    fs::write(&unfinished, archive.finish()?)?;
    fs::rename(&unfinished, to)?;
    Ok(())
}
