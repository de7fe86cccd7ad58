//! The host's side of the conversation.

use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

use super::file_store::FileStore;
use super::job::RunningJob;
use super::outbox::Outbox;
use super::pools::Pools;
use super::{FILES, JOB};
use crate::host::protocol::frame::CHUNK_BYTES;
use crate::host::protocol::{Decoder, Done, Ended, Message};
use crate::outcome::FailureClass;

/// Where things are; tests have them elsewhere.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// Directory of the files by content.
    pub(super) files: PathBuf,
    /// Directory of the running job.
    pub(super) job: PathBuf,
    /// The program that runs a job.
    pub(super) program: PathBuf,
    /// The hugetlb pools.
    pub(super) pools: Pools,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            files: FILES.into(),
            job: JOB.into(),
            program: "/proc/self/exe".into(),
            pools: Pools::default(),
        }
    }
}

/// Serves until the other side is gone; a running job is then killed.
///
/// # Errors
///
/// When the channel breaks, or what comes through it is not the protocol.
pub(super) fn serve(mut from: impl Read, outbox: &Outbox, places: Places) -> io::Result<()> {
    let mut decoder = Decoder::default();
    let mut files = FileStore::new(places.files.clone());
    let mut job: Option<RunningJob> = None;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        decoder.feed(chunk.get(..length).unwrap_or_default());
        while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            let message = Message::decode(&frame).map_err(io::Error::other)?;
            if let Some(answer) = handle(message, &mut files, &mut job, outbox, &places) {
                outbox.send(&answer)?;
            }
        }
    }
}

/// Does what a message asks for, without ever waiting for a job.
fn handle(
    message: Message,
    files: &mut FileStore,
    job: &mut Option<RunningJob>,
    outbox: &Outbox,
    places: &Places,
) -> Option<Message> {
    match (message, &job) {
        (Message::FileStart(header), _) => return files.start(header).map(Message::FileStored),
        (Message::FileData(bytes), _) => return files.data(&bytes).map(Message::FileStored),
        (Message::Job(_), Some(running)) if !running.is_over() => {
            return Some(refused("the emulated host runs one guest at a time"));
        }
        (Message::Job(wanted), _) => {
            files.abandon();
            match RunningJob::start(wanted, outbox.clone(), places.clone()) {
                Ok(running) => *job = Some(running),
                Err(error) => {
                    return Some(refused(&format!(
                        "the emulated host has no thread for a job: {error}"
                    )));
                }
            }
        }
        (Message::Input(bytes), Some(running)) => running.input(bytes),
        (Message::InputEnd, Some(running)) => running.end_input(),
        (Message::Calls(lines), Some(running)) => running.call(lines),
        (Message::Stop, Some(running)) => running.stop(),
        (Message::Kill, Some(running)) => running.kill(),
        // A stop may cross the end of the job it is meant for; the rest is for the other side.
        _ => {}
    }
    None
}

fn refused(message: &str) -> Message {
    let ended = Ended::Refused {
        class: FailureClass::Internal,
        message: message.to_owned(),
    };
    Message::Done(Done {
        ended,
        leaks: Vec::new(),
    })
}

#[cfg(test)]
#[path = "serve_test.rs"]
mod tests;
