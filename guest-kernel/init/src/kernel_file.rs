//! Small files of procfs and sysfs.

use std::fs;
use std::io;
use std::path::Path;

use crate::failure::StepError;

/// The file's text without surrounding white space.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, StepError> {
    let path = path.as_ref();
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|source| failed("read", path, source))
}

/// As [`read`], or `None` for whatever reason.
pub(crate) fn read_if_any(path: impl AsRef<Path>) -> Option<String> {
    read(path).ok()
}

/// Writes `text` in one call, as the kernel expects.
pub(crate) fn write(path: impl AsRef<Path>, text: &str) -> Result<(), StepError> {
    let path = path.as_ref();
    write_raw(path, text).map_err(|source| failed("write", path, source))
}

/// As [`write`], with the bare error.
pub(crate) fn write_raw(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    // Not `fs::write`: a file of the kernel must not be created or truncated.
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StepError {
    StepError::File {
        action,
        path: path.display().to_string(),
        source,
    }
}

/// A setting that gets its old value back when this is dropped.
#[derive(Debug)]
pub(crate) struct TemporarySetting {
    path: String,
    old: String,
}

impl TemporarySetting {
    /// Writes `value` to `path`, which holds a plain value or, with brackets,
    /// a choice (`always [madvise] never`).
    pub(crate) fn set(path: impl Into<String>, value: &str) -> Result<Self, StepError> {
        let path = path.into();
        let old = chosen(&read(&path)?).to_owned();
        write(&path, value)?;
        Ok(Self { path, old })
    }
}

impl Drop for TemporarySetting {
    fn drop(&mut self) {
        // Nothing can be done if the kernel no longer takes its own value.
        let _ = write(&self.path, &self.old);
    }
}

/// The word in brackets, or the whole text if there is none.
pub(crate) fn chosen(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bracketed_word_is_the_choice() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("17"), "17");
        assert_eq!(chosen("a ] b ["), "a ] b [");
    }

    #[test]
    fn a_temporary_setting_ends_with_its_scope() {
        let path = std::env::temp_dir().join(format!("guest-init-setting-{}", std::process::id()));
        fs::write(&path, "7\n").unwrap();
        let setting = TemporarySetting::set(path.to_str().unwrap(), "9").unwrap();
        let during = fs::read_to_string(&path).unwrap();
        drop(setting);
        let after = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // A regular file is not truncated; a file of the kernel is replaced.
        assert_eq!((during.as_str(), after.as_str()), ("9\n", "7\n"));
    }
}
