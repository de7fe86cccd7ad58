//! What a client is told: one line for each request, and lines of progress
//! before it where it waits.

use devices::balloon::device::FeaturesSnapshot;
use devices::balloon::queue_map::QueueNumbering;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::command::SCHEMA_VERSION;

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The line is no request.
    BadRequest,
    /// The request is of another version of the protocol.
    SchemaVersion,
    /// A value that cannot be had.
    InvalidValue,
    /// The VM has not started yet.
    Starting,
    /// The feature it takes was not offered, or the guest did not take it up.
    NotNegotiated,
    /// The guest did not answer in time.
    GuestTimeout,
    /// The VM did not answer in time.
    NoAnswer,
    /// Another request took its place.
    Superseded,
    /// Too many clients are waiting for something already.
    TooManyClients,
    /// A bug, or a broken host.
    Internal,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlError {
    /// For programs.
    pub code: ErrorCode,
    /// One line for people.
    pub message: String,
}

impl ControlError {
    /// An error of this code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

/// The balloon's size, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalloonState {
    /// What it was last set to.
    pub goal_bytes: u64,
    /// What the guest is asked for now; on its way to the goal while it is
    /// ramped.
    pub target_bytes: u64,
    /// What the guest says it has.
    pub actual_bytes: u64,
}

/// What became of a wait for a balloon size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nobody waits; the guest was asked.
    Set,
    /// The balloon has the size.
    Reached,
    /// The time passed while the balloon still got closer.
    TimedOutProgressing,
    /// The time passed and the balloon had stopped getting closer.
    TimedOutStalled,
}

/// Result of `balloon_set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalloonSet {
    /// What became of it.
    pub outcome: Outcome,
    /// The balloon then.
    #[serde(flatten)]
    pub balloon: BalloonState,
}

/// Whether the vCPUs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VmState {
    /// They run.
    Running,
    /// They are stopped until `resume`.
    Paused,
    /// The run ends.
    Stopping,
}

/// Result of `pause`, `resume` and `stop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReply {
    /// The state now.
    pub state: VmState,
}

/// Result of `info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Version of Aerostat.
    pub aerostat: String,
    /// Whether the vCPUs run.
    pub state: VmState,
    /// Number of vCPUs.
    pub cpus: u8,
    /// Guest RAM.
    pub memory_bytes: u64,
    /// Balloon features by name.
    pub features: FeaturesSnapshot,
    /// How the driver numbers its queues; null until one came so far.
    pub queue_numbering: Option<QueueNumbering>,
    /// The value the guest fills free pages with; null without page poison.
    pub poison: Option<u32>,
}

/// What the VM says to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// It is not done yet; more comes.
    Progress(BalloonState),
    /// It is done.
    Done(Value),
    /// It is not done and will not be.
    Failed(ControlError),
}

impl Body {
    /// The body with a result in it.
    #[must_use]
    pub fn done(result: &impl Serialize) -> Self {
        match serde_json::to_value(result) {
            Ok(value) => Self::Done(value),
            Err(error) => Self::Failed(ControlError::new(ErrorCode::Internal, error.to_string())),
        }
    }

    /// Whether this ends the request.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Progress(_))
    }

    /// The line for the client, with its line end.
    #[must_use]
    pub fn line(&self, id: Option<&Value>) -> String {
        let mut reply = match self {
            Self::Progress(state) => json!({ "progress": state }),
            Self::Done(result) => json!({ "ok": true, "result": result }),
            Self::Failed(error) => json!({ "ok": false, "error": error }),
        };
        if let Some(object) = reply.as_object_mut() {
            object.insert("schema_version".to_owned(), SCHEMA_VERSION.into());
            if let Some(id) = id {
                object.insert("id".to_owned(), id.clone());
            }
        }
        format!("{reply}\n")
    }

    /// Reads what [`Self::line`] wrote.
    ///
    /// # Errors
    /// A line that is no reply of this version.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Line {
            schema_version: u64,
            progress: Option<BalloonState>,
            result: Option<Value>,
            error: Option<ControlError>,
        }
        let line: Line =
            serde_json::from_slice(line).map_err(|error| format!("not a reply: {error}"))?;
        if line.schema_version != SCHEMA_VERSION {
            return Err(format!(
                "the VM speaks version {} of the protocol, this program {SCHEMA_VERSION}",
                line.schema_version
            ));
        }
        match (line.progress, line.result, line.error) {
            (Some(state), None, None) => Ok(Self::Progress(state)),
            (None, Some(result), None) => Ok(Self::Done(result)),
            (None, None, Some(error)) => Ok(Self::Failed(error)),
            _ => Err("not a reply: neither result nor error nor progress".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_line_with_version_and_id() {
        let state = BalloonState {
            goal_bytes: 8192,
            target_bytes: 8192,
            actual_bytes: 4096,
        };
        let error = ControlError::new(ErrorCode::GuestTimeout, "a\nb");
        #[rustfmt::skip]
        let rows = [
            (Body::Progress(state), Some(json!(7)),
             r#"{"id":7,"progress":{"actual_bytes":4096,"goal_bytes":8192,"target_bytes":8192},"schema_version":1}"#),
            (Body::Done(json!({"a": 1})), None, r#"{"ok":true,"result":{"a":1},"schema_version":1}"#),
            (Body::Failed(error), Some(json!("x")),
             r#"{"error":{"code":"guest_timeout","message":"a\nb"},"id":"x","ok":false,"schema_version":1}"#),
        ];
        for (body, id, line) in rows {
            assert_eq!(body.line(id.as_ref()), format!("{line}\n"));
            assert_eq!(Body::parse(line.as_bytes()), Ok(body));
        }
    }

    #[test]
    fn a_client_takes_no_other_version_and_no_other_text() {
        for line in [
            "",
            "{}",
            r#"{"schema_version":2,"ok":true,"result":{}}"#,
            r#"{"schema_version":1}"#,
            r#"{"schema_version":1,"result":1,"error":{"code":"internal","message":""}}"#,
        ] {
            assert!(Body::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
