//! Target: a configuration file and what the command line says on top of it.

use std::path::Path;

use vmm::config;

use crate::one_line_log::{self, assert_one_line};

/// Separates the text from the `--set` flags, and those from each other; no
/// argument of a program can contain it.
const SEPARATOR: char = '\0';

pub(crate) fn run(data: &[u8]) {
    one_line_log::start();
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split(SEPARATOR).map(str::to_owned);
    let text = parts.next().unwrap_or_default();
    let sets: Vec<_> = parts.collect();

    match config::load_str(&text, "fuzz.toml", Path::new("/base"), &sets) {
        Ok(config) => {
            let written = config.to_toml();
            let again = config::from_merged(&written);
            assert_eq!(again.as_ref(), Ok(&config), "read back from\n{written}");
        }
        Err(error) => assert_one_line(&error.to_string(), data.len()),
    }
}
