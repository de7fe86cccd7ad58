//! The two pipes through which the run in this host is controlled.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

use rustix::pipe::{PipeFlags, pipe_with};

use super::job::pump;
use super::outbox::Outbox;
use crate::host::protocol::Message;

/// Calls that wait for a run which does not read them. The other side has fewer
/// clients, each with one call at a time; what is beyond is dropped, and there
/// answered for want of an answer.
pub(super) const MAX_CALLS: usize = 64;

/// The run's ends. It opens them through this process, which keeps them until
/// the run is over: then the pipes end too.
pub(super) struct ControlPipes {
    calls: OwnedFd,
    answers: OwnedFd,
}

impl ControlPipes {
    /// Pipes between the other side and a run that is not there yet, with the
    /// thread that carries its answers.
    pub(super) fn connect(
        calls: Receiver<Vec<u8>>,
        outbox: &Outbox,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (calls_out, calls_in) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers_out, answers_in) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut to_run = File::from(calls_in);
        // Ends with the job's handle or with the run: it is not waited for.
        thread::Builder::new().spawn(move || {
            while let Ok(line) = calls.recv() {
                if to_run.write_all(&line).is_err() {
                    return;
                }
            }
        })?;
        let outbox = outbox.clone();
        let pump = thread::Builder::new()
            .spawn(move || pump(File::from(answers_out), Message::Answers, &outbox))?;
        let this = Self {
            calls: calls_out,
            answers: answers_in,
        };
        Ok((this, pump))
    }

    /// How the run finds them.
    pub(super) fn variable(&self) -> String {
        let own = std::process::id();
        let path = |end: &OwnedFd| format!("/proc/{own}/fd/{}", end.as_raw_fd());
        format!("{},{}", path(&self.calls), path(&self.answers))
    }
}
