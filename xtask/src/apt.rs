//! Debian packages through an apt configuration of our own: its lists and cache
//! lie in an ignored folder, only mirror and keyring are the system's, so nothing
//! about the system's own package management changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::command::{output, run};
use crate::mirror::mirror;

/// An isolated apt that knows one suite.
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Prepares it in `folder` and reads the package lists of `suite`.
    pub(crate) fn open(folder: &Path, suite: &str) -> Result<Self, Failure> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let apt = Self {
            folder: folder.to_path_buf(),
        };
        let dir = folder.display();
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("sources.list"), mirror()?.line(suite))?;
        fs::write(
            apt.configuration(),
            format!(
                "Dir::Etc::sourcelist \"{dir}/sources.list\";\n\
                 Dir::Etc::sourceparts \"-\";\n\
                 Dir::State::lists \"{dir}/lists\";\n\
                 Dir::State::status \"{dir}/status\";\n\
                 Dir::Cache \"{dir}/cache\";\n\
                 APT::Sandbox::User \"root\";\n"
            ),
        )?;
        run(apt
            .command("apt-get")
            .args(["-qq", "update", "--error-on=any"]))?;
        Ok(apt)
    }

    /// The packages whose names match `pattern`, a regular expression.
    pub(crate) fn names(&self, pattern: &str) -> Result<Vec<String>, Failure> {
        let mut search = self.command("apt-cache");
        let found = output(search.args(["search", "--names-only", pattern]))?;
        let first_words = found.lines().filter_map(|line| line.split(' ').next());
        Ok(first_words.map(String::from).collect())
    }

    /// Downloads `package` (or `package=version`), verified by apt; the file.
    pub(crate) fn download(&self, package: &str) -> Result<PathBuf, Failure> {
        let into = self.folder.join("download");
        if into.exists() {
            fs::remove_dir_all(&into)?;
        }
        fs::create_dir(&into)?;
        let mut get = self.command("apt-get");
        run(get.args(["-qq", "download", package]).current_dir(&into))?;
        let file = fs::read_dir(&into)?
            .flatten()
            .map(|entry| entry.path())
            .next();
        file.ok_or_else(|| format!("apt-get downloaded nothing for {package}").into())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.configuration());
        command
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("apt.conf")
    }
}
