//! A merged configuration as TOML that reads back to the same configuration.

use std::path::Path;

use super::entries::Entries;
use super::schema::{Backing, Config, ConsoleOutput};
use super::units::{format_duration, format_size};

impl Config {
    /// Writes every key that has a value. [`super::from_merged`] and
    /// [`super::load_str`] read it back to an equal configuration.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.write(|_| None)
    }

    /// As [`Config::to_toml`], each line with a comment that says where its
    /// value came from.
    pub(super) fn to_toml_with_origins(&self, entries: &Entries) -> String {
        self.write(|key| {
            let entry = entries.get(key).or_else(|| match key {
                "memory.overcommit" => entries.get("memory.reserve"),
                "console.output" => entries.get("console.output.file"),
                _ => None,
            });
            Some(entry.map_or_else(|| "default".to_owned(), |entry| entry.origin.to_string()))
        })
    }

    fn write(&self, comment: impl Fn(&str) -> Option<String>) -> String {
        let mut text = String::new();
        let mut table = "";
        for (key, value) in self.lines() {
            let Some((of, leaf)) = key.split_once('.') else {
                continue;
            };
            if of != table {
                if !table.is_empty() {
                    text.push('\n');
                }
                text.push_str(&format!("[{of}]\n"));
                table = of;
            }
            text.push_str(&format!("{leaf} = {value}"));
            if let Some(comment) = comment(key) {
                text.push_str(&format!(" # {comment}"));
            }
            text.push('\n');
        }
        text
    }

    /// Keys with their values as TOML, in the order of [`super::keys::KEYS`].
    fn lines(&self) -> Vec<(&'static str, String)> {
        let memory = &self.memory;
        let balloon = &self.balloon;
        let lines = [
            ("kernel.image", Some(path(&self.kernel.image))),
            ("kernel.initrd", self.kernel.initrd.as_deref().map(path)),
            ("kernel.cmdline", Some(string(&self.kernel.cmdline))),
            ("cpus.count", Some(self.cpus.count.to_string())),
            ("memory.size", Some(string(&format_size(memory.size)))),
            ("memory.backing", Some(string(memory.backing.name()))),
            (
                "memory.page",
                (memory.backing == Backing::Hugetlb).then(|| string(memory.page.name())),
            ),
            ("memory.shared", Some(memory.shared.to_string())),
            ("memory.overcommit", Some(memory.overcommit.to_string())),
            ("memory.prefault", Some(memory.prefault.to_string())),
            (
                "memory.prefault_threads",
                memory.prefault_threads.map(|n| n.to_string()),
            ),
            ("balloon.reporting", Some(balloon.reporting.to_string())),
            (
                "balloon.device_init_reported",
                Some(balloon.device_init_reported.to_string()),
            ),
            ("balloon.on_report", Some(string(balloon.on_report.name()))),
            (
                "balloon.on_inflate",
                Some(string(balloon.on_inflate.name())),
            ),
            (
                "balloon.device_init_on_inflate",
                Some(balloon.device_init_on_inflate.to_string()),
            ),
            (
                "balloon.must_tell_host",
                Some(balloon.must_tell_host.to_string()),
            ),
            ("balloon.statistics", Some(balloon.statistics.to_string())),
            (
                "balloon.deflate_on_oom",
                Some(balloon.deflate_on_oom.to_string()),
            ),
            ("balloon.hinting", Some(string(balloon.hinting.name()))),
            (
                "balloon.accept_hint_race",
                Some(balloon.accept_hint_race.to_string()),
            ),
            (
                "balloon.accept_bit6_ambiguity",
                Some(balloon.accept_bit6_ambiguity.to_string()),
            ),
            ("balloon.page_poison", Some(balloon.page_poison.to_string())),
            (
                "balloon.zero_rate",
                Some(string(&format_size(balloon.zero_rate))),
            ),
            ("balloon.target", Some(string(&format_size(balloon.target)))),
            (
                "balloon.lie_about_zero",
                balloon.lie_about_zero.then(|| "true".to_owned()),
            ),
            ("console.output", Some(console_output(&self.console.output))),
            ("console.input", Some(self.console.input.to_string())),
            ("results.path", self.results.path.as_deref().map(path)),
            (
                "timeout.boot",
                Some(string(&format_duration(self.timeout.boot))),
            ),
            (
                "timeout.run",
                Some(string(&format_duration(self.timeout.run))),
            ),
            (
                "timeout.pool",
                Some(string(&format_duration(self.timeout.pool))),
            ),
            ("control.socket", self.control.socket.as_deref().map(path)),
            ("host.kernel", self.host.kernel.as_deref().map(path)),
            (
                "host.memory",
                self.host.memory.map(|size| string(&format_size(size))),
            ),
        ];
        lines
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }
}

fn console_output(output: &ConsoleOutput) -> String {
    match output {
        ConsoleOutput::Stdout => string("stdout"),
        ConsoleOutput::None => string("none"),
        ConsoleOutput::File(file) => format!("{{ file = {} }}", path(file)),
    }
}

/// Paths of a checked configuration are UTF-8.
fn path(path: &Path) -> String {
    string(&path.to_string_lossy())
}

/// A basic string on one line, whatever is in it.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
