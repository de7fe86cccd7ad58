//! How a machine comes to its end, and what verdict follows from it.

use std::sync::OnceLock;

use vmm_sys_util::eventfd::EventFd;

use crate::outcome::{FailureClass, Verdict};

/// What made the machine stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopCause {
    /// The guest powered off.
    PowerOff,
    /// The guest asked for a reset.
    Reset,
    /// The guest faulted while it handled a fault; also a crude way to reset.
    TripleFault,
    /// The guest's kernel said that it panicked, and then nothing more.
    Panic,
    /// A time limit passed; the text says which.
    TimedOut(String),
    /// The user wants it to stop.
    Interrupted,
    /// Nobody reads the console any more.
    ConsoleClosed,
    /// The VMM or its host broke down.
    Broken(String),
}

/// Takes requests to stop from any thread; the first one counts.
pub struct Stopper {
    cause: OnceLock<StopCause>,
    event: EventFd,
}

impl Stopper {
    /// Nothing requested yet.
    ///
    /// # Errors
    /// The error of making the event.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            cause: OnceLock::new(),
            event: EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?,
        })
    }

    /// Requests a stop. Never blocks.
    pub fn request(&self, cause: StopCause) {
        if self.cause.set(cause).is_ok() {
            // An eventfd takes 2^64 - 2 of these before it could refuse one.
            let _ = self.event.write(1);
        }
    }

    /// Whether somebody requested a stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.cause.get().is_some()
    }

    /// What made it stop.
    #[must_use]
    pub fn cause(&self) -> Option<&StopCause> {
        self.cause.get()
    }

    /// Readable once a stop was requested.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.event
    }
}

/// What the guest told about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestWord {
    /// The exit code it gave last.
    pub exit_code: Option<i32>,
    /// 4 KiB pages its verifier found that were claimed zero and were not.
    pub not_zero: u64,
    /// Its kernel printed a panic.
    pub panicked: bool,
}

/// The verdict, by precedence: a broken VMM proves nothing; memory that was
/// claimed zero and was not is never hidden by how the run ended; then how it
/// ended; then what the guest said.
#[must_use]
pub fn verdict(cause: &StopCause, word: GuestWord) -> Verdict {
    if let StopCause::Broken(message) = cause {
        return Verdict::Failed {
            class: FailureClass::Internal,
            message: message.clone(),
        };
    }
    if word.not_zero > 0 {
        return Verdict::VerifierMismatch {
            pages: word.not_zero,
        };
    }
    match cause {
        StopCause::Interrupted | StopCause::ConsoleClosed => Verdict::Interrupted,
        StopCause::TimedOut(what) => Verdict::Timeout { what: what.clone() },
        StopCause::Panic => Verdict::GuestPanic,
        _ if word.panicked => Verdict::GuestPanic,
        StopCause::TripleFault if word.exit_code.is_none() => Verdict::GuestPanic,
        _ => match word.exit_code {
            None | Some(0) => Verdict::Success,
            Some(code) => Verdict::GuestExit { code },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(exit_code: Option<i32>, not_zero: u64, panicked: bool) -> GuestWord {
        GuestWord {
            exit_code,
            not_zero,
            panicked,
        }
    }

    #[test]
    fn the_verdict_follows_precedence() {
        let timeout = || StopCause::TimedOut("boot".into());
        let timed_out = || Verdict::Timeout {
            what: "boot".into(),
        };
        let broken = || StopCause::Broken("x".into());
        let failed = || Verdict::Failed {
            class: FailureClass::Internal,
            message: "x".into(),
        };
        let mismatch = |pages| Verdict::VerifierMismatch { pages };
        let exit = |code| Verdict::GuestExit { code };
        #[rustfmt::skip]
        let table = [
            (StopCause::PowerOff,      word(None, 0, false),    Verdict::Success),
            (StopCause::PowerOff,      word(Some(0), 0, false), Verdict::Success),
            (StopCause::PowerOff,      word(Some(3), 0, false), exit(3)),
            (StopCause::Reset,         word(None, 0, false),    Verdict::Success),
            (StopCause::Reset,         word(Some(9), 0, false), exit(9)),
            (StopCause::Reset,         word(None, 0, true),     Verdict::GuestPanic),
            (StopCause::Reset,         word(Some(0), 0, true),  Verdict::GuestPanic),
            (StopCause::TripleFault,   word(None, 0, false),    Verdict::GuestPanic),
            (StopCause::TripleFault,   word(Some(0), 0, false), Verdict::Success),
            (StopCause::TripleFault,   word(Some(4), 0, false), exit(4)),
            (StopCause::Panic,         word(Some(0), 0, true),  Verdict::GuestPanic),
            (timeout(),                word(Some(0), 0, false), timed_out()),
            (timeout(),                word(None, 0, true),     timed_out()),
            (StopCause::Interrupted,   word(Some(3), 0, false), Verdict::Interrupted),
            (StopCause::ConsoleClosed, word(None, 0, false),    Verdict::Interrupted),
            (StopCause::PowerOff,      word(Some(3), 7, false), mismatch(7)),
            (StopCause::PowerOff,      word(Some(0), 7, false), mismatch(7)),
            (StopCause::Panic,         word(None, 7, true),     mismatch(7)),
            (timeout(),                word(None, 7, false),    mismatch(7)),
            (StopCause::Interrupted,   word(None, 7, false),    mismatch(7)),
            (broken(),                 word(None, 7, true),     failed()),
            (broken(),                 word(Some(0), 0, false), failed()),
        ];
        for (cause, word, right) in table {
            assert_eq!(verdict(&cause, word), right, "{cause:?} {word:?}");
        }
    }

    #[test]
    fn the_first_request_to_stop_counts() {
        let stopper = Stopper::new().unwrap();
        assert!(!stopper.is_requested());
        stopper.request(StopCause::PowerOff);
        stopper.request(StopCause::Interrupted);
        assert_eq!(stopper.cause(), Some(&StopCause::PowerOff));
        assert_eq!(stopper.event().read().unwrap(), 1);
    }
}
