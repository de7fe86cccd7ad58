//! Debian's source package, fetched by apt without touching the system's apt.
//!
//! The package usually lives in another suite than the system's own. So apt
//! runs with lists, cache and sources of its own below `out/`; mirror and
//! keyring are those the system already uses.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::base::Debian;
use super::error::{KernelError, io};
use super::files::Dirs;
use super::hash;
use super::tools;

const SOURCES_LIST: &str = "/etc/apt/sources.list";
const SOURCES_PARTS: &str = "/etc/apt/sources.list.d";

/// Fetches the package and takes the verified tarball out of it.
pub(crate) fn fetch(dirs: &Dirs, debian: &Debian, to: &Path) -> Result<PathBuf, KernelError> {
    let mirror = mirror()?;
    let scratch = dirs.scratch("apt")?;
    let root = scratch.path();
    for dir in ["lists/partial", "cache/archives/partial"] {
        let dir = root.join(dir);
        fs::create_dir_all(&dir).map_err(io("create", &dir))?;
    }
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::write(&path, text).map_err(io("write", path))
    };
    write("status", "")?;
    write("sources.list", &mirror.line(&debian.suite))?;
    let dir = root.display();
    write(
        "apt.conf",
        &format!(
            "Dir::Etc::sourcelist \"{dir}/sources.list\";\n\
             Dir::Etc::sourceparts \"-\";\n\
             Dir::State::lists \"{dir}/lists\";\n\
             Dir::State::status \"{dir}/status\";\n\
             Dir::Cache \"{dir}/cache\";\n\
             APT::Sandbox::User \"root\";\n"
        ),
    )?;

    let apt = || {
        let mut command = Command::new("apt-get");
        command
            .arg("-qq")
            .env("APT_CONFIG", root.join("apt.conf"))
            .current_dir(root);
        command
    };
    tools::run(apt().args(["update", "--error-on=any"]))?;
    let package = format!("{}={}", debian.package, debian.version);
    tools::run(apt().args(["download", &package]))?;

    let deb = only_deb(root)?;
    let part = to.with_extension("part");
    extract(&deb, debian, &part)?;
    let found = hash::file(&part)?;
    if found != debian.tarball_sha256 {
        return Err(KernelError::WrongHash {
            path: part,
            found,
            expected: debian.tarball_sha256.clone(),
        });
    }
    fs::rename(&part, to).map_err(io("rename to", to))?;
    Ok(to.to_owned())
}

fn only_deb(dir: &Path) -> Result<PathBuf, KernelError> {
    for entry in fs::read_dir(dir).map_err(io("list", dir))? {
        let path = entry.map_err(io("list", dir))?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            return Ok(path);
        }
    }
    Err(KernelError::BadFile {
        path: dir.to_owned(),
        message: "apt-get left no package here".to_owned(),
    })
}

/// `dpkg-deb --fsys-tarfile | tar --extract --to-stdout`.
fn extract(deb: &Path, debian: &Debian, to: &Path) -> Result<(), KernelError> {
    let file = File::create(to).map_err(io("create", to))?;
    let mut unpack = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io("run", "dpkg-deb"))?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--to-stdout"])
        .arg(format!("./usr/src/{}.tar.xz", debian.package))
        .stdout(file);
    if let Some(pipe) = unpack.stdout.take() {
        tar.stdin(pipe);
    }
    let output = tar.output().map_err(io("run", "tar"))?;
    let unpacked = unpack.wait().map_err(io("wait for", "dpkg-deb"))?;
    if output.status.success() && unpacked.success() {
        return Ok(());
    }
    Err(tools::failed(&tar, &output))
}

/// A Debian archive this system trusts.
#[derive(Debug, PartialEq, Eq)]
struct Mirror {
    uri: String,
    keyring: Option<String>,
}

impl Mirror {
    fn line(&self, suite: &str) -> String {
        let keyring = self.keyring.as_ref();
        let option = keyring.map_or(String::new(), |path| format!("[signed-by={path}] "));
        format!("deb {option}{} {suite} main\n", self.uri)
    }
}

fn mirror() -> Result<Mirror, KernelError> {
    let mut files = vec![PathBuf::from(SOURCES_LIST)];
    if let Ok(entries) = fs::read_dir(SOURCES_PARTS) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    for path in files {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let found = match path.extension().and_then(|e| e.to_str()) {
            Some("list") => one_line_style(&text),
            Some("sources") => deb822_style(&text),
            _ => None,
        };
        if let Some(mirror) = found {
            return Ok(mirror);
        }
    }
    Err(KernelError::BadFile {
        path: SOURCES_LIST.into(),
        message: "names no Debian archive".to_owned(),
    })
}

/// The archive proper, not `debian-security` or another vendor's.
fn is_archive(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with("/debian")
}

fn one_line_style(text: &str) -> Option<Mirror> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let uri = rest.split_whitespace().next()?;
        let mut options = options.split_whitespace();
        let keyring = options.find_map(|option| option.strip_prefix("signed-by="));
        is_archive(uri).then(|| Mirror {
            uri: uri.to_owned(),
            keyring: keyring.map(str::to_owned),
        })
    })
}

fn deb822_style(text: &str) -> Option<Mirror> {
    let stanzas = text.split("\n\n");
    stanzas.into_iter().find_map(|stanza| {
        let field = |name: &str| {
            let mut lines = stanza.lines().filter_map(|line| line.split_once(':'));
            let line = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
            line.map(|(_, value)| value.trim())
        };
        let uri = field("URIs")?.split_whitespace().find(|u| is_archive(u))?;
        // A key may also be spelled out in the file; only paths can be reused.
        let keyring = field("Signed-By").filter(|value| value.starts_with('/'));
        Some(Mirror {
            uri: uri.to_owned(),
            keyring: keyring.map(str::to_owned),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_mirror_and_keyring_are_found() {
        let mirror = |keyring: Option<&str>| {
            Some(Mirror {
                uri: "http://mirror.example/debian".to_owned(),
                keyring: keyring.map(str::to_owned),
            })
        };
        let deb822 = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\n\
                      Suites: bookworm\nComponents: main\nSigned-By: /k/debian.gpg\n\n\
                      Types: deb\nURIs: http://mirror.example/debian-security\n";
        assert_eq!(deb822_style(deb822), mirror(Some("/k/debian.gpg")));

        let list = "# deb http://old.example/debian x main\n\
                    deb https://vendor.example/apt stable main\n\
                    deb [arch=amd64 signed-by=/k/d.gpg] http://mirror.example/debian x main\n";
        assert_eq!(one_line_style(list), mirror(Some("/k/d.gpg")));
        let list = "deb http://mirror.example/debian x main\n";
        assert_eq!(one_line_style(list), mirror(None));
        assert_eq!(
            one_line_style("deb https://vendor.example/apt x main\n"),
            None
        );
    }

    #[test]
    fn our_source_line_names_the_suite_and_the_keyring() {
        let mirror = Mirror {
            uri: "http://m/debian".to_owned(),
            keyring: Some("/k".to_owned()),
        };
        assert_eq!(
            mirror.line("s"),
            "deb [signed-by=/k] http://m/debian s main\n"
        );
    }
}
