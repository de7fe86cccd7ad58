//! The file a results document goes into: known to be writable before the guest
//! boots, and never seen half written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::forced_exit::{Registration, on_forced_exit};
use crate::named_pipe;

/// A results file that is not there yet.
#[derive(Debug)]
pub struct ResultsFile {
    file: File,
    /// Absent for what cannot be replaced, such as a pipe or `/dev/stdout`.
    temporary: Option<Temporary>,
}

#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    target: PathBuf,
    _forced: Registration,
}

impl ResultsFile {
    /// Prepares to write `path`; what is there stays until [`Self::write`].
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        // A link stays a link: what it points to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(metadata) if !metadata.is_file() => Ok(Self {
                file: named_pipe::open(OpenOptions::new().write(true), &target)?,
                temporary: None,
            }),
            _ => Self::beside(target),
        }
    }

    fn beside(target: PathBuf) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", process::id()));
        let path = target.with_file_name(hidden);
        let file = File::create(&path)?;
        let forced = path.clone();
        let temporary = Temporary {
            _forced: on_forced_exit(move || drop(fs::remove_file(forced))),
            path,
            target,
        };
        Ok(Self {
            file,
            temporary: Some(temporary),
        })
    }

    /// Writes the document and puts it in its place.
    ///
    /// # Errors
    /// The errors of writing and renaming; what was there before is then kept.
    pub fn write(mut self, document: &str) -> io::Result<()> {
        self.file.write_all(document.as_bytes())?;
        match &self.temporary {
            Some(temporary) => fs::rename(&temporary.path, &temporary.target),
            None => Ok(()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is none; no harm in asking.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of its own for each test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("aerostat-{name}-{}", process::id()));
            fs::create_dir_all(&path).expect("directory");
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("directory");
            let mut names: Vec<_> = entries
                .map(|entry| {
                    entry
                        .expect("entry")
                        .file_name()
                        .into_string()
                        .expect("UTF-8")
                })
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_old_document_stays_until_the_new_one_is_whole() {
        let directory = Directory::new("replace");
        let path = directory.0.join("r.json");
        fs::write(&path, "old").expect("file");
        let results = ResultsFile::create(&path).expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("file"), "old");
        results.write("new").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("file"), "new");
        assert_eq!(directory.names(), ["r.json"]);
    }

    #[test]
    fn a_run_that_writes_nothing_leaves_nothing() {
        let directory = Directory::new("nothing");
        drop(ResultsFile::create(&directory.0.join("r.json")).expect("writable"));
        assert_eq!(directory.names(), Vec::<String>::new());
    }

    #[test]
    fn a_link_stays_a_link() {
        let directory = Directory::new("link");
        fs::write(directory.0.join("real"), "old").expect("file");
        symlink("real", directory.0.join("link")).expect("link");
        let results = ResultsFile::create(&directory.0.join("link")).expect("writable");
        results.write("new").expect("written");
        assert_eq!(
            fs::read_to_string(directory.0.join("real")).expect("file"),
            "new"
        );
        assert!(directory.0.join("link").is_symlink());
    }

    #[test]
    fn what_cannot_be_written_is_known_at_once() {
        let directory = Directory::new("refused");
        let error = |path: &Path| ResultsFile::create(path).expect_err("refused").kind();
        assert_eq!(error(&directory.0), io::ErrorKind::IsADirectory);
        assert_eq!(
            error(&directory.0.join("no/r.json")),
            io::ErrorKind::NotFound
        );
        ResultsFile::create(Path::new("/dev/null"))
            .expect("a device")
            .write("x")
            .expect("written");
    }
}
