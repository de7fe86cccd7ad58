//! Runs other programs, and tells which one failed.

use std::env;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Failure;

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Says what happens next; one line on stderr, on a terminal and elsewhere alike.
pub(crate) fn say(what: &str) {
    eprintln!("xtask: {what}");
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// `cargo SUBCOMMAND`, which shows its progress on a terminal and is quiet elsewhere.
pub(crate) fn cargo_showing(subcommand: &str) -> Command {
    let mut cargo = cargo();
    cargo.arg(subcommand);
    if !std::io::stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    cargo
}

/// Runs it with our own stdin, stdout and stderr.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|error| format!("cannot run {}: {error}", shown(command)))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{} failed: {status}", shown(command)).into())
}

/// Runs it and returns what it printed on stdout; shows its stderr if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", shown(command)))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&out.stderr);
    Err(format!(
        "{} failed: {}\n{}",
        shown(command),
        out.status,
        stderr.trim_end()
    )
    .into())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
