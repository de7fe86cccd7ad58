//! Targets for fuzzing: each takes bytes, does with them what a hostile guest
//! or a careless user could do, and panics if something happens that must not.
//!
//! `cargo xtask fuzz` runs them under libFuzzer, guided by coverage;
//! `tests/corpus.rs` runs them on every input kept in `corpus/`.
// Targets fail by panicking, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod balloon_queues;
mod checked_host;
mod config_text;
mod control_lines;
mod guest;
mod meaning;
mod mmio_accesses;
mod one_line_log;
mod ring_model;
mod session;

/// The driver's side of rings and registers, shared with the device's tests.
#[path = "../../devices/tests/fake_guest/mod.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
mod fake_guest;

/// One target: runs on any input and panics on a finding.
pub type Target = fn(&[u8]);

/// All targets by the name of their folder in `corpus/` and of their program.
pub const TARGETS: &[(&str, Target)] = &[
    ("queues", queues),
    ("registers", registers),
    ("config_file", config_file),
    ("control_socket", control_socket),
];

/// Rings, descriptors and payloads of every queue of the balloon, with kicks,
/// resets, failures of the host, and writes while the device works.
pub fn queues(data: &[u8]) {
    balloon_queues::run(data);
}

/// Reads and writes of any size anywhere in the register window.
pub fn registers(data: &[u8]) {
    mmio_accesses::run(data);
}

/// The text of a configuration file and `--set` flags, separated by zero bytes.
pub fn config_file(data: &[u8]) {
    config_text::run(data);
}

/// What a client sends to the control socket, in pieces of any size.
pub fn control_socket(data: &[u8]) {
    control_lines::run(data);
}
