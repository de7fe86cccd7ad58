//! From a file and the command line to a checked configuration.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::entries::{Entries, position};
use super::error::{ConfigError, Origin, Problem};
use super::named_files;
use super::read_key::Checker;
use super::schema::Config;
use crate::named_pipe;

/// Set to 1 in the environment of tests that inject faults.
pub const TEST_FAULTS: &str = "AEROSTAT_TEST_FAULTS";

/// No configuration is larger; guards against reading a disk by mistake.
const MAX_BYTES: u64 = 1 << 20;

/// What the command line says on top of the file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--set KEY=VALUE`, in order; later ones win.
    pub sets: Vec<String>,
    /// Paths given by a flag of their own: key, flag, path. They win over `sets`.
    pub paths: Vec<(&'static str, &'static str, String)>,
}

/// A checked configuration that still knows where each value came from.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// One line for each key that was given and changes nothing.
    pub warnings: Vec<String>,
    entries: Entries,
    document: Origin,
}

impl Loaded {
    /// Reads and checks a file; nothing but the file itself has to exist.
    ///
    /// # Errors
    /// The file cannot be read, or something in it or in `overrides` is wrong.
    pub fn from_file(path: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let name = named_files::shown(path);
        let text = read(path, &Arc::from(name.as_str()))?;
        let here = std::env::current_dir().unwrap_or_default();
        let base = here.join(path.parent().unwrap_or(Path::new("")));
        Self::from_text(&text, &name, (&base, &here), overrides, test_faults())
    }

    /// `bases`: where relative paths of the text and of the flags start.
    fn from_text(
        text: &str,
        name: &str,
        bases: (&Path, &Path),
        overrides: &Overrides,
        test_faults: bool,
    ) -> Result<Self, ConfigError> {
        let mut entries = Entries::default();
        entries.read_text(text, name)?;
        for assignment in &overrides.sets {
            entries.read_assignment("--set", assignment)?;
        }
        for (key, flag, path) in &overrides.paths {
            entries.put_path(key, flag, path);
        }
        let document = Origin::File(Arc::from(name));
        let mut checker = Checker {
            entries: &entries,
            document: document.clone(),
            file_base: bases.0,
            flag_base: bases.1,
            test_faults,
            warnings: Vec::new(),
        };
        let config = checker.config()?;
        let warnings = checker.warnings;
        Ok(Self {
            config,
            warnings,
            entries,
            document,
        })
    }

    /// Checks that the files it names can be used.
    ///
    /// # Errors
    /// The first file that cannot.
    pub fn check_named_files(&self) -> Result<(), ConfigError> {
        named_files::check(&self.config, &self.entries, &self.document)
    }

    /// The merged configuration as TOML, each value with where it came from.
    #[must_use]
    pub fn to_toml_with_origins(&self) -> String {
        self.config.to_toml_with_origins(&self.entries)
    }

    /// An error about a key whose file turned out to be unusable later.
    #[must_use]
    pub fn named_file_error(&self, key: &'static str, path: &Path, reason: String) -> ConfigError {
        let entry = self.entries.get(key);
        ConfigError::new(
            entry.map_or_else(|| self.document.clone(), |entry| entry.origin.clone()),
            Some(key),
            Problem::NamedFile {
                path: named_files::shown(path),
                reason,
            },
        )
    }

    fn into_config(self) -> Config {
        for warning in &self.warnings {
            log::warn!("{warning}");
        }
        self.config
    }
}

/// Reads a file, applies `--set KEY=VALUE` assignments, checks everything, the
/// files it names included, and logs a warning for each key without effect.
///
/// # Errors
/// The first thing that is wrong.
pub fn load(path: &Path, sets: &[String]) -> Result<Config, ConfigError> {
    let loaded = Loaded::from_file(path, &overrides(sets))?;
    loaded.check_named_files()?;
    Ok(loaded.into_config())
}

/// As [`load`], from text that came from `origin_name`; relative paths in it
/// start at `base_dir`. The files it names need not exist.
///
/// # Errors
/// The first thing that is wrong.
pub fn load_str(
    text: &str,
    origin_name: &str,
    base_dir: &Path,
    sets: &[String],
) -> Result<Config, ConfigError> {
    let bases = (base_dir, Path::new(""));
    let loaded = Loaded::from_text(text, origin_name, bases, &overrides(sets), test_faults())?;
    Ok(loaded.into_config())
}

/// Reads what [`Config::to_toml`] wrote. Injected faults are accepted: whoever
/// wrote it had to be allowed to.
///
/// # Errors
/// It is not such a text.
pub fn from_merged(text: &str) -> Result<Config, ConfigError> {
    let bases = (Path::new(""), Path::new(""));
    let none = Overrides::default();
    Ok(Loaded::from_text(text, "merged configuration", bases, &none, true)?.into_config())
}

fn overrides(sets: &[String]) -> Overrides {
    Overrides {
        sets: sets.to_vec(),
        paths: Vec::new(),
    }
}

fn test_faults() -> bool {
    std::env::var_os(TEST_FAULTS).is_some_and(|value| value == "1")
}

fn read(path: &Path, name: &Arc<str>) -> Result<String, ConfigError> {
    let unreadable = |reason: String| {
        ConfigError::new(
            Origin::File(Arc::clone(name)),
            None,
            Problem::Unreadable(reason),
        )
    };
    let from_io = |error: &std::io::Error| unreadable(named_files::reason(error));
    let file =
        named_pipe::open(OpenOptions::new().read(true), path).map_err(|error| from_io(&error))?;
    if file.metadata().map_err(|error| from_io(&error))?.is_dir() {
        return Err(unreadable(
            "is a directory, not a configuration file".to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| from_io(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(format!(
            "is larger than {MAX_BYTES} bytes; not a configuration file"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or(&[]));
        ConfigError::new(
            position(&text, valid, name),
            None,
            Problem::Unreadable("is not UTF-8 text".to_owned()),
        )
    })
}
