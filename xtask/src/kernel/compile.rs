//! Runs the kernel's own build.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use super::config::Fragments;
use super::error::{KernelError, io};
use super::progress::Progress;
use super::tools;

/// What makes two builds of the same inputs the same, and keeps a caller's
/// environment out. `LOCALVERSION=` stops the kernel from adding a `+` when
/// the tree happens to be inside some git repository.
const VARIABLES: [&str; 6] = [
    "ARCH=x86_64",
    "KBUILD_BUILD_TIMESTAMP=2026-01-01 00:00:00 UTC",
    "KBUILD_BUILD_USER=aerostat",
    "KBUILD_BUILD_HOST=aerostat",
    "KBUILD_BUILD_VERSION=1",
    "LOCALVERSION=",
];
const TARGETS: [&str; 2] = ["bzImage", "vmlinux"];
/// The PVH entry note is in an allocated section, which stripping keeps.
const STRIP: [&str; 1] = ["--strip-all"];

/// Everything here that decides what comes out, for the build key.
pub(crate) fn recipe() -> String {
    format!("tinyconfig {VARIABLES:?} {TARGETS:?} {STRIP:?}")
}

/// A configured or configurable build directory.
pub(crate) struct Build<'a> {
    /// The patched source; only read.
    pub(crate) tree: &'a Path,
    /// Where the objects go.
    pub(crate) objects: &'a Path,
    /// Everything make says.
    pub(crate) log: PathBuf,
    pub(crate) jobs: Option<NonZero<usize>>,
}

impl Build<'_> {
    /// Merges the fragments and returns the final configuration.
    pub(crate) fn configure(
        &self,
        fragments: &Fragments,
        local_version: &str,
        progress: &mut Progress,
    ) -> Result<String, KernelError> {
        let path = self.objects.join(".config");
        self.make(&["tinyconfig"], progress)?;
        let tiny = fs::read_to_string(&path).map_err(io("read", &path))?;
        let merged = fragments.merge(&tiny, local_version);
        fs::write(&path, merged).map_err(io("write", &path))?;
        self.make(&["olddefconfig"], progress)?;
        let last = fs::read_to_string(&path).map_err(io("read", &path))?;
        fragments.verify(&last)?;
        Ok(last)
    }

    /// Compiles and puts `bzImage`, a stripped `vmlinux` and its `System.map` into
    /// `into`.
    pub(crate) fn compile(&self, into: &Path, progress: &mut Progress) -> Result<(), KernelError> {
        self.make(&TARGETS, progress)?;
        let image = self.objects.join("arch/x86/boot/bzImage");
        fs::copy(&image, into.join("bzImage")).map_err(io("copy", image))?;
        let symbols = self.objects.join("System.map");
        fs::copy(&symbols, into.join("System.map")).map_err(io("copy", symbols))?;
        let mut objcopy = Command::new("objcopy");
        objcopy
            .args(STRIP)
            .arg(self.objects.join("vmlinux"))
            .arg(into.join("vmlinux"));
        tools::run(&mut objcopy)?;
        Ok(())
    }

    /// Compiles one module.
    pub(crate) fn module(&self, path: &str, progress: &mut Progress) -> Result<(), KernelError> {
        // All of them: the symbols of vmlinux are checked only then.
        self.make(&["modules"], progress)?;
        match self.objects.join(path).exists() {
            true => Ok(()),
            false => Err(KernelError::BadFile {
                path: path.into(),
                message: "was not built: it is no module in this configuration".to_owned(),
            }),
        }
    }

    fn make(&self, targets: &[&str], progress: &mut Progress) -> Result<(), KernelError> {
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(io("open", &self.log))?;
        // One more than there are processors: a job also waits for the disk.
        let processors = || thread::available_parallelism().map_or(1, NonZero::get);
        let jobs = self.jobs.map_or_else(|| processors() + 1, NonZero::get);

        let mut make = Command::new("make");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("KBUILD_")
                || matches!(&*text, "MAKEFLAGS" | "MFLAGS" | "CROSS_COMPILE" | "LLVM")
            {
                make.env_remove(&name);
            }
        }
        make.arg("-C")
            .arg(self.tree)
            .arg(format!("O={}", self.objects.display()))
            .arg(format!("-j{jobs}"))
            .args(VARIABLES)
            .args(targets)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().map_err(io("duplicate", &self.log))?);
        let mut child = make.spawn().map_err(io("run", "make"))?;
        if let Some(output) = child.stdout.take() {
            let mut steps = 0_u32;
            for line in BufReader::new(output).split(b'\n') {
                let mut line = line.map_err(io("read from", "make"))?;
                line.push(b'\n');
                log.write_all(&line).map_err(io("write", &self.log))?;
                steps += 1;
                progress.status(&format!("{} steps", steps));
            }
        }
        progress.erase();
        let status = child.wait().map_err(io("wait for", "make"))?;
        if status.success() {
            return Ok(());
        }
        let text = fs::read(&self.log).map_err(io("read", &self.log))?;
        Err(KernelError::Command {
            command: format!("make {}", targets.join(" ")),
            status: status.to_string(),
            output: tools::tail(&String::from_utf8_lossy(&text), 20),
        })
    }
}
