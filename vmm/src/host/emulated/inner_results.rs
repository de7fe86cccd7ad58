//! From what the host reports to the results the user sees.

use super::files::{self, GuestFile};
use crate::config::Config;
use crate::host::failure::failed;
use crate::host::protocol::Ended;
use crate::outcome::{FailureClass, Verdict};
use crate::results::{HostFacts, HostKind, RunResults};

/// All there is to know about an inner run.
pub(super) struct Inner<'a> {
    /// How its process ended.
    pub(super) ended: Ended,
    /// Its results document; empty if it wrote none.
    pub(super) document: &'a [u8],
    /// The last it logged.
    pub(super) last_log_line: Option<String>,
    /// What this side decided, if it ended the run.
    pub(super) decided: Option<Verdict>,
}

impl Inner<'_> {
    /// The document in the user's terms, or one that says why there is none.
    pub(super) fn into_results(
        self,
        config: &Config,
        facts: HostFacts,
        files: &[GuestFile],
    ) -> RunResults {
        let mut blank = RunResults::new(config, facts, Verdict::Success);
        let Ok(mut results) = serde_json::from_slice::<RunResults>(self.document) else {
            let verdict = self
                .decided
                .unwrap_or_else(|| explain(&self.ended, self.last_log_line.as_deref(), files));
            blank.set_verdict(verdict);
            return blank;
        };
        results.host.kind = HostKind::Emulated;
        results.config = blank.config;
        let verdict = match (self.decided, results.verdict.clone()) {
            // The inner run knows only that it was stopped, and this side why.
            (Some(why), Verdict::Interrupted) => why,
            (_, Verdict::Failed { class, message }) => {
                failed(class, files::name_as_the_user_does(&message, files))
            }
            (_, verdict) => verdict,
        };
        results.set_verdict(verdict);
        results
    }
}

/// A verdict from nothing but the end of the process.
fn explain(ended: &Ended, last_line: Option<&str>, files: &[GuestFile]) -> Verdict {
    let said = last_line.map(|line| files::name_as_the_user_does(line, files));
    match ended {
        Ended::Refused { class, message } => failed(*class, message),
        Ended::Exited(code) => {
            let class = match code {
                2 => FailureClass::Usage,
                65 => FailureClass::NoKvm,
                66 => FailureClass::Memory,
                _ => FailureClass::Internal,
            };
            let said = said.unwrap_or_else(|| "it said nothing".to_owned());
            match class {
                FailureClass::Internal => failed(
                    class,
                    format!("the inner run exited with code {code} and no results; {said}"),
                ),
                _ => failed(class, said),
            }
        }
        Ended::Signalled(signal) => {
            let said = said.map(|line| format!("; {line}")).unwrap_or_default();
            failed(
                FailureClass::Internal,
                format!("the inner run was killed by signal {signal}{said}"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_results_is_explained() {
        let class = |ended, line| match explain(&ended, line, &[]) {
            Verdict::Failed { class, message } => (class, message),
            verdict => panic!("{verdict:?}"),
        };
        let refused = Ended::Refused {
            class: FailureClass::Memory,
            message: "3 of 4 pages".into(),
        };
        assert_eq!(
            class(refused, None),
            (FailureClass::Memory, "3 of 4 pages".into())
        );
        assert_eq!(
            class(Ended::Exited(2), Some("error: no key")),
            (FailureClass::Usage, "error: no key".into())
        );
        assert_eq!(
            class(Ended::Exited(101), Some("thread panicked")),
            (
                FailureClass::Internal,
                "the inner run exited with code 101 and no results; thread panicked".into()
            )
        );
        assert_eq!(
            class(Ended::Signalled(11), None),
            (
                FailureClass::Internal,
                "the inner run was killed by signal 11".into()
            )
        );
    }
}
