//! `aerostat ctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use vmm::config::units::{format_duration, format_size, parse_duration, parse_size};
use vmm::control::caller::{CallError, Caller};
use vmm::control::command::Command;
use vmm::control::reply::{BalloonSet, BalloonState, ErrorCode, Outcome};
use vmm::outcome::{EXIT_PROGRESSING, EXIT_STALLED, EXIT_TIMEOUT, FailureClass, Verdict};

use crate::cli_ctl_table::table;
use crate::talk::{print, say};

/// Wait for a balloon size, if none is named.
const WAIT: &str = "60s";

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// Print the result as one JSON document
    #[arg(long, global = true)]
    json: bool,
    /// The VM's control.socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Set and get the size of the balloon
    #[command(subcommand)]
    Balloon(BalloonCommand),
    /// Statistics of the guest, fresh from its driver
    Stats {
        /// How long the guest has to answer, at most 60s [default: 500ms]
        #[arg(long, value_name = "DURATION")]
        timeout: Option<String>,
    },
    /// Free page hinting
    #[command(subcommand)]
    Hint(HintCommand),
    /// What the balloon device counted
    Counters,
    /// Features offered and acknowledged, and how the VM is
    Info,
    /// Stop the vCPUs; time limits and the guest's clock go on
    Pause,
    /// Let the vCPUs run again
    Resume,
    /// End the run
    Stop,
}

#[derive(Debug, Subcommand)]
enum BalloonCommand {
    /// Ask the guest for a balloon of SIZE: a multiple of 4K, less than its RAM
    Set {
        /// Such as 256M
        size: String,
        /// Wait until the balloon has that size
        #[arg(long)]
        wait: bool,
        /// How long to wait, at most 24h [default: 60s]; 71 and 72 are the exit codes then
        #[arg(long, value_name = "DURATION", requires = "wait")]
        timeout: Option<String>,
        /// Go there by this much a second, such as 64M, instead of at once
        #[arg(long, value_name = "RATE")]
        ramp: Option<String>,
    },
    /// Its size: set, asked for now, and had by the guest
    Get,
}

#[derive(Debug, Subcommand)]
enum HintCommand {
    /// Begin a round
    Start,
    /// How far it is
    Status,
    /// End it
    Stop,
}

/// Asks a running VM for one thing; returns the exit code.
pub(crate) fn run(args: &CtlArgs, quiet: bool) -> u8 {
    let command = match args.command.checked() {
        Ok(command) => command,
        Err(line) => {
            say(&line);
            return FailureClass::Usage.exit_code();
        }
    };
    let show = |state: BalloonState| {
        if !quiet {
            let (actual, goal) = (size(state.actual_bytes), size(state.goal_bytes));
            say(&format_args!("the balloon has {actual} of {goal}"));
        }
    };
    let called = Caller::connect(&args.socket).and_then(|mut vm| vm.call(&command, show));
    match called {
        Ok(result) => {
            let printed = print(&shown(&result, args.json));
            match printed {
                0 => after(&command, result),
                code => code,
            }
        }
        Err(error) => {
            say(&error);
            exit_code(&error)
        }
    }
}

impl CtlCommand {
    /// The request it is. The error is one line that names what was typed.
    fn checked(&self) -> Result<Command, String> {
        let command = self.to_command()?;
        command.check().map_err(|(key, what)| match key {
            "size_bytes" => format!("SIZE {what}"),
            "ramp_bytes_per_s" => format!("--ramp {what}"),
            _ => format!("--timeout, in milliseconds, {what}"),
        })?;
        Ok(command)
    }

    fn to_command(&self) -> Result<Command, String> {
        Ok(match self {
            Self::Balloon(BalloonCommand::Set {
                size,
                wait,
                timeout,
                ramp,
            }) => Command::BalloonSet {
                size_bytes: bytes("SIZE", size)?,
                wait_ms: wait
                    .then(|| millis("--timeout", timeout.as_deref().unwrap_or(WAIT)))
                    .transpose()?,
                ramp_bytes_per_s: ramp
                    .as_ref()
                    .map(|rate| bytes("--ramp", rate))
                    .transpose()?,
            },
            Self::Balloon(BalloonCommand::Get) => Command::BalloonGet {},
            Self::Stats { timeout } => Command::Stats {
                timeout_ms: timeout
                    .as_ref()
                    .map(|timeout| millis("--timeout", timeout))
                    .transpose()?,
            },
            Self::Hint(HintCommand::Start) => Command::HintStart {},
            Self::Hint(HintCommand::Status) => Command::HintStatus {},
            Self::Hint(HintCommand::Stop) => Command::HintStop {},
            Self::Counters => Command::Counters {},
            Self::Info => Command::Info {},
            Self::Pause => Command::Pause {},
            Self::Resume => Command::Resume {},
            Self::Stop => Command::Stop {},
        })
    }
}

fn bytes(what: &str, text: &str) -> Result<u64, String> {
    parse_size(text)
        .ok_or_else(|| format!("{what} {text:?} is no size; write 256M, 2G or a number of bytes"))
}

fn millis(what: &str, text: &str) -> Result<u64, String> {
    parse_duration(text)
        .and_then(|duration| u64::try_from(duration.as_millis()).ok())
        .ok_or_else(|| format!("{what} {text:?} is no duration; write 500ms, 30s or 2m"))
}

fn shown(result: &Value, json: bool) -> String {
    if json {
        format!("{result:#}\n")
    } else {
        table(result)
    }
}

/// What is left to say of a result, and the exit code.
fn after(command: &Command, result: Value) -> u8 {
    let Command::BalloonSet {
        size_bytes,
        wait_ms: Some(wait),
        ..
    } = command
    else {
        return 0;
    };
    let (how, code) = match serde_json::from_value::<BalloonSet>(result).map(|set| set.outcome) {
        Ok(Outcome::Set | Outcome::Reached) => return 0,
        Ok(Outcome::TimedOutProgressing) => ("it was still getting closer", EXIT_PROGRESSING),
        Ok(Outcome::TimedOutStalled) => ("it had stopped getting closer", EXIT_STALLED),
        Err(error) => {
            say(&format_args!("internal error: not a reply: {error}"));
            return FailureClass::Internal.exit_code();
        }
    };
    let (goal, wait) = (
        size(*size_bytes),
        format_duration(Duration::from_millis(*wait)),
    );
    say(&format_args!(
        "the balloon did not reach {goal} within {wait}; {how}"
    ));
    code
}

/// A size for people, in whole MiB at least.
fn size(bytes: u64) -> String {
    format_size(bytes >> 20 << 20)
}

fn exit_code(error: &CallError) -> u8 {
    match error {
        CallError::Refused(error) => match error.code {
            ErrorCode::GuestTimeout | ErrorCode::NoAnswer => EXIT_TIMEOUT,
            ErrorCode::Internal => FailureClass::Internal.exit_code(),
            ErrorCode::BadRequest
            | ErrorCode::SchemaVersion
            | ErrorCode::InvalidValue
            | ErrorCode::Starting
            | ErrorCode::NotNegotiated
            | ErrorCode::Superseded
            | ErrorCode::TooManyClients => FailureClass::Usage.exit_code(),
        },
        CallError::Silent(_) => EXIT_TIMEOUT,
        CallError::Closed => Verdict::Interrupted.exit_code(),
        CallError::Protocol(_) => FailureClass::Internal.exit_code(),
        CallError::NoSocket(_) | CallError::NobodyListens(_) | CallError::Connect { .. } => {
            FailureClass::Usage.exit_code()
        }
    }
}
