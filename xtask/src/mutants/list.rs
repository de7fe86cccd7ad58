//! `guest-kernel/mutations.toml`: what is broken, and what has to notice.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Failure;
use crate::command::root;
use crate::matrix;

/// One line that is another one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutation {
    pub(crate) name: String,
    /// Below the kernel's source.
    pub(crate) file: String,
    /// A line above it, where `line` is there more than once: the first after this.
    #[serde(default)]
    after: Option<String>,
    /// The whole line, without the blanks at both ends.
    line: String,
    /// What stands there instead; empty to remove it.
    becomes: String,
    /// What has to fail.
    pub(crate) test: Test,
}

/// A test by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Test {
    /// `kunit:SUITE.CASE`
    Kunit(String),
    /// `boot:NAME`, as `cargo xtask test --boot` takes it.
    Boot(String),
    /// `matrix:ROW`, as `cargo xtask matrix --row` takes it.
    Matrix(String),
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("kunit", name)) if name.contains('.') => Ok(Self::Kunit(name.to_owned())),
            Some(("boot", name)) => Ok(Self::Boot(name.to_owned())),
            Some(("matrix", name)) if matrix::row(name).is_some() => {
                Ok(Self::Matrix(name.to_owned()))
            }
            _ => Err(format!(
                "`{text}` is neither kunit:SUITE.CASE, boot:NAME, nor matrix:ROW"
            )),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kunit(name) => write!(f, "kunit:{name}"),
            Self::Boot(name) => write!(f, "boot:{name}"),
            Self::Matrix(name) => write!(f, "matrix:{name}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutation: Vec<Mutation>,
}

/// All of them.
pub(crate) fn mutations() -> Result<Vec<Mutation>, Failure> {
    let path = root().join("guest-kernel/mutations.toml");
    let text = fs::read_to_string(&path)?;
    let list: List =
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(list.mutation)
}

impl Mutation {
    /// The content of the file with the mutation.
    pub(crate) fn broken(&self, tree: &Path) -> Result<String, Failure> {
        let path = tree.join(&self.file);
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.break_text(&text)
            .map_err(|error| format!("{} ({}): {error}", self.name, self.file).into())
    }

    fn break_text(&self, text: &str) -> Result<String, String> {
        let mut lines: Vec<&str> = text.lines().collect();
        let are = |wanted: &str| -> Vec<usize> {
            let all = lines.iter().enumerate();
            let same = all.filter(|(_, line)| line.trim() == wanted);
            same.map(|(at, _)| at).collect()
        };
        let begin = match &self.after {
            None => 0,
            Some(after) => match are(after).as_slice() {
                [at] => *at,
                found => return Err(format!("{} lines are `{after}`", found.len())),
            },
        };
        let mut found = are(&self.line);
        found.retain(|at| *at >= begin);
        let at = match (found.as_slice(), &self.after) {
            ([at], _) | ([at, ..], Some(_)) => *at,
            (found, _) => return Err(format!("{} lines are `{}`", found.len(), self.line)),
        };
        if let Some(line) = lines.get_mut(at) {
            *line = &self.becomes;
        }
        Ok(lines.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutation(after: &str, line: &str) -> Mutation {
        let after = (!after.is_empty()).then(|| after.to_owned());
        Mutation {
            name: "m".to_owned(),
            file: "f".to_owned(),
            after,
            line: line.to_owned(),
            becomes: "\tX".to_owned(),
            test: Test::Boot("b".to_owned()),
        }
    }

    #[test]
    fn one_line_is_replaced_and_it_has_to_be_clear_which() {
        let text = "a\n\tb\nc\n\tb\n";
        let broken = |after, line| mutation(after, line).break_text(text);
        assert_eq!(broken("", "c"), Ok("a\n\tb\n\tX\n\tb\n".to_owned()));
        assert_eq!(broken("a", "b"), Ok("a\n\tX\nc\n\tb\n".to_owned()));
        assert_eq!(broken("c", "b"), Ok("a\n\tb\nc\n\tX\n".to_owned()));
        for (after, line) in [("", "b"), ("", "d"), ("b", "c"), ("c", "a")] {
            assert!(broken(after, line).is_err(), "{after:?} {line:?}");
        }
    }

    #[test]
    fn the_list_is_well_formed() {
        let all = mutations().unwrap();
        let mut names: Vec<_> = all.iter().map(|mutation| &mutation.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "a name is there twice");
    }
}
