//! The build as a sequence of steps.

use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use super::base::{Base, is_sha256};
use super::compile::Build;
use super::config::Fragments;
use super::error::{KernelError, io};
use super::files::Dirs;
use super::key::{self, Inputs};
use super::progress::Progress;
use super::series::Series;
use super::source::{self, Wanted};
use super::store;

/// What to build, and from what.
#[derive(Debug, Clone)]
pub(crate) struct KernelOptions {
    /// The directory `guest-kernel/` of the workspace.
    pub(crate) guest_kernel: PathBuf,
    /// A local tarball or tree of the pinned release.
    pub(crate) source: Option<PathBuf>,
    /// The hash of a source to accept besides the pinned ones.
    pub(crate) sha256: Option<String>,
    /// Names of fragments in `config/optional/`.
    pub(crate) with: Vec<String>,
    /// Parallel jobs; one more than there are processors if absent.
    pub(crate) jobs: Option<NonZero<usize>>,
}

/// A finished kernel.
#[derive(Debug, Clone)]
pub(crate) struct KernelPaths {
    /// Names the build; part of the version the kernel reports.
    pub(crate) key: String,
    /// The compressed image.
    pub(crate) bz_image: PathBuf,
    /// The ELF image with a PVH entry, without symbols.
    pub(crate) vmlinux: PathBuf,
    /// Nothing had to be built.
    pub(crate) cached: bool,
}

/// Builds the kernel, unless it is there already.
///
/// A build with `with` does not become the one that the stable names
/// `out/bzImage` and `out/vmlinux` refer to.
pub(crate) fn build(options: &KernelOptions) -> Result<KernelPaths, KernelError> {
    let mut progress = Progress::new();
    let started = Instant::now();
    let dirs = Dirs::new(options.guest_kernel.clone());
    dirs.sweep()?;
    let wanted = Wanted {
        path: options.source.clone(),
        sha256: options.sha256.clone(),
    };
    if let Some(text) = wanted.sha256.as_ref().filter(|text| !is_sha256(text)) {
        return Err(KernelError::BadFile {
            path: "--sha256".into(),
            message: format!("'{text}' is not a sha256 in lower-case hexadecimal"),
        });
    }

    let base = Base::read(&dirs.base())?;
    let series = Series::read(&dirs.patches())?;
    let fragments = Fragments::read(&dirs.config(), &options.with)?;
    let toolchain = key::toolchain()?;
    let inputs = Inputs {
        series: &series,
        fragments: &fragments,
        toolchain: &toolchain,
    };

    // Without a source of the caller's, a finished build of any pinned one will do.
    if wanted.path.is_none() {
        for sha256 in wanted.sha256.as_deref().into_iter().chain(base.pinned()) {
            if let Some(found) = finished(&dirs, &inputs.key(sha256), options)? {
                return Ok(found);
            }
        }
    }

    let source = source::find(&dirs, &base, &wanted, &progress)?;
    let key = inputs.key(&source.sha256);
    if let Some(found) = finished(&dirs, &key, options)? {
        return Ok(found);
    }

    progress.stage(&format!(
        "Linux {}, build {key}: unpacking, {} patches",
        base.version,
        series.patches().len()
    ));
    let tree = dirs.scratch("tree")?;
    source.unpack(tree.path(), &base)?;
    let built = dirs.scratch("built")?;
    series.apply(tree.path(), built.path())?;
    let leftover = built.path().join("patch");
    let _ = fs::remove_file(leftover);

    let objects = dirs.scratch("objects")?;
    let log = dirs.out().join("build.log");
    let _ = fs::remove_file(&log);
    let make = Build {
        tree: tree.path(),
        objects: objects.path(),
        log: log.clone(),
        jobs: options.jobs,
    };
    progress.stage(&format!(
        "configuring, {} fragments",
        fragments.files().len()
    ));
    let local_version = format!("-aerostat-{key}");
    let config = make.configure(&fragments, &local_version, &mut progress)?;
    let path = built.path().join("config");
    fs::write(&path, config).map_err(io("write", path))?;

    progress.stage(&format!("compiling, log in {}", log.display()));
    make.compile(built.path(), &mut progress)?;
    let kept = built.path().join("build.log");
    fs::copy(&log, &kept).map_err(io("copy", kept))?;
    store::put(&dirs, &key, built)?;

    progress.stage(&format!("built in {} s", started.elapsed().as_secs()));
    let mut paths = publish(&dirs, &key, options)?;
    paths.cached = false;
    Ok(paths)
}

fn finished(
    dirs: &Dirs,
    key: &str,
    options: &KernelOptions,
) -> Result<Option<KernelPaths>, KernelError> {
    match store::find(dirs, key)? {
        Some(_) => publish(dirs, key, options).map(Some),
        None => Ok(None),
    }
}

fn publish(dirs: &Dirs, key: &str, options: &KernelOptions) -> Result<KernelPaths, KernelError> {
    if options.with.is_empty() {
        store::select(dirs, key)?;
    }
    let dir = dirs.out().join(key);
    Ok(KernelPaths {
        key: key.to_owned(),
        bz_image: dir.join("bzImage"),
        vmlinux: dir.join("vmlinux"),
        cached: true,
    })
}
