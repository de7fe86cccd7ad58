//! The emulated host's whole user space: this binary.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use thiserror::Error;

use super::loadable;
use crate::host::agent;
use crate::host::cpio::Archive;

/// Major and minor number of /dev/console, which the kernel opens for init.
const CONSOLE: (u32, u32) = (5, 1);

/// Why there is no initial RAM file system.
#[derive(Debug, Error)]
pub(super) enum InitrdError {
    #[error("the emulated host's program {path} cannot be read: {source}")]
    Read { path: String, source: io::Error },
    #[error(
        "the emulated host's program {0} is linked dynamically; it has to be the static aerostat binary"
    )]
    Dynamic(String),
    #[error("the emulated host's initrd cannot be built in memory: {0}")]
    Memory(#[from] io::Error),
}

/// Builds it in memory, with no file behind it.
pub(super) fn build(program: &Path) -> Result<File, InitrdError> {
    let mut content = fs::read(program).map_err(|source| InitrdError::Read {
        path: program.display().to_string(),
        source,
    })?;
    if loadable::wants_loader(&content) {
        return Err(InitrdError::Dynamic(program.display().to_string()));
    }
    loadable::cut_to_segments(&mut content);

    let name = CString::new("aerostat-host-initrd").map_err(io::Error::other)?;
    let memory = memfd_create(name, MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut archive = Archive::new(BufWriter::new(File::from(memory)));
    archive.directory("dev")?;
    archive.character_device("dev/console", CONSOLE)?;
    for directory in agent::MOUNT_POINTS {
        archive.directory(directory.trim_start_matches('/'))?;
    }
    archive.file(agent::INIT_PATH.trim_start_matches('/'), 0o755, &content)?;
    Ok(archive
        .finish()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?)
}
