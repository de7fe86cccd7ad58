//! Debian packages through an apt configuration of our own: its lists and cache
//! lie in an ignored folder, only the mirror and the keyring are the system's,
//! so nothing about the system's own package management changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::command::{output, run};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An isolated apt that knows some suites.
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Prepares it below `folder` and reads the package lists of `suites`.
    pub(crate) fn open(folder: &Path, suites: &[&str]) -> Result<Self, Failure> {
        if !Path::new(KEYRING).exists() {
            return Err(format!("not a Debian system: {KEYRING} is missing").into());
        }
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let mirror = mirror()?;
        let lines = suites
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"));
        fs::write(folder.join("sources.list"), lines.collect::<String>())?;
        fs::write(folder.join("status"), "")?;
        let apt = Self {
            folder: folder.to_path_buf(),
        };
        run(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    /// The packages whose names match `pattern` (a regular expression), sorted.
    pub(crate) fn names(&self, pattern: &str) -> Result<Vec<String>, Failure> {
        let mut search = self.command("apt-cache");
        let found = output(search.args(["search", "--names-only", pattern]))?;
        let first_words = found.lines().filter_map(|line| line.split(' ').next());
        Ok(first_words.map(String::from).collect())
    }

    /// Downloads `package`, as apt verifies it, and returns the file.
    pub(crate) fn download(&self, package: &str) -> Result<PathBuf, Failure> {
        let into = self.folder.join("download");
        let _ = fs::remove_dir_all(&into);
        fs::create_dir_all(&into)?;
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
        let folder = self.folder.display();
        for option in [
            format!("Dir::Etc::sourcelist={folder}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::lists={folder}/lists"),
            format!("Dir::State::status={folder}/status"),
            format!("Dir::Cache={folder}/cache"),
            // As root apt would download as another user, who cannot write here.
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }
}

/// The mirror the system itself uses, from either form of its sources.
fn mirror() -> Result<String, Failure> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten();
    files.extend(parts.flatten().map(|entry| entry.path()));
    files.retain(|file| {
        let ending = file.extension().unwrap_or_default();
        ending == "list" || ending == "sources"
    });
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    let found = texts.filter_map(|text| mirror_of(&text)).next();
    found.ok_or_else(|| "no Debian mirror in /etc/apt/sources.list*".into())
}

/// The first archive of Debian itself (not of its security updates) in `text`.
fn mirror_of(text: &str) -> Option<String> {
    let lines = text.lines().map(str::trim);
    let words = lines.filter_map(|line| {
        let rest = line
            .strip_prefix("URIs:")
            .or_else(|| line.strip_prefix("deb "))?;
        rest.split_whitespace().find(|word| word.contains("://"))
    });
    let mut archives = words.map(|uri| uri.trim_end_matches('/'));
    archives
        .find(|uri| uri.ends_with("/debian"))
        .map(String::from)
}

#[cfg(test)]
mod tests {
    use super::mirror_of;

    #[test]
    fn the_mirror_is_found_in_both_forms_of_sources() {
        let deb822 = "Types: deb\nURIs: http://mirror.example/debian-security\n\n\
                      Types: deb\nURIs: http://mirror.example/debian/\nSuites: x\n";
        let one_line = "# a comment\ndeb [arch=amd64] https://mirror.example/debian x main\n";
        assert_eq!(
            mirror_of(deb822).as_deref(),
            Some("http://mirror.example/debian")
        );
        assert_eq!(
            mirror_of(one_line).as_deref(),
            Some("https://mirror.example/debian")
        );
        assert_eq!(mirror_of("deb http://mirror.example/other x main"), None);
    }
}
