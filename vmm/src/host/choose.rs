//! Native or emulated: what this machine can do, and what is made of it.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::HostChoice;
use super::failure::failed;
use crate::outcome::{FailureClass, Verdict};

/// Program that emulates a host.
pub const QEMU: &str = "qemu-system-x86_64";
/// How to get it on Debian.
const INSTALL_QEMU: &str = "apt-get install qemu-system-x86";

/// Where to look; tests look elsewhere.
#[derive(Debug, Clone)]
pub struct Places {
    /// The KVM device.
    pub kvm: PathBuf,
    /// The kernel's list of CPUs and their flags.
    pub cpuinfo: PathBuf,
    /// Directories of programs, as in PATH.
    pub path: Vec<PathBuf>,
}

impl Default for Places {
    fn default() -> Self {
        let path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        Self {
            kvm: "/dev/kvm".into(),
            cpuinfo: "/proc/cpuinfo".into(),
            path: std::env::split_paths(&path).collect(),
        }
    }
}

/// What KVM on this machine is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kvm {
    /// The device opens, and the CPU has VMX or SVM.
    Usable,
    /// The device opens, but the CPU has neither: a software KVM (such as PVM),
    /// which cannot run an unmodified guest.
    Software,
    /// No device.
    Missing,
    /// The device is not for this user.
    Forbidden,
    /// The device does not open, for this reason.
    Broken(String),
}

/// What this machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its KVM.
    pub kvm: Kvm,
    /// Its QEMU.
    pub qemu: Option<PathBuf>,
}

/// The host that was picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// This machine's KVM.
    Native,
    /// The QEMU at this path.
    Emulated(PathBuf),
}

/// Looks at this machine.
#[must_use]
pub fn look(places: &Places) -> Found {
    Found {
        kvm: look_at_kvm(&places.kvm, &places.cpuinfo),
        qemu: find_program(QEMU.as_ref(), &places.path),
    }
}

/// Picks, and says why in one line.
///
/// # Errors
///
/// [`FailureClass::NoKvm`] with what would help, when the choice cannot be had.
pub fn decide(choice: HostChoice, found: &Found) -> Result<(Chosen, String), Verdict> {
    let native = why_not_native(&found.kvm);
    let emulated = || match &found.qemu {
        Some(qemu) => Ok(Chosen::Emulated(qemu.clone())),
        None => Err(format!("{QEMU} is not installed: {INSTALL_QEMU}")),
    };
    let no_kvm = |message| Err(failed(FailureClass::NoKvm, message));
    match (choice, native) {
        (HostChoice::Auto, None) => Ok((
            Chosen::Native,
            "host: native, KVM with hardware support".into(),
        )),
        (HostChoice::Auto, Some(reason)) => match emulated() {
            Ok(chosen) => Ok((
                chosen,
                format!("host: emulated (times are too), because {reason}"),
            )),
            Err(missing) => no_kvm(format!("no host for a guest: {reason}, and {missing}")),
        },
        (HostChoice::Native, None) => Ok((Chosen::Native, "host: native, as asked".into())),
        // It may be a KVM that runs this very guest kernel: the user knows.
        (HostChoice::Native, Some(reason)) if found.kvm == Kvm::Software => Ok((
            Chosen::Native,
            format!("host: native, as asked, although {reason}"),
        )),
        (HostChoice::Native, Some(reason)) => no_kvm(format!(
            "no native host: {reason}; --host emulated needs no KVM"
        )),
        (HostChoice::Emulated, _) => match emulated() {
            Ok(chosen) => Ok((chosen, "host: emulated (times are too), as asked".into())),
            Err(missing) => no_kvm(format!("no emulated host: {missing}")),
        },
    }
}

fn why_not_native(kvm: &Kvm) -> Option<String> {
    Some(match kvm {
        Kvm::Usable => return None,
        Kvm::Software => "/dev/kvm is a software KVM (the CPU shows neither vmx nor svm)".into(),
        Kvm::Missing => "there is no /dev/kvm".into(),
        Kvm::Forbidden => "there is no permission for /dev/kvm (join the group kvm)".into(),
        Kvm::Broken(reason) => format!("/dev/kvm does not open ({reason})"),
    })
}

fn look_at_kvm(kvm: &Path, cpuinfo: &Path) -> Kvm {
    match OpenOptions::new().read(true).write(true).open(kvm) {
        Ok(_) if has_hardware_support(cpuinfo) => Kvm::Usable,
        Ok(_) => Kvm::Software,
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Kvm::Missing,
            ErrorKind::PermissionDenied => Kvm::Forbidden,
            _ => Kvm::Broken(error.to_string()),
        },
    }
}

fn has_hardware_support(cpuinfo: &Path) -> bool {
    let text = fs::read_to_string(cpuinfo).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "flags")
        .is_some_and(|(_, flags)| {
            flags
                .split_whitespace()
                .any(|flag| matches!(flag, "vmx" | "svm"))
        })
}

fn find_program(name: &OsStr, path: &[PathBuf]) -> Option<PathBuf> {
    path.iter()
        .map(|directory| directory.join(name))
        .find(|program| {
            fs::metadata(program)
                .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
#[path = "choose_test.rs"]
mod tests;
