//! The client's side: connects to a VM's socket and asks for one thing.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use super::command::Command;
use super::reply::{BalloonState, Body, ControlError};
use super::server::NO_ANSWER;
use super::socket_file::{self, SocketError};

/// Longest line that is read.
const MAX_REPLY: u64 = 1 << 20;

/// Why there is no result. Each is one line for people.
#[derive(Debug, Error)]
pub enum CallError {
    /// There is no such socket.
    #[error("{}: no such socket; is the VM running, with this control.socket?", .0.display())]
    NoSocket(PathBuf),
    /// Nobody listens there.
    #[error("{}: nobody is listening; the VM has ended", .0.display())]
    NobodyListens(PathBuf),
    /// It cannot be connected to.
    #[error("{}: {reason}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The VM went away.
    #[error("the VM ended before it answered")]
    Closed,
    /// Nothing came for too long.
    #[error("no answer from the VM within {0:?}; is its process stopped?")]
    Silent(Duration),
    /// What came is no reply.
    #[error("{0}")]
    Protocol(String),
    /// The VM refused, or failed.
    #[error("{}", .0.message)]
    Refused(ControlError),
}

/// A connection to a VM.
pub struct Caller {
    stream: BufReader<UnixStream>,
}

impl Caller {
    /// Connects to the socket `path`.
    ///
    /// # Errors
    /// [`CallError::NoSocket`], [`CallError::NobodyListens`], [`CallError::Connect`].
    pub fn connect(path: &Path) -> Result<Self, CallError> {
        let failed = |error: SocketError| match &error {
            SocketError::Io(cause) => match cause.kind() {
                io::ErrorKind::NotFound => CallError::NoSocket(path.to_owned()),
                // Also the answer of what is no socket at all.
                io::ErrorKind::ConnectionRefused if is_socket(path) => {
                    CallError::NobodyListens(path.to_owned())
                }
                kind => CallError::Connect {
                    path: path.to_owned(),
                    reason: match kind {
                        io::ErrorKind::PermissionDenied => {
                            "permission denied; the socket is for the user who runs the VM"
                                .to_owned()
                        }
                        io::ErrorKind::ConnectionRefused => "is no socket".to_owned(),
                        io::ErrorKind::WouldBlock => "too many clients are waiting".to_owned(),
                        _ => cause.to_string(),
                    },
                },
            },
            other => CallError::Connect {
                path: path.to_owned(),
                reason: other.to_string(),
            },
        };
        let stream = socket_file::connect_to(path).map_err(failed)?;
        stream
            .set_nonblocking(false)
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Asks for `command` and waits for its result. `on_progress` is called for
    /// each line of progress.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(
        &mut self,
        command: &Command,
        mut on_progress: impl FnMut(BalloonState),
    ) -> Result<Value, CallError> {
        // The VM itself gives up earlier, and says so.
        let limit = command.patience() + 2 * NO_ANSWER;
        self.send(command, limit)
            .map_err(|error| gone(&error, limit))?;
        loop {
            let mut line = Vec::new();
            let from = Read::by_ref(&mut self.stream);
            let read = from.take(MAX_REPLY).read_until(b'\n', &mut line);
            read.map_err(|error| gone(&error, limit))?;
            if line.pop() != Some(b'\n') {
                return Err(CallError::Closed);
            }
            match Body::parse(&line).map_err(CallError::Protocol)? {
                Body::Progress(state) => on_progress(state),
                Body::Done(result) => return Ok(result),
                Body::Failed(error) => return Err(CallError::Refused(error)),
            }
        }
    }

    fn send(&mut self, command: &Command, limit: Duration) -> io::Result<()> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        let stream = self.stream.get_mut();
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.write_all(&line)
    }
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn gone(error: &io::Error, limit: Duration) -> CallError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => CallError::Silent(limit),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => CallError::Closed,
        _ => CallError::Protocol(error.to_string()),
    }
}
