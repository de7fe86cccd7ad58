//! `guest-kernel/out/workshop/`: the release and the series as a git repository,
//! and directories to build in that stay, so that a change costs seconds.
//!
//! For work on the series alone. The kernel that is demonstrated and tested is
//! built from nothing, see [`super::build`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::base::Base;
use super::build::KernelOptions;
use super::compile::Build;
use super::config::Fragments;
use super::error::{KernelError, io};
use super::files::Dirs;
use super::hash::Hasher;
use super::progress::Progress;
use super::series::Series;
use super::source::{self, Wanted};
use super::tools;

/// The commit of the release as it is.
const BASE: &str = "base";
/// What every kernel built here calls itself: a name that changed with the
/// patches would have much of it built anew each time.
const LOCAL_VERSION: &str = "-aerostat-workshop";

/// The repository and where its kernels are built.
pub(crate) struct Workshop {
    root: PathBuf,
    /// The release, and then the state after each patch.
    states: Vec<String>,
    series: Series,
    options: KernelOptions,
}

impl Workshop {
    /// Makes the repository, or finds it, and brings it to the series as it is now.
    pub(crate) fn open(options: KernelOptions) -> Result<Self, KernelError> {
        let progress = Progress::new();
        let dirs = Dirs::new(options.guest_kernel.clone());
        let base = Base::read(&dirs.base())?;
        let series = Series::read(&dirs.patches())?;
        let wanted = Wanted {
            path: options.source.clone(),
            sha256: options.sha256.clone(),
        };
        let source = source::find(&dirs, &base, &wanted, &progress)?;
        let short = source.sha256.get(..12).unwrap_or(&source.sha256);
        let root = dirs.out().join("workshop").join(short);
        let tree = root.join("tree");
        if git(&tree, &["rev-parse", "--verify", "--quiet", BASE]).is_err() {
            progress.stage(&format!("Linux {} as a git repository", base.version));
            if root.exists() {
                fs::remove_dir_all(&root).map_err(io("remove", &root))?;
            }
            fs::create_dir_all(&tree).map_err(io("create", &tree))?;
            source.unpack(&tree, &base)?;
            git(&tree, &["init", "--quiet"])?;
            git(&tree, &["add", "--all", "--force", "."])?;
            let subject = format!("Linux {}", base.version);
            git(&tree, &["commit", "--quiet", "--message", &subject])?;
            git(&tree, &["tag", BASE])?;
        }
        let mut workshop = Self {
            root,
            states: Vec::new(),
            series,
            options,
        };
        workshop.apply(&dirs.patches(), &progress)?;
        Ok(workshop)
    }

    /// One commit for each patch, unless this very series is there.
    fn apply(&mut self, patches: &Path, progress: &Progress) -> Result<(), KernelError> {
        let mut hasher = Hasher::default();
        for patch in self.series.patches() {
            hasher.field(&patch.name, &patch.content);
        }
        let mut tag = format!("series-{}", hasher.finish());
        tag.truncate(7 + 16);
        let tree = self.tree();
        if git(&tree, &["rev-parse", "--verify", "--quiet", &tag]).is_err() {
            progress.stage(&format!("{} patches", self.series.patches().len()));
            // Of a run that was interrupted.
            let _ = git(&tree, &["am", "--quit"]);
            self.reset(BASE)?;
            for patch in self.series.patches() {
                let path = patches.join(&patch.name);
                let applied = git(&tree, &["am", "--quiet", &path.to_string_lossy()]);
                applied.map_err(|error| KernelError::Patch {
                    patch: patch.name.clone(),
                    output: error.to_string(),
                })?;
            }
            git(&tree, &["tag", &tag])?;
        }
        let range = format!("{BASE}..{tag}");
        let commits = git(&tree, &["rev-list", "--reverse", &range])?;
        self.states = vec![BASE.to_owned()];
        self.states.extend(commits.lines().map(str::to_owned));
        self.at(self.series.patches().len())
    }

    /// The source, in the state of the last [`Self::at`].
    pub(crate) fn tree(&self) -> PathBuf {
        self.root.join("tree")
    }

    pub(crate) fn series(&self) -> &Series {
        &self.series
    }

    /// Puts the source into the state after so many patches; whatever else was
    /// changed there is undone.
    pub(crate) fn at(&self, patches: usize) -> Result<(), KernelError> {
        let state = self.states.get(patches);
        let state = state.ok_or_else(|| KernelError::BadFile {
            path: self.tree(),
            message: format!("has no state after {patches} patches"),
        })?;
        self.reset(state)
    }

    fn reset(&self, state: &str) -> Result<(), KernelError> {
        git(
            &self.tree(),
            &["checkout", "--quiet", "--force", "--detach", state],
        )?;
        git(&self.tree(), &["clean", "--quiet", "--force", "-d", "-x"])?;
        Ok(())
    }

    /// Builds the source as it is now with these optional fragments, and returns
    /// the directory of `bzImage`, `vmlinux` and `System.map`.
    pub(crate) fn build(&self, with: &[&str]) -> Result<PathBuf, KernelError> {
        let dirs = Dirs::new(self.options.guest_kernel.clone());
        let names: Vec<_> = with.iter().map(|name| (*name).to_owned()).collect();
        let fragments = Fragments::read(&dirs.config(), &names)?;
        let variant = self.variant(with);
        for directory in [&variant.objects, &variant.built] {
            fs::create_dir_all(directory).map_err(io("create", directory))?;
        }
        let _ = fs::remove_file(&variant.log);
        let tree = self.tree();
        let build = variant.build(&tree, &self.options);
        let mut progress = Progress::new();
        build.configure(&fragments, LOCAL_VERSION, &mut progress)?;
        build.compile(&variant.built, &mut progress)?;
        Ok(variant.built)
    }

    /// Builds the balloon's driver as a module of what [`Self::build`] built last.
    pub(crate) fn modules(&self, with: &[&str]) -> Result<Vec<PathBuf>, KernelError> {
        let variant = self.variant(with);
        let tree = self.tree();
        let build = variant.build(&tree, &self.options);
        let module = "drivers/virtio/virtio_balloon.ko";
        build.module(module, &mut Progress::new())?;
        Ok(vec![variant.objects.join(module)])
    }

    fn variant(&self, with: &[&str]) -> Variant {
        let name = match with {
            [] => "fast".to_owned(),
            with => with.join("-"),
        };
        Variant {
            objects: self.root.join(format!("objects-{name}")),
            built: self.root.join(format!("built-{name}")),
            log: self.root.join(format!("{name}.log")),
        }
    }
}

/// Where a kernel with certain fragments is built.
struct Variant {
    objects: PathBuf,
    built: PathBuf,
    log: PathBuf,
}

impl Variant {
    fn build<'a>(&'a self, tree: &'a Path, options: &KernelOptions) -> Build<'a> {
        Build {
            tree,
            objects: &self.objects,
            log: self.log.clone(),
            jobs: options.jobs,
        }
    }
}

/// Runs git in `tree` and returns what it printed.
pub(crate) fn git(tree: &Path, arguments: &[&str]) -> Result<String, KernelError> {
    let mut git = Command::new("git");
    git.arg("-C").arg(tree);
    // Nobody's configuration, hooks or signatures.
    for setting in [
        "user.name=aerostat",
        "user.email=aerostat@localhost",
        "gc.auto=0",
    ] {
        git.args(["-c", setting]);
    }
    git.args(["-c", "commit.gpgSign=false"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("LC_ALL", "C");
    tools::run(&mut git)
}
