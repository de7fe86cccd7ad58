//! How a run ended, and the exit code that says so.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Every exit code with its meaning, as `--help` prints it.
pub const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "success"),
    ("1, 3-63", "the guest's own exit code"),
    ("2", "bad usage or configuration"),
    (
        "64",
        "the guest's exit code is 2, negative or above 63; the results hold it",
    ),
    ("65", "no usable KVM"),
    ("66", "not enough memory or huge pages"),
    ("67", "guest panic"),
    ("68", "timeout"),
    ("69", "the verifier found memory claimed zero that was not"),
    ("70", "internal error"),
    (
        "71",
        "ctl: the wait for a balloon size timed out while it got closer",
    ),
    (
        "72",
        "ctl: the wait for a balloon size timed out and it had stalled",
    ),
    ("77", "skipped: a prerequisite is missing"),
    ("130", "interrupted"),
];

/// A time limit passed, or a running VM did not answer in time.
pub const EXIT_TIMEOUT: u8 = 68;
/// A wait for a balloon size timed out while the balloon got closer to it.
pub const EXIT_PROGRESSING: u8 = 71;
/// A wait for a balloon size timed out after the balloon stopped getting closer.
pub const EXIT_STALLED: u8 = 72;

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
    /// Stopped by a signal (SIGINT, SIGTERM, SIGHUP), through the control socket,
    /// or because stdout closed.
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

impl FailureClass {
    /// The exit code of this failure; [`Verdict::exit_code`] has the table.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::NoKvm => 65,
            Self::Memory => 66,
            Self::Skipped => 77,
            Self::Internal => 70,
        }
    }
}

impl Verdict {
    /// The process exit code:
    ///
    /// | code | meaning |
    /// | --- | --- |
    /// | 0 | success |
    /// | 1, 3-63 | the guest's own exit code |
    /// | 2 | bad usage or configuration |
    /// | 64 | the guest's exit code is 2, negative or above 63; the results hold it |
    /// | 65 | no usable KVM |
    /// | 66 | not enough memory or huge pages |
    /// | 67 | guest panic |
    /// | 68 | timeout |
    /// | 69 | the verifier found memory claimed zero that was not |
    /// | 70 | internal error |
    /// | 71 | ctl: the wait for a balloon size timed out while it got closer |
    /// | 72 | ctl: the wait for a balloon size timed out and it had stalled |
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
            Self::Timeout { .. } => EXIT_TIMEOUT,
            Self::Interrupted => 130,
            Self::Failed { class, .. } => class.exit_code(),
        }
    }
}

/// One line for people.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("the guest stopped with success"),
            Self::GuestExit { code } if *code == i32::from(self.exit_code()) => {
                write!(f, "the guest stopped with exit code {code}")
            }
            Self::GuestExit { code } => write!(
                f,
                "the guest stopped with exit code {code}, given on as {}",
                self.exit_code()
            ),
            Self::GuestPanic => f.write_str("the guest kernel panicked"),
            Self::VerifierMismatch { pages } => write!(
                f,
                "the guest's verifier found {pages} pages that were claimed zero and were not"
            ),
            Self::Timeout { what } => write!(f, "timeout: {what}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed { class, message } => match class {
                FailureClass::Internal => write!(f, "internal error: {message}"),
                FailureClass::Skipped => write!(f, "skipped: {message}"),
                FailureClass::Usage | FailureClass::NoKvm | FailureClass::Memory => {
                    f.write_str(message)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn failed(class: FailureClass) -> Verdict {
        let message = "what failed".to_owned();
        Verdict::Failed { class, message }
    }

    fn one_of_each() -> Vec<Verdict> {
        vec![
            Verdict::Success,
            Verdict::GuestExit { code: 3 },
            Verdict::GuestExit { code: 300 },
            Verdict::GuestPanic,
            Verdict::VerifierMismatch { pages: 7 },
            Verdict::Timeout {
                what: "boot took longer than 30s".to_owned(),
            },
            Verdict::Interrupted,
            failed(FailureClass::Usage),
            failed(FailureClass::NoKvm),
            failed(FailureClass::Memory),
            failed(FailureClass::Skipped),
            failed(FailureClass::Internal),
        ]
    }

    #[test]
    fn no_two_endings_share_an_exit_code() {
        let verdicts = one_of_each();
        let mut codes: BTreeSet<u8> = verdicts.iter().map(Verdict::exit_code).collect();
        assert_eq!(codes.len(), verdicts.len(), "{codes:?}");
        // What `ctl` says of a wait, which is no end of a run.
        codes.extend([EXIT_PROGRESSING, EXIT_STALLED]);
        assert_eq!(codes.len(), verdicts.len() + 2, "{codes:?}");
        assert_eq!(
            codes.len(),
            EXIT_CODES.len(),
            "the table has a row for each"
        );
    }

    #[test]
    fn each_ending_has_its_row_in_the_table() {
        let row = |verdict: &Verdict| {
            let code = verdict.exit_code().to_string();
            EXIT_CODES
                .iter()
                .find(|(row, _)| *row == code)
                .map(|(_, meaning)| *meaning)
        };
        for (verdict, meaning) in [
            (Verdict::Success, "success"),
            (Verdict::GuestPanic, "guest panic"),
            (
                Verdict::Timeout {
                    what: String::new(),
                },
                "timeout",
            ),
            (Verdict::Interrupted, "interrupted"),
            (failed(FailureClass::Usage), "bad usage or configuration"),
            (failed(FailureClass::NoKvm), "no usable KVM"),
            (
                failed(FailureClass::Memory),
                "not enough memory or huge pages",
            ),
            (
                failed(FailureClass::Skipped),
                "skipped: a prerequisite is missing",
            ),
            (failed(FailureClass::Internal), "internal error"),
        ] {
            assert_eq!(row(&verdict), Some(meaning), "{verdict:?}");
        }
    }

    #[test]
    fn the_table_in_the_documentation_is_the_table() {
        let documented: Vec<_> = include_str!("outcome.rs")
            .lines()
            .filter_map(|line| line.trim().strip_prefix("/// | ")?.strip_suffix(" |"))
            .filter_map(|row| row.split_once(" | "))
            .filter(|(code, _)| code.starts_with(|c: char| c.is_ascii_digit()))
            .collect();
        assert_eq!(documented, EXIT_CODES);
    }

    #[test]
    fn a_guest_cannot_take_a_code_that_means_something_else() {
        for code in [
            i32::MIN,
            -1,
            2,
            64,
            65,
            70,
            77,
            130,
            255,
            256,
            259,
            i32::MAX,
        ] {
            assert_eq!(Verdict::GuestExit { code }.exit_code(), 64, "{code}");
        }
        for code in [1u8, 3, 63] {
            assert_eq!(Verdict::GuestExit { code: code.into() }.exit_code(), code);
        }
    }

    #[test]
    fn each_ending_is_told_in_one_line_of_its_own() {
        let lines: BTreeSet<String> = [
            Verdict::GuestExit { code: 3 },
            Verdict::GuestExit { code: 300 },
            Verdict::VerifierMismatch { pages: 7 },
            Verdict::Timeout {
                what: "boot took longer than 30s".to_owned(),
            },
            failed(FailureClass::NoKvm),
            failed(FailureClass::Internal),
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        let want = [
            "internal error: what failed",
            "the guest stopped with exit code 3",
            "the guest stopped with exit code 300, given on as 64",
            "the guest's verifier found 7 pages that were claimed zero and were not",
            "timeout: boot took longer than 30s",
            "what failed",
        ];
        assert_eq!(lines, want.into_iter().map(str::to_owned).collect());
        assert!(
            one_of_each()
                .iter()
                .all(|verdict| verdict.to_string().lines().count() == 1)
        );
    }

    #[test]
    fn a_verdict_survives_json() {
        for verdict in one_of_each() {
            let json = serde_json::to_string(&verdict).expect("JSON");
            let back: Verdict = serde_json::from_str(&json).expect("verdict");
            assert_eq!(back, verdict, "{json}");
        }
    }
}
