//! Files below `guest-kernel/`: what the build reads and where it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use super::error::{KernelError, io};

/// The directory `guest-kernel/`.
#[derive(Debug, Clone)]
pub(crate) struct Dirs {
    root: PathBuf,
}

impl Dirs {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.root.join("base")
    }

    pub(crate) fn patches(&self) -> PathBuf {
        self.root.join("patches")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// Everything the build makes; never committed.
    pub(crate) fn out(&self) -> PathBuf {
        self.root.join("out")
    }

    /// A working directory of this process, see [`Scratch`].
    pub(crate) fn scratch(&self, name: &str) -> Result<Scratch, KernelError> {
        let path = self.out().join(format!("tmp-{name}-{}", process::id()));
        fs::create_dir_all(&path).map_err(io("create", &path))?;
        Ok(Scratch { path })
    }

    /// Removes what processes that no longer exist left behind.
    pub(crate) fn sweep(&self) -> Result<(), KernelError> {
        let out = self.out();
        fs::create_dir_all(&out).map_err(io("create", &out))?;
        for entry in fs::read_dir(&out).map_err(io("list", &out))? {
            let entry = entry.map_err(io("list", &out))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name
                .strip_prefix("tmp-")
                .and_then(|rest| rest.rsplit('-').next())
                .and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(io("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// A directory that goes away with its owner, whatever happens.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the finished directory to its place.
    pub(crate) fn publish(self, to: &Path) -> Result<(), KernelError> {
        fs::rename(&self.path, to).map_err(io("rename to", to))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gone already if it was published.
        let _ = fs::remove_dir_all(&self.path);
    }
}
