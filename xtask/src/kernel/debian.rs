//! Debian's source package, which usually lives in another suite than the
//! system's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::base::Debian;
use super::error::{KernelError, io};
use super::files::Dirs;
use super::hash;
use super::tools;
use crate::apt::Apt;

/// Fetches the package and takes the verified tarball out of it.
pub(crate) fn fetch(dirs: &Dirs, debian: &Debian, to: &Path) -> Result<PathBuf, KernelError> {
    let scratch = dirs.scratch("apt")?;
    let package = format!("{}={}", debian.package, debian.version);
    let deb = Apt::open(scratch.path(), &debian.suite)
        .and_then(|apt| apt.download(&package))
        .map_err(|failure| KernelError::Debian(failure.to_string()))?;
    let part = to.with_extension("part");
    extract(&deb, debian, &part)?;
    let found = hash::file(&part)?;
    if found != debian.tarball_sha256 {
        return Err(KernelError::WrongHash {
            path: part,
            found,
            expected: debian.tarball_sha256.clone(),
        });
    }
    fs::rename(&part, to).map_err(io("rename to", to))?;
    Ok(to.to_owned())
}

/// `dpkg-deb --fsys-tarfile | tar --extract --to-stdout`.
fn extract(deb: &Path, debian: &Debian, to: &Path) -> Result<(), KernelError> {
    let file = File::create(to).map_err(io("create", to))?;
    let mut unpack = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io("run", "dpkg-deb"))?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--to-stdout"])
        .arg(format!("./usr/src/{}.tar.xz", debian.package))
        .stdout(file);
    if let Some(pipe) = unpack.stdout.take() {
        tar.stdin(pipe);
    }
    let output = tar.output().map_err(io("run", "tar"))?;
    let unpacked = unpack.wait().map_err(io("wait for", "dpkg-deb"))?;
    if output.status.success() && unpacked.success() {
        return Ok(());
    }
    Err(tools::failed(&tar, &output))
}
