//! How a run ended, and the exit code that says so.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// The guest powered off or rebooted, with exit code 0 or none given.
    Success,
    /// The guest gave this exit code (not 0) and stopped.
    GuestExit {
        /// The code the guest gave.
        code: i32,
    },
    /// The guest kernel panicked.
    GuestPanic,
    /// The guest's verifier found memory that was claimed zero and was not.
    VerifierMismatch {
        /// 4 KiB pages that were not zero.
        pages: u64,
    },
    /// The boot or run time limit passed.
    Timeout {
        /// Which limit, and its length, for people.
        what: String,
    },
    /// Stopped by a signal (SIGINT, SIGTERM, SIGHUP) or because stdout closed.
    Interrupted,
    /// It could not be run or broke down.
    Failed {
        /// Whose failure it is, which selects the exit code.
        class: FailureClass,
        /// One line for people.
        message: String,
    },
}

/// Whose failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// A wrong command line, configuration, kernel or initrd.
    Usage,
    /// No KVM that can run the guest, and no emulated host either.
    NoKvm,
    /// Not enough memory or huge pages.
    Memory,
    /// A prerequisite of a test is missing; it was skipped.
    Skipped,
    /// A bug or a broken host.
    Internal,
}

impl Verdict {
    /// The process exit code:
    ///
    /// | code | meaning |
    /// | --- | --- |
    /// | 0 | success |
    /// | 1, 3..=63 | the guest's own exit code |
    /// | 2 | bad usage or configuration |
    /// | 64 | the guest's exit code is 2, negative or above 63; the results hold it |
    /// | 65 | no usable KVM |
    /// | 66 | not enough memory or huge pages |
    /// | 67 | guest panic |
    /// | 68 | timeout |
    /// | 69 | the verifier found memory claimed zero that was not |
    /// | 70 | internal error |
    /// | 77 | skipped: a prerequisite is missing |
    /// | 130 | interrupted |
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Success => 0,
            Self::GuestExit { code } => u8::try_from(*code)
                .ok()
                .filter(|code| matches!(code, 1 | 3..=63))
                .unwrap_or(64),
            Self::GuestPanic => 67,
            Self::VerifierMismatch { .. } => 69,
            Self::Timeout { .. } => 68,
            Self::Interrupted => 130,
            Self::Failed { class, .. } => match class {
                FailureClass::Usage => 2,
                FailureClass::NoKvm => 65,
                FailureClass::Memory => 66,
                FailureClass::Skipped => 77,
                FailureClass::Internal => 70,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_the_guest_are_told_apart_from_ours() {
        let code = |code| Verdict::GuestExit { code }.exit_code();
        for own in [1, 3, 42, 63] {
            assert_eq!(i32::from(code(own)), own);
        }
        for other in [2, 64, 65, 130, 255, 256 + 3, -1, i32::MIN, i32::MAX] {
            assert_eq!(code(other), 64, "guest exit code {other}");
        }
    }
}
