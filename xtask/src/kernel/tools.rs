//! Running other programs.

use std::env;
use std::process::{Command, Output, Stdio};

use super::error::{KernelError, io};

/// Is this program installed?
pub(crate) fn has(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Runs to the end and returns its standard output; other output only if it fails.
pub(crate) fn run(command: &mut Command) -> Result<String, KernelError> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(io("run", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(command, &output))
}

/// What to say about a program that did not succeed.
pub(crate) fn failed(command: &Command, output: &Output) -> KernelError {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    KernelError::Command {
        command: describe(command),
        status: output.status.to_string(),
        output: tail(&text, 15),
    }
}

/// Program and arguments, for messages.
pub(crate) fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// The last lines of a log.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let first = all.len().saturating_sub(lines);
    all.get(first..).unwrap_or_default().join("\n")
}
