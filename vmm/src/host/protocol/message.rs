//! What the frames say.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::frame::{self, Frame, FrameError};
use crate::outcome::FailureClass;

/// Raised when either side would misread the other. Both are the same binary
/// unless somebody names another one as the agent.
pub const VERSION: u32 = 2;

/// Everything the two sides can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// To the host: a file follows. Drops one that is still incomplete.
    FileStart(FileStart),
    /// To the host: the next bytes of the file.
    FileData(Vec<u8>),
    /// To the host: run a guest.
    Job(Job),
    /// To the host: console input, within the window of [`Message::InputTaken`].
    Input(Vec<u8>),
    /// To the host: console input has ended.
    InputEnd,
    /// To the host: lines with what a client of the control socket asks for.
    Calls(Vec<u8>),
    /// To the host: stop the guest cleanly.
    Stop,
    /// To the host: end it now.
    Kill,
    /// From the host: it is up.
    Ready(Ready),
    /// From the host: a file is complete, or cannot be kept.
    FileStored(FileStored),
    /// From the host: this many bytes of input were consumed.
    InputTaken(u32),
    /// From the host: console output.
    Output(Vec<u8>),
    /// From the host: the next bytes of the lines that answer
    /// [`Message::Calls`].
    Answers(Vec<u8>),
    /// From the host: what the inner run logs (its stderr).
    Log(Vec<u8>),
    /// From the host: the next bytes of the results document.
    Results(Vec<u8>),
    /// From the host: the run is over.
    Done(Done),
    /// From the host: it still runs.
    Alive,
}

/// A file the guest needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStart {
    /// What names it in the host: hash and length of its content.
    pub id: String,
    /// Its length.
    pub bytes: u64,
}

/// Answer to a complete file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStored {
    /// Which file.
    pub id: String,
    /// Why it could not be kept.
    pub error: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The configuration as TOML, with its paths already those of the host.
    pub config: String,
    /// The hugetlb pool the guest lives from; every other pool is emptied.
    pub pool: Option<Pool>,
    /// RAM the guest needs outside of a pool, in bytes.
    pub plain_bytes: u64,
    /// Whether console input will come.
    pub input: bool,
    /// Whether [`Message::Calls`] may come.
    pub control: bool,
    /// Whether the inner run logs what is of interest in debugging.
    pub debug: bool,
}

/// A hugetlb pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages it is to have.
    pub pages: u64,
}

/// The host, once it is up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// [`VERSION`] of the agent.
    pub protocol: u32,
    /// Version of the agent's Aerostat.
    pub aerostat: String,
    /// Release and version of its kernel.
    pub kernel: String,
    /// CPU model name.
    pub cpu: String,
    /// CPUs online.
    pub cpus: u32,
    /// RAM in bytes.
    pub memory: u64,
    /// Why its KVM cannot be used, if it cannot.
    pub no_kvm: Option<String>,
    /// Milliseconds of its own clock since its kernel started.
    pub uptime_ms: u64,
}

/// How a run ended in the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What became of the inner run.
    pub ended: Ended,
    /// Huge pages that did not come back to their pool.
    pub leaks: Vec<Leak>,
}

/// What became of the inner run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Signalled(i32),
    /// The host could not run it at all.
    Refused {
        /// Whose failure it is.
        class: FailureClass,
        /// One line for people.
        message: String,
    },
}

/// Huge pages that are neither free nor used by anybody known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages free after the run.
    pub free: u64,
    /// Pages still promised to somebody.
    pub reserved: u64,
}

/// A frame that says nothing known.
#[derive(Debug, Error)]
pub enum MessageError {
    /// Not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// No such kind.
    #[error("frame of unknown kind {0}")]
    Kind(u16),
    /// A header that is not what its kind promises.
    #[error("frame of kind {kind}: {source}")]
    Header {
        /// Kind of the frame.
        kind: u16,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A number of the wrong width.
    #[error("frame of kind {kind} with {length} bytes")]
    Length {
        /// Kind of the frame.
        kind: u16,
        /// Length of its payload.
        length: usize,
    },
}

// Kinds on the wire: below 64 to the host, from 64 on from it.
const FILE_START: u16 = 1;
const FILE_DATA: u16 = 2;
const JOB: u16 = 3;
const INPUT: u16 = 4;
const INPUT_END: u16 = 5;
const STOP: u16 = 6;
const KILL: u16 = 7;
const CALLS: u16 = 8;
const READY: u16 = 64;
const FILE_STORED: u16 = 65;
const INPUT_TAKEN: u16 = 66;
const OUTPUT: u16 = 67;
const LOG: u16 = 68;
const RESULTS: u16 = 69;
const DONE: u16 = 70;
const ALIVE: u16 = 71;
const ANSWERS: u16 = 72;

impl Message {
    /// Appends the message as a frame.
    ///
    /// # Errors
    ///
    /// When the payload is longer than a frame may be.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), MessageError> {
        match self {
            Self::FileStart(header) => encode_header(FILE_START, header, out),
            Self::FileData(bytes) => encode_raw(FILE_DATA, bytes, out),
            Self::Job(header) => encode_header(JOB, header, out),
            Self::Input(bytes) => encode_raw(INPUT, bytes, out),
            Self::InputEnd => encode_raw(INPUT_END, &[], out),
            Self::Calls(bytes) => encode_raw(CALLS, bytes, out),
            Self::Stop => encode_raw(STOP, &[], out),
            Self::Kill => encode_raw(KILL, &[], out),
            Self::Ready(header) => encode_header(READY, header, out),
            Self::FileStored(header) => encode_header(FILE_STORED, header, out),
            Self::InputTaken(bytes) => encode_raw(INPUT_TAKEN, &bytes.to_le_bytes(), out),
            Self::Output(bytes) => encode_raw(OUTPUT, bytes, out),
            Self::Answers(bytes) => encode_raw(ANSWERS, bytes, out),
            Self::Log(bytes) => encode_raw(LOG, bytes, out),
            Self::Results(bytes) => encode_raw(RESULTS, bytes, out),
            Self::Done(header) => encode_header(DONE, header, out),
            Self::Alive => encode_raw(ALIVE, &[], out),
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    ///
    /// [`MessageError`] when it is none of the above.
    pub fn decode(frame: &Frame<'_>) -> Result<Self, MessageError> {
        let raw = || frame.payload.to_vec();
        Ok(match frame.kind {
            FILE_START => Self::FileStart(decode_header(frame)?),
            FILE_DATA => Self::FileData(raw()),
            JOB => Self::Job(decode_header(frame)?),
            INPUT => Self::Input(raw()),
            INPUT_END => Self::InputEnd,
            CALLS => Self::Calls(raw()),
            STOP => Self::Stop,
            KILL => Self::Kill,
            READY => Self::Ready(decode_header(frame)?),
            FILE_STORED => Self::FileStored(decode_header(frame)?),
            INPUT_TAKEN => {
                let number = frame.payload.try_into().map_err(|_| MessageError::Length {
                    kind: frame.kind,
                    length: frame.payload.len(),
                })?;
                Self::InputTaken(u32::from_le_bytes(number))
            }
            OUTPUT => Self::Output(raw()),
            ANSWERS => Self::Answers(raw()),
            LOG => Self::Log(raw()),
            RESULTS => Self::Results(raw()),
            DONE => Self::Done(decode_header(frame)?),
            ALIVE => Self::Alive,
            kind => return Err(MessageError::Kind(kind)),
        })
    }
}

fn encode_raw(kind: u16, payload: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
    Ok(frame::encode(kind, payload, out)?)
}

fn encode_header<T: Serialize>(
    kind: u16,
    header: &T,
    out: &mut Vec<u8>,
) -> Result<(), MessageError> {
    let text =
        serde_json::to_vec(header).map_err(|source| MessageError::Header { kind, source })?;
    encode_raw(kind, &text, out)
}

fn decode_header<T: DeserializeOwned>(frame: &Frame<'_>) -> Result<T, MessageError> {
    serde_json::from_slice(frame.payload).map_err(|source| MessageError::Header {
        kind: frame.kind,
        source,
    })
}

#[cfg(test)]
#[path = "message_test.rs"]
mod tests;
