//! Opens `/dev/kvm` and checks that it can do what we use.

use kvm_ioctls::{Cap, Kvm};
use thiserror::Error;

use crate::outcome::FailureClass;

/// The only API version there has ever been since KVM became stable
/// (Documentation/virt/kvm/api.rst, 4.1).
const KVM_API_VERSION: i32 = 12;

/// What we use, by the name under which people look it up.
const NEEDED: [(Cap, &str); 6] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::Irqchip, "KVM_CAP_IRQCHIP"),
    (Cap::Irqfd, "KVM_CAP_IRQFD"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
    (Cap::ExtCpuid, "KVM_CAP_EXT_CPUID"),
    (Cap::SetTssAddr, "KVM_CAP_SET_TSS_ADDR"),
];

/// Why KVM cannot be used, or which of its calls failed.
#[derive(Debug, Error)]
pub enum KvmError {
    /// There is no such device.
    #[error(
        "/dev/kvm does not exist: load the module with `modprobe kvm_amd` or \
         `modprobe kvm_intel`, or run with `--host emulated`"
    )]
    NoDevice,
    /// The device cannot be opened by this user.
    #[error(
        "no permission to open /dev/kvm: add yourself to its group with \
         `sudo usermod -aG kvm $USER` and log in again, or run with `--host emulated`"
    )]
    NoPermission,
    /// Opening failed for another reason.
    #[error("cannot open /dev/kvm: {0}; run with `--host emulated`")]
    Open(kvm_ioctls::Error),
    /// A version of the API nobody has seen yet.
    #[error("KVM has API version {0}, not {KVM_API_VERSION}: use a Linux kernel from this century")]
    ApiVersion(i32),
    /// Something we use is missing.
    #[error("KVM lacks {0}: use a newer host kernel, or run with `--host emulated`")]
    MissingCapability(&'static str),
    /// A call failed.
    #[error("KVM could not {what}: {source}")]
    Call {
        /// What was attempted, to follow "could not".
        what: &'static str,
        /// The error of the call.
        source: kvm_ioctls::Error,
    },
    /// More CPUID entries or MSRs than KVM takes.
    #[error("more CPUID entries or MSRs than KVM takes: {0:?}")]
    TooManyEntries(vmm_sys_util::fam::Error),
    /// An event file descriptor could not be made.
    #[error("cannot make an event file descriptor: {0}")]
    EventFd(std::io::Error),
}

impl KvmError {
    /// Whose failure it is.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::NoDevice
            | Self::NoPermission
            | Self::Open(_)
            | Self::ApiVersion(_)
            | Self::MissingCapability(_) => FailureClass::NoKvm,
            Self::Call { .. } | Self::TooManyEntries(_) | Self::EventFd(_) => {
                FailureClass::Internal
            }
        }
    }

    /// For `map_err`: names the call that failed.
    pub(super) fn call(what: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> Self {
        move |source| Self::Call { what, source }
    }
}

/// Opens `/dev/kvm`.
///
/// # Errors
/// [`KvmError`] with the way out, if it is missing, closed to us or too old.
pub fn open() -> Result<Kvm, KvmError> {
    let kvm = Kvm::new().map_err(not_opened)?;
    match kvm.get_api_version() {
        KVM_API_VERSION => {}
        other => return Err(KvmError::ApiVersion(other)),
    }
    for (cap, name) in NEEDED {
        if !kvm.check_extension(cap) {
            return Err(KvmError::MissingCapability(name));
        }
    }
    Ok(kvm)
}

/// Why the device could not be opened.
fn not_opened(error: kvm_ioctls::Error) -> KvmError {
    match error.errno() {
        libc::ENOENT | libc::ENXIO | libc::ENODEV => KvmError::NoDevice,
        libc::EACCES | libc::EPERM => KvmError::NoPermission,
        _ => KvmError::Open(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_why_kvm_does_not_open_comes_with_a_way_out() {
        #[rustfmt::skip]
        let table = [
            (libc::ENOENT, "modprobe kvm_amd"),
            (libc::ENODEV, "modprobe kvm_amd"),
            (libc::EACCES, "usermod -aG kvm"),
            (libc::EPERM,  "usermod -aG kvm"),
            (libc::EMFILE, "--host emulated"),
        ];
        for (errno, fix) in table {
            let error = not_opened(kvm_ioctls::Error::new(errno));
            assert_eq!(error.class(), FailureClass::NoKvm, "errno {errno}");
            let message = error.to_string();
            assert!(message.contains(fix), "{message}");
            assert!(
                message.contains("/dev/kvm") && !message.contains('\n'),
                "{message}"
            );
        }
    }

    #[test]
    fn a_kvm_that_opens_and_then_fails_is_broken_and_not_missing() {
        let error = KvmError::call("create a vCPU")(kvm_ioctls::Error::new(libc::ENOMEM));
        assert_eq!(error.class(), FailureClass::Internal);
        assert!(
            error
                .to_string()
                .starts_with("KVM could not create a vCPU: ")
        );
    }
}
