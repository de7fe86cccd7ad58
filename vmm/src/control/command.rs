//! What a client may ask for: one line, one request.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reply::{ControlError, ErrorCode};

/// Version of the protocol. Raised when a request or a reply changes its
/// meaning; new commands and new keys in replies do not raise it.
pub const SCHEMA_VERSION: u64 = 1;
/// Longest request in bytes, without its line end.
pub const MAX_LINE: usize = 64 << 10;
/// Longest id that is given back with a reply, in bytes.
const MAX_ID: usize = 256;
/// The balloon counts in 4 KiB pages (virtio 1.3, 5.5).
pub const BALLOON_PAGE: u64 = 4096;
/// Longest wait for a balloon size.
pub const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Longest wait for the guest's statistics.
pub const MAX_STATS_WAIT: Duration = Duration::from_secs(60);
/// Wait for the guest's statistics, if the request names none.
pub const STATS_WAIT: Duration = Duration::from_millis(500);

/// A command, as its request has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Ask the guest for another balloon size.
    BalloonSet {
        /// The size: a multiple of 4 KiB, less than guest RAM.
        size_bytes: u64,
        /// Reply when the balloon has that size, or after this long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
        /// Go there by this many bytes a second instead of at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ramp_bytes_per_s: Option<u64>,
    },
    /// The balloon's size, asked for and reached.
    BalloonGet {},
    /// The guest's statistics, fresh from its driver.
    Stats {
        /// How long the guest has to answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Begin a round of free page hinting.
    HintStart {},
    /// How far hinting has come.
    HintStatus {},
    /// End the round of free page hinting.
    HintStop {},
    /// What the balloon device counted.
    Counters {},
    /// What was negotiated, and how the VM is.
    Info {},
    /// Stop the vCPUs.
    Pause {},
    /// Let them run again.
    Resume {},
    /// End the run.
    Stop {},
}

impl Command {
    /// How long an answer may take by the command's own terms, beside the time
    /// everything takes.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self {
            Self::BalloonSet { wait_ms, .. } => Duration::from_millis(wait_ms.unwrap_or(0)),
            Self::Stats { timeout_ms } => timeout_ms.map_or(STATS_WAIT, Duration::from_millis),
            _ => Duration::ZERO,
        }
    }

    /// What the type alone does not say.
    ///
    /// # Errors
    /// The key that is wrong, and what is wrong with its value.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        match *self {
            Self::BalloonSet {
                size_bytes,
                wait_ms,
                ramp_bytes_per_s,
            } => {
                if size_bytes % BALLOON_PAGE != 0 {
                    let what = format!("{size_bytes} is not a multiple of {BALLOON_PAGE}");
                    return Err(("size_bytes", what));
                }
                if ramp_bytes_per_s == Some(0) {
                    return Err(("ramp_bytes_per_s", "0 would never get there".to_owned()));
                }
                within("wait_ms", wait_ms, MAX_WAIT)
            }
            Self::Stats { timeout_ms } => within("timeout_ms", timeout_ms, MAX_STATS_WAIT),
            _ => Ok(()),
        }
    }
}

fn within(
    key: &'static str,
    millis: Option<u64>,
    most: Duration,
) -> Result<(), (&'static str, String)> {
    match millis {
        Some(millis) if u128::from(millis) > most.as_millis() => {
            Err((key, format!("{millis} is more than {}", most.as_millis())))
        }
        _ => Ok(()),
    }
}

/// A request: a command, and the name the client gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Given back with each line that answers it: a string or a number.
    pub id: Option<Value>,
    /// What is asked for.
    pub command: Command,
}

/// A line that is no request.
#[derive(Debug, Clone, PartialEq)]
pub struct BadRequest {
    /// Its id, if it had a sound one.
    pub id: Option<Value>,
    /// What is wrong with it.
    pub error: ControlError,
}

/// Reads a request, a JSON object without its line end.
///
/// # Errors
/// [`BadRequest`], which says what is wrong in one line.
pub fn parse(line: &[u8]) -> Result<Request, BadRequest> {
    let bad = |id: Option<Value>, code, message: String| BadRequest {
        id,
        error: ControlError { code, message },
    };
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| bad(None, ErrorCode::BadRequest, format!("not JSON: {error}")))?;
    let Value::Object(mut object) = value else {
        let what = "a request is a JSON object, such as {\"command\":\"info\"}";
        return Err(bad(None, ErrorCode::BadRequest, what.to_owned()));
    };
    let id = match object.remove("id") {
        Some(Value::String(text)) if text.len() > MAX_ID => {
            let what = format!("id is longer than {MAX_ID} bytes");
            return Err(bad(None, ErrorCode::BadRequest, what));
        }
        Some(id @ (Value::String(_) | Value::Number(_))) => Some(id),
        None | Some(Value::Null) => None,
        Some(_) => {
            let what = "id is neither a string nor a number";
            return Err(bad(None, ErrorCode::BadRequest, what.to_owned()));
        }
    };
    match object.remove("schema_version") {
        None => {}
        Some(version) if version == SCHEMA_VERSION => {}
        Some(version) => {
            let what = format!("this VM speaks schema_version {SCHEMA_VERSION}, not {version}");
            return Err(bad(id, ErrorCode::SchemaVersion, one_line(&what)));
        }
    }
    let command: Command = match serde_json::from_value(Value::Object(object)) {
        Ok(command) => command,
        Err(error) => {
            let what = one_line(&error.to_string());
            return Err(bad(id, ErrorCode::BadRequest, what));
        }
    };
    match command.check() {
        Ok(()) => Ok(Request { id, command }),
        Err((key, what)) => {
            let what = format!("{key} = {what}");
            Err(bad(id, ErrorCode::InvalidValue, what))
        }
    }
}

/// A message with a client's own text in it, short and on one line.
fn one_line(text: &str) -> String {
    /// Longest message in characters; what follows adds nothing.
    const MAX_MESSAGE: usize = 300;
    text.chars()
        .take(MAX_MESSAGE)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
#[path = "command_test.rs"]
mod tests;
