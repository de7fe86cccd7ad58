//! From TOML text and `--set` flags to one value per key, each with the place
//! it came from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin, Problem};
use super::keys::{self, Takes};

/// A value as written, before it has a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Integer(i128),
    Boolean(bool),
    /// No key takes one of these; what it is, for the error.
    Other(String),
}

impl Value {
    /// For "found ...".
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Text(text) => format!("string {}", quote(text)),
            Self::Integer(number) => format!("integer {number}"),
            Self::Boolean(value) => format!("boolean {value}"),
            Self::Other(what) => what.clone(),
        }
    }
}

/// Quotes text for a one-line message, cut where it gets long.
pub(super) fn quote(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut shown: String = text
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    format!("\"{shown}\"")
}

/// A value and where it came from.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// One value per key that was given.
#[derive(Debug, Default)]
pub(super) struct Entries(BTreeMap<&'static str, Entry>);

impl Entries {
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.get(key)
    }

    /// Takes the keys of a file.
    pub(super) fn read_text(&mut self, text: &str, name: &str) -> Result<(), ConfigError> {
        let place = Place::Text {
            text,
            name: Arc::from(name),
        };
        let table = DeTable::parse(text).map_err(|error| {
            ConfigError::new(
                place.at(&error.span().unwrap_or(0..0)),
                None,
                Problem::Syntax(one_line(error.message())),
            )
        })?;
        self.read_table("", table.get_ref(), &place)
    }

    /// Takes one `KEY=VALUE`, given with the flag `flag`; replaces what is there.
    pub(super) fn read_assignment(&mut self, flag: &str, text: &str) -> Result<(), ConfigError> {
        let origin = Origin::Flag(Arc::from(format!("{flag} {}", text.escape_debug())));
        let (name, raw) = match text.split_once('=') {
            Some((name, raw)) if !name.trim().is_empty() => (name.trim(), raw),
            _ => {
                return Err(ConfigError::new(origin, None, Problem::NotAnAssignment));
            }
        };
        let place = Place::Flag(origin);
        let parsed = DeValue::parse(raw).ok();
        let takes_text = keys::find(name).is_some_and(|key| key.takes() == Takes::Text);
        match parsed.as_ref().map(Spanned::get_ref) {
            Some(DeValue::Table(table)) if keys::TABLES.contains(&name) => {
                self.read_table(&format!("{name}."), table, &place)
            }
            Some(value @ DeValue::String(_)) => self.put(name, read_value(value), &place, 0..0),
            Some(value) if !takes_text => self.put(name, read_value(value), &place, 0..0),
            _ => self.put(name, Value::Text(raw.to_owned()), &place, 0..0),
        }
    }

    /// Takes a path given by a flag of its own, such as `--results FILE`.
    pub(super) fn put_path(&mut self, key: &'static str, flag: &str, path: &str) {
        let origin = Origin::Flag(Arc::from(format!("{flag} {}", path.escape_debug())));
        self.insert(
            key,
            Entry {
                value: Value::Text(path.to_owned()),
                origin,
            },
        );
    }

    /// Takes a table; `prefix` is empty or ends in a dot. The depth is bounded
    /// by [`keys::TABLES`].
    fn read_table(
        &mut self,
        prefix: &str,
        table: &DeTable<'_>,
        place: &Place<'_>,
    ) -> Result<(), ConfigError> {
        let mut in_order: Vec<_> = table.iter().collect();
        in_order.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in in_order {
            let name = format!("{prefix}{}", key.get_ref());
            match value.get_ref() {
                DeValue::Table(inner) if keys::TABLES.contains(&name.as_str()) => {
                    if inner.is_empty() && keys::find(&name).is_some() {
                        let empty = Value::Other("an empty table".to_owned());
                        self.put(&name, empty, place, value.span())?;
                    }
                    self.read_table(&format!("{name}."), inner, place)?;
                }
                DeValue::Table(_) if keys::find(&name).is_none() => {
                    let near = keys::nearest_table(&name);
                    return Err(ConfigError::new(
                        place.at(&key.span()),
                        Some(&name),
                        Problem::UnknownTable { near },
                    ));
                }
                _ if keys::find(&name).is_none() && !keys::TABLES.contains(&name.as_str()) => {
                    return Err(unknown_key(&name, place.at(&key.span())));
                }
                given => self.put(&name, read_value(given), place, value.span())?,
            }
        }
        Ok(())
    }

    fn put(
        &mut self,
        name: &str,
        value: Value,
        place: &Place<'_>,
        span: Range<usize>,
    ) -> Result<(), ConfigError> {
        let origin = place.at(&span);
        if let Some(key) = keys::find(name) {
            self.insert(key.name, Entry { value, origin });
            return Ok(());
        }
        if !keys::TABLES.contains(&name) {
            return Err(unknown_key(name, origin));
        }
        Err(ConfigError::new(
            origin,
            Some(name),
            Problem::WrongType {
                expected: "a table",
                found: value.describe(),
            },
        ))
    }

    /// `console.output` and `console.output.file` are two ways to say one
    /// thing: the later one wins.
    fn insert(&mut self, name: &'static str, entry: Entry) {
        match name {
            "console.output" => self.0.remove("console.output.file"),
            "console.output.file" => self.0.remove("console.output"),
            _ => None,
        };
        self.0.insert(name, entry);
    }
}

fn unknown_key(name: &str, origin: Origin) -> ConfigError {
    ConfigError::new(
        origin,
        Some(name),
        Problem::UnknownKey {
            near: keys::nearest_key(name),
        },
    )
}

fn read_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(
                |_| Value::Other(format!("integer {number}")),
                Value::Integer,
            ),
        DeValue::Float(number) => Value::Other(format!("float {number}")),
        DeValue::Datetime(date) => Value::Other(format!("date {date}")),
        DeValue::Array(_) => Value::Other("an array".to_owned()),
        DeValue::Table(_) => Value::Other("a table".to_owned()),
    }
}

/// What spans are positions in.
enum Place<'a> {
    Text { text: &'a str, name: Arc<str> },
    Flag(Origin),
}

impl Place<'_> {
    fn at(&self, span: &Range<usize>) -> Origin {
        match self {
            Self::Text { text, name } => position(text, span.start, name),
            Self::Flag(origin) => origin.clone(),
        }
    }
}

/// Line and column of a byte offset; the end of the text if it is past it.
pub(super) fn position(text: &str, offset: usize, name: &Arc<str>) -> Origin {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = text.get(..end).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Origin::Text {
        name: Arc::clone(name),
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or("").chars().count() + 1,
    }
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
