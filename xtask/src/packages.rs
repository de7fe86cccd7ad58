//! The system packages everything here needs, installed where they are missing.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failure;
use crate::command::{run, say};

/// How to see that a package is there.
enum Probe {
    /// A program on the path.
    Program(&'static str),
    /// A file.
    File(&'static str),
}

/// Debian's package, and what shows that it is installed (by whatever means).
const NEEDED: &[(&str, Probe)] = &[
    ("qemu-system-x86", Probe::Program("qemu-system-x86_64")),
    ("bc", Probe::Program("bc")),
    ("binutils", Probe::Program("objcopy")),
    ("bison", Probe::Program("bison")),
    ("cpio", Probe::Program("cpio")),
    ("dpkg", Probe::Program("dpkg-deb")),
    ("flex", Probe::Program("flex")),
    // libFuzzer is C++.
    ("g++", Probe::Program("g++")),
    ("gcc", Probe::Program("gcc")),
    // The patches are commits while they are worked on.
    ("git", Probe::Program("git")),
    ("libc6-dev", Probe::File("/usr/include/stdio.h")),
    ("libelf-dev", Probe::File("/usr/include/gelf.h")),
    ("lz4", Probe::Program("lz4")),
    ("make", Probe::Program("make")),
    ("patch", Probe::Program("patch")),
    ("perl", Probe::Program("perl")),
    ("tar", Probe::Program("tar")),
    ("xz-utils", Probe::Program("xz")),
];

/// Installs what is missing: as root through apt, otherwise it names the one
/// command to run.
pub(crate) fn install_missing() -> Result<(), Failure> {
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|(_, probe)| !is_there(probe))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let fix = format!("apt-get install --no-install-recommends {list}");
    if !runs("apt-get") {
        return Err(format!("missing: {list}; install them (Debian: {fix})").into());
    }
    if !is_root()? {
        return Err(format!("missing: {list}; run: sudo {fix}").into());
    }
    say(&format!("installing {list}"));
    run(apt_get().args(["-qq", "update"]))?;
    run(apt_get()
        .args(["-qq", "-y", "--no-install-recommends", "install"])
        .args(&missing)
        .stdout(Stdio::null()))
}

fn apt_get() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

fn is_there(probe: &Probe) -> bool {
    match probe {
        Probe::Program(name) => runs(name),
        Probe::File(path) => Path::new(path).exists(),
    }
}

fn runs(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> Result<bool, Failure> {
    Ok(crate::command::output(Command::new("id").arg("-u"))?.trim() == "0")
}
