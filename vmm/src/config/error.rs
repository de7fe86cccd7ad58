//! What is wrong with a configuration: one line with the place, the key, the
//! value and the fix.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// Where a value, or the lack of one, was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A place in a file; line and column count characters from 1.
    Text {
        /// The file as the user named it.
        name: Arc<str>,
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// A file as a whole.
    File(Arc<str>),
    /// A flag on the command line, as given.
    Flag(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Self::File(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A configuration that cannot be used; displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{origin}: {}{problem}", key.as_ref().map(|key| format!("key `{key}`: ")).unwrap_or_default())]
pub struct ConfigError {
    /// Where.
    pub origin: Origin,
    /// The key it is about, dotted.
    pub key: Option<String>,
    /// What is wrong.
    pub problem: Box<Problem>,
}

impl ConfigError {
    /// `key` may be anything a user typed.
    pub(super) fn new(origin: Origin, key: Option<&str>, problem: Problem) -> Self {
        let key = key.map(|key| key.escape_debug().to_string());
        let problem = Box::new(problem);
        Self {
            origin,
            key,
            problem,
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// The file cannot be read, or is not text.
    #[error("{0}")]
    Unreadable(String),
    /// It is not TOML.
    #[error("not TOML: {0}")]
    Syntax(String),
    /// `--set` without `=`, or with an empty key.
    #[error("expected --set KEY=VALUE, such as --set memory.page=1G")]
    NotAnAssignment,
    /// No such key.
    #[error("unknown key; {}", suggestion(*near))]
    UnknownKey {
        /// The nearest valid key or table.
        near: Option<&'static str>,
    },
    /// No such table.
    #[error("unknown table; {}", suggestion(*near))]
    UnknownTable {
        /// The nearest valid key or table.
        near: Option<&'static str>,
    },
    /// A required key is not there.
    #[error("missing; {0}")]
    Missing(&'static str),
    /// A value of another type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// What the key takes.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// The type is right, the value is not.
    #[error("{value} is not allowed; allowed: {allowed}")]
    NotAllowed {
        /// The value as written.
        value: String,
        /// All allowed values, or their range.
        allowed: String,
    },
    /// Guest RAM is not a whole number of backing pages.
    #[error("{size} is not a multiple of the {page} page; nearest: {nearest}")]
    NotAMultiple {
        /// The size asked for.
        size: String,
        /// The backing page.
        page: &'static str,
        /// The valid sizes around it.
        nearest: String,
    },
    /// Two keys that exclude each other.
    #[error("{0}")]
    Conflict(String),
    /// A file that is named and cannot be used.
    #[error("{path}: {reason}")]
    NamedFile {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
}

fn suggestion(near: Option<&str>) -> String {
    near.map_or_else(
        || "configs/README.md lists the valid ones".to_owned(),
        |near| format!("did you mean `{near}`?"),
    )
}
