//! Where the pinned source comes from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::base::Base;
use super::debian;
use super::error::{KernelError, io};
use super::files::Dirs;
use super::hash;
use super::progress::Progress;
use super::tools;

/// A verified source of the pinned release.
pub(crate) struct Source {
    path: PathBuf,
    /// Of the tarball, or of the tree.
    pub(crate) sha256: String,
}

/// What the caller prefers, and vouches for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// A local tarball or tree; nothing else is tried.
    pub(crate) path: Option<PathBuf>,
    /// A hash to accept besides the pinned ones.
    pub(crate) sha256: Option<String>,
}

impl Wanted {
    fn accepted<'a>(&'a self, base: &'a Base) -> Vec<&'a str> {
        self.sha256
            .as_deref()
            .into_iter()
            .chain(base.pinned())
            .collect()
    }
}

/// Finds a source: the given one, or one fetched earlier, or one installed on
/// the system, or from the kernel archive, or from Debian.
pub(crate) fn find(
    dirs: &Dirs,
    base: &Base,
    wanted: &Wanted,
    progress: &Progress,
) -> Result<Source, KernelError> {
    if let Some(path) = &wanted.path {
        return given(path, base, wanted, progress);
    }

    let cache = dirs.out().join("sources");
    fs::create_dir_all(&cache).map_err(io("create", &cache))?;
    let debian_name = format!("{}.tar.xz", base.debian.package);
    let archive_name = base.kernel_archive.url.rsplit('/').next();
    let archive_name = archive_name.unwrap_or("linux.tar.xz");

    let local = [
        cache.join(archive_name),
        cache.join(&debian_name),
        // Where the package puts it when it is installed.
        Path::new("/usr/src").join(&debian_name),
    ];
    let mut tried = Vec::new();
    for path in local.into_iter().filter(|path| path.is_file()) {
        let sha256 = hash::file(&path)?;
        if wanted.accepted(base).contains(&sha256.as_str()) {
            progress.stage(&format!("source: {}, sha256 verified", path.display()));
            return Ok(Source { path, sha256 });
        }
        tried.push(format!("{} has another sha256", path.display()));
    }

    let archive = base.kernel_archive.tarball_sha256.as_deref();
    match archive.or(wanted.sha256.as_deref()) {
        None => tried.push("the kernel archive (no hash of its tarball is pinned)".to_owned()),
        Some(expected) => {
            progress.stage(&format!("source: fetching {}", base.kernel_archive.url));
            match download(
                &base.kernel_archive.url,
                &cache.join(archive_name),
                expected,
            ) {
                Ok(source) => return Ok(source),
                Err(error) => tried.push(format!("the kernel archive ({error})")),
            }
        }
    }

    progress.stage(&format!(
        "source: fetching {} {} from Debian {}",
        base.debian.package, base.debian.version, base.debian.suite
    ));
    match debian::fetch(dirs, &base.debian, &cache.join(&debian_name)) {
        Ok(path) => Ok(Source {
            path,
            sha256: base.debian.tarball_sha256.clone(),
        }),
        Err(error) => {
            tried.push(format!("Debian ({error})"));
            Err(KernelError::NoSource {
                tried: tried.join("; "),
            })
        }
    }
}

fn given(
    path: &Path,
    base: &Base,
    wanted: &Wanted,
    progress: &Progress,
) -> Result<Source, KernelError> {
    progress.stage(&format!("source: verifying {}", path.display()));
    let sha256 = if path.is_dir() {
        hash::tree(path)?
    } else {
        hash::file(path)?
    };
    verify(path, &sha256, &wanted.accepted(base))?;
    Ok(Source {
        path: path.to_owned(),
        sha256,
    })
}

fn verify(path: &Path, found: &str, accepted: &[&str]) -> Result<(), KernelError> {
    if accepted.contains(&found) {
        return Ok(());
    }
    Err(KernelError::WrongHash {
        path: path.to_owned(),
        found: found.to_owned(),
        expected: accepted.join(" "),
    })
}

fn download(url: &str, to: &Path, expected: &str) -> Result<Source, KernelError> {
    let part = to.with_extension("part");
    let mut command = if tools::has("curl") {
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--silent", "--show-error", "--location"])
            .args(["--connect-timeout", "15", "--output"]);
        curl
    } else {
        let mut wget = Command::new("wget");
        wget.args([
            "--quiet",
            "--connect-timeout=15",
            "--tries=2",
            "--output-document",
        ]);
        wget
    };
    tools::run(command.arg(&part).arg(url))?;
    let sha256 = hash::file(&part)?;
    verify(&part, &sha256, &[expected])?;
    fs::rename(&part, to).map_err(io("rename to", to))?;
    Ok(Source {
        path: to.to_owned(),
        sha256,
    })
}

impl Source {
    /// Puts a fresh copy of the tree into an empty directory, and checks that
    /// it is the pinned release.
    pub(crate) fn unpack(&self, into: &Path, base: &Base) -> Result<(), KernelError> {
        if self.path.is_dir() {
            let mut cp = Command::new("cp");
            cp.args([
                "--recursive",
                "--no-dereference",
                "--preserve=mode,timestamps",
            ])
            .arg(self.path.join("."))
            .arg(into);
            tools::run(&mut cp)?;
        } else {
            let mut tar = Command::new("tar");
            tar.args(["--extract", "--no-same-owner", "--strip-components=1"])
                .arg("--file")
                .arg(&self.path)
                .arg("--directory")
                .arg(into);
            tools::run(&mut tar)?;
        }

        let makefile = into.join("Makefile");
        let text = fs::read_to_string(&makefile).map_err(io("read", &makefile))?;
        let found = release(&text);
        if found != base.version {
            return Err(KernelError::WrongVersion {
                found,
                expected: base.version.clone(),
            });
        }
        Ok(())
    }
}

/// `VERSION.PATCHLEVEL.SUBLEVEL` of a kernel Makefile.
fn release(makefile: &str) -> String {
    let value = |name: &str| {
        let mut lines = makefile.lines().filter_map(|line| line.split_once('='));
        let line = lines.find(|(symbol, _)| symbol.trim() == name);
        line.map_or("?", |(_, value)| value.trim())
    };
    let parts = ["VERSION", "PATCHLEVEL", "SUBLEVEL"].map(value);
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(version: &str, tree_sha256: &str) -> Base {
        let zero = "0".repeat(64);
        toml::from_str(&format!(
            "version = '{version}'\n\
             [kernel-archive]\nurl = 'https://example.invalid/linux.tar.xz'\n\
             [debian]\npackage = 'p'\nsuite = 's'\nversion = 'v'\n\
             tarball-sha256 = '{zero}'\ntree-sha256 = '{tree_sha256}'\n"
        ))
        .unwrap()
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let makefile = "# x\nVERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\n";
        fs::write(dir.path().join("Makefile"), makefile).unwrap();
        dir
    }

    fn find_given(base: &Base, wanted: &Wanted) -> Result<Source, KernelError> {
        find(&Dirs::new("unused".into()), base, wanted, &Progress::new())
    }

    #[test]
    fn a_given_tree_is_verified_and_copied() {
        let tree = tree();
        let wanted = Wanted {
            path: Some(tree.path().to_owned()),
            sha256: None,
        };
        let base = base("7.3.4", &hash::tree(tree.path()).unwrap());
        let source = find_given(&base, &wanted).unwrap();

        let copy = tempfile::tempdir().unwrap();
        source.unpack(copy.path(), &base).unwrap();
        assert_eq!(hash::tree(copy.path()).unwrap(), source.sha256);
    }

    #[test]
    fn an_unknown_source_is_refused_unless_vouched_for() {
        let tree = tree();
        let base = base("7.3.4", &"1".repeat(64));
        let mut wanted = Wanted {
            path: Some(tree.path().to_owned()),
            sha256: None,
        };
        let error = find_given(&base, &wanted).err().unwrap();
        assert!(matches!(error, KernelError::WrongHash { .. }), "{error}");

        wanted.sha256 = Some(hash::tree(tree.path()).unwrap());
        assert!(find_given(&base, &wanted).is_ok());
    }

    #[test]
    fn another_release_is_refused() {
        let tree = tree();
        let base = base("7.3.5", &hash::tree(tree.path()).unwrap());
        let wanted = Wanted {
            path: Some(tree.path().to_owned()),
            sha256: None,
        };
        let source = find_given(&base, &wanted).unwrap();
        let copy = tempfile::tempdir().unwrap();
        let error = source.unpack(copy.path(), &base).unwrap_err().to_string();
        assert!(
            error.contains("7.3.4") && error.contains("7.3.5"),
            "{error}"
        );
    }
}
