//! Reading one key: its type, its range, and the error that names it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::entries::{Entries, Entry, Value, quote};
use super::error::{ConfigError, Origin, Problem};
use super::keys;
use super::units::{format_duration, format_size, parse_duration, parse_size};

/// A year; keeps every deadline representable.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// What checking needs to know beside the values.
pub(super) struct Checker<'a> {
    pub(super) entries: &'a Entries,
    /// The configuration as a whole, for keys that are missing.
    pub(super) document: Origin,
    /// Relative paths of the file start here.
    pub(super) file_base: &'a Path,
    /// Relative paths of the command line start here.
    pub(super) flag_base: &'a Path,
    /// Keys that exist only for tests are accepted.
    pub(super) test_faults: bool,
    /// Keys that were given and change nothing, one line each.
    pub(super) warnings: Vec<String>,
}

pub(super) type Checked<T> = Result<T, ConfigError>;

/// Reading one key.
impl Checker<'_> {
    pub(super) fn text(&self, key: &'static str) -> Checked<Option<&str>> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong_type(key)),
        }
    }

    /// A path; the empty string takes back one that was given before.
    pub(super) fn path(&self, key: &'static str) -> Checked<Option<PathBuf>> {
        let Some(text) = self.text(key)?.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let from_flag = matches!(
            self.entries.get(key),
            Some(Entry {
                origin: Origin::Flag(_),
                ..
            })
        );
        let base = if from_flag {
            self.flag_base
        } else {
            self.file_base
        };
        let path = base.join(text);
        if text.contains('\0') || path.to_str().is_none() {
            let allowed = "paths in UTF-8 without zero bytes";
            return Err(self.not_allowed(key, &quote(&path.to_string_lossy()), allowed));
        }
        Ok(Some(path))
    }

    pub(super) fn boolean(&self, key: &'static str) -> Checked<Option<bool>> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(*value)),
            Some(_) => Err(self.wrong_type(key)),
        }
    }

    pub(super) fn choice<T: Clone>(
        &self,
        key: &'static str,
        of: &[(&str, T)],
    ) -> Checked<Option<T>> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        match of.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(Some(value.clone())),
            None => {
                let names: Vec<_> = of.iter().map(|(name, _)| quote(name)).collect();
                Err(self.not_allowed(key, &quote(text), &names.join(", ")))
            }
        }
    }

    pub(super) fn number<T>(&self, key: &'static str, least: T, most: T) -> Checked<Option<T>>
    where
        T: TryFrom<i128> + PartialOrd + std::fmt::Display,
    {
        let number = match self.entries.get(key).map(|entry| &entry.value) {
            None => return Ok(None),
            Some(Value::Integer(number)) => *number,
            Some(_) => return Err(self.wrong_type(key)),
        };
        match T::try_from(number) {
            Ok(value) if value >= least && value <= most => Ok(Some(value)),
            _ => Err(self.not_allowed(key, &number.to_string(), &format!("{least} to {most}"))),
        }
    }

    pub(super) fn size(&self, key: &'static str, least: u64, most: u64) -> Checked<Option<u64>> {
        let (bytes, written) = match self.entries.get(key).map(|entry| &entry.value) {
            None => return Ok(None),
            Some(Value::Integer(number)) => (u64::try_from(*number).ok(), number.to_string()),
            Some(Value::Text(text)) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                (parse_size(text), quote(text))
            }
            Some(_) => return Err(self.wrong_type(key)),
        };
        match bytes {
            Some(bytes) if (least..=most).contains(&bytes) => Ok(Some(bytes)),
            Some(_) | None => {
                let (least, most) = (format_size(least), format_size(most));
                let allowed =
                    format!("{least} to {most}, a whole number, as bytes or with K, M, G or T");
                Err(self.not_allowed(key, &written, &allowed))
            }
        }
    }

    pub(super) fn duration(&self, key: &'static str) -> Checked<Option<Duration>> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        match parse_duration(text) {
            Some(duration) if duration <= MAX_TIMEOUT => Ok(Some(duration)),
            _ => {
                let most = format_duration(MAX_TIMEOUT);
                let allowed = format!("0s (no limit) to {most}, with ms, s, m or h");
                Err(self.not_allowed(key, &quote(text), &allowed))
            }
        }
    }
}

/// Errors and warnings about one key.
impl Checker<'_> {
    pub(super) fn error(&self, key: &'static str, problem: Problem) -> ConfigError {
        let origin = self.entries.get(key).map(|entry| entry.origin.clone());
        ConfigError::new(
            origin.unwrap_or_else(|| self.document.clone()),
            Some(key),
            problem,
        )
    }

    pub(super) fn wrong_type(&self, key: &'static str) -> ConfigError {
        let found = self.entries.get(key).map(|entry| entry.value.describe());
        self.error(
            key,
            Problem::WrongType {
                expected: keys::find(key).map_or("another type", |key| key.expected),
                found: found.unwrap_or_default(),
            },
        )
    }

    pub(super) fn not_allowed(&self, key: &'static str, value: &str, allowed: &str) -> ConfigError {
        self.error(
            key,
            Problem::NotAllowed {
                value: value.to_owned(),
                allowed: allowed.to_owned(),
            },
        )
    }

    pub(super) fn conflict(&self, key: &'static str, message: &str) -> ConfigError {
        self.error(key, Problem::Conflict(message.to_owned()))
    }

    /// " (file:line:col)" of a key that was given, for messages about two keys.
    pub(super) fn place_of(&self, key: &str) -> String {
        self.entries
            .get(key)
            .map_or_else(String::new, |entry| format!(" ({})", entry.origin))
    }

    pub(super) fn no_effect(&mut self, key: &'static str, without: &str) {
        if let Some(entry) = self.entries.get(key) {
            self.warnings.push(format!(
                "{}: key `{key}`: has no effect without {without}",
                entry.origin
            ));
        }
    }
}
