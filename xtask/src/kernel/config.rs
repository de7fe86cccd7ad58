//! `guest-kernel/config`: fragments merged on top of tinyconfig.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use super::error::{KernelError, io};

/// One fragment file.
pub(crate) struct Fragment {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// All fragments of a build, in merge order: a later one overrides.
pub(crate) struct Fragments(Vec<Fragment>);

/// A symbol of a fragment that has another value in the final configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    symbol: String,
    wanted: String,
    found: String,
    fragment: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            symbol,
            wanted,
            found,
            fragment,
        } = self;
        write!(f, "{symbol}={wanted} ({fragment}) became {found}")
    }
}

impl Fragments {
    /// Reads all `*.config` in the directory, by name, and then the named ones
    /// of `optional/`.
    pub(crate) fn read(dir: &Path, optional: &[String]) -> Result<Self, KernelError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(io("list", dir))? {
            let entry = entry.map_err(io("list", dir))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".config") {
                names.push(name);
            }
        }
        names.sort();
        names.extend(optional.iter().map(|n| format!("optional/{n}.config")));

        let mut fragments = Vec::new();
        for name in names {
            let path = dir.join(&name);
            let text = fs::read_to_string(&path).map_err(io("read", &path))?;
            for line in text.lines().map(str::trim) {
                if !line.is_empty() && !line.starts_with('#') && setting(line).is_none() {
                    return Err(KernelError::BadFile {
                        path,
                        message: format!("'{line}' is not CONFIG_SYMBOL=value"),
                    });
                }
            }
            fragments.push(Fragment { name, text });
        }
        Ok(Self(fragments))
    }

    pub(crate) fn files(&self) -> &[Fragment] {
        &self.0
    }

    /// Each symbol with its last value and the fragment that gave it.
    fn settings(&self) -> BTreeMap<&str, (&str, &str)> {
        let mut settings = BTreeMap::new();
        for fragment in &self.0 {
            for (symbol, value) in fragment.text.lines().filter_map(setting) {
                settings.insert(symbol, (value, fragment.name.as_str()));
            }
        }
        settings
    }

    /// A configuration for `make olddefconfig`: the base, and behind it our
    /// settings, since of a choice with two members set Kconfig takes the last.
    pub(crate) fn merge(&self, base: &str, local_version: &str) -> String {
        let settings = self.settings();
        let local_version = format!("\"{local_version}\"");
        let version = [
            ("CONFIG_LOCALVERSION", local_version.as_str()),
            ("CONFIG_LOCALVERSION_AUTO", "n"),
        ];
        let is_ours = |symbol: &str| {
            settings.contains_key(symbol) || version.iter().any(|(name, _)| *name == symbol)
        };
        let base = base.lines().filter_map(setting);
        let base = base.filter(|(symbol, _)| !is_ours(symbol));
        let ours = settings
            .iter()
            .map(|(symbol, (value, _))| (*symbol, *value));

        let mut text = String::new();
        for (symbol, value) in base.chain(ours).chain(version) {
            // Writing to a String cannot fail.
            let _ = if value == "n" {
                writeln!(text, "# {symbol} is not set")
            } else {
                writeln!(text, "{symbol}={value}")
            };
        }
        text
    }

    /// Compares with what Kconfig made of it: a symbol whose dependencies are
    /// not met is dropped there without a word.
    pub(crate) fn verify(&self, last: &str) -> Result<(), KernelError> {
        let last: BTreeMap<&str, &str> = last.lines().filter_map(setting).collect();
        let mut lost = Vec::new();
        for (symbol, (wanted, fragment)) in self.settings() {
            let found = last.get(symbol).copied().unwrap_or("n");
            if found != wanted {
                lost.push(Lost {
                    symbol: symbol.to_owned(),
                    wanted: wanted.to_owned(),
                    found: found.to_owned(),
                    fragment: fragment.to_owned(),
                });
            }
        }
        if lost.is_empty() {
            Ok(())
        } else {
            Err(KernelError::LostSymbols(lost))
        }
    }
}

/// `CONFIG_X=value`, or `# CONFIG_X is not set`, which is the value `n`.
fn setting(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if let Some(comment) = line.strip_prefix("# ") {
        let symbol = comment.strip_suffix(" is not set")?;
        return symbol.starts_with("CONFIG_").then_some((symbol, "n"));
    }
    let (symbol, value) = line.split_once('=')?;
    symbol.starts_with("CONFIG_").then_some((symbol, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(files: &[(&str, &str)]) -> Fragments {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Fragments::read(dir.path(), &[]).unwrap()
    }

    #[test]
    fn a_later_fragment_overrides_an_earlier_one_and_the_base() {
        let merged = fragments(&[
            ("10.config", "CONFIG_A=y\nCONFIG_B=1\n"),
            ("20.config", "# CONFIG_A is not set\nCONFIG_C=n\n"),
        ])
        .merge("CONFIG_B=0\nCONFIG_C=y\nCONFIG_D=y\n", "-x");
        assert_eq!(
            merged,
            "CONFIG_D=y\n# CONFIG_A is not set\nCONFIG_B=1\n# CONFIG_C is not set\n\
             CONFIG_LOCALVERSION=\"-x\"\n# CONFIG_LOCALVERSION_AUTO is not set\n"
        );
    }

    #[test]
    fn every_symbol_that_did_not_survive_is_listed() {
        let fragments = fragments(&[("a.config", "CONFIG_A=y\nCONFIG_B=n\nCONFIG_C=4\n")]);
        let kept = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=4\n";
        assert!(fragments.verify(kept).is_ok());
        assert!(fragments.verify("CONFIG_A=y\nCONFIG_C=4\n").is_ok());

        let error = fragments.verify("CONFIG_B=y\nCONFIG_C=8\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the configuration lost 3 symbols of the fragments:\n  \
             CONFIG_A=y (a.config) became n\n  \
             CONFIG_B=n (a.config) became y\n  \
             CONFIG_C=4 (a.config) became 8"
        );
    }

    #[test]
    fn a_line_that_is_no_setting_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.config"), "CONFG_A=y\n").unwrap();
        let error = Fragments::read(dir.path(), &[]).err().unwrap().to_string();
        assert!(error.contains("'CONFG_A=y'"), "{error}");
    }
}
