//! `guest-kernel/out/<key>/`: finished builds, and how one is known to be intact.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process;

use super::error::{KernelError, io};
use super::files::{Dirs, Scratch};
use super::hash;

/// The files of a build, in the order of the manifest.
const FILES: [&str; 3] = ["bzImage", "vmlinux", "config"];

/// Written last, into the directory that is then renamed into place: a build
/// without it, or whose files differ from it, does not count.
const MANIFEST: &str = "sha256sums";

/// The directory of a finished build with this key, if it is all there.
pub(crate) fn find(dirs: &Dirs, key: &str) -> Result<Option<PathBuf>, KernelError> {
    let dir = dirs.out().join(key);
    let Ok(manifest) = fs::read_to_string(dir.join(MANIFEST)) else {
        return Ok(None);
    };
    for name in FILES {
        let path = dir.join(name);
        if !path.is_file() || !manifest.contains(&line(name, &hash::file(&path)?)) {
            return Ok(None);
        }
    }
    Ok(Some(dir))
}

/// Completes a scratch directory that holds [`FILES`] and gives it its name.
pub(crate) fn put(dirs: &Dirs, key: &str, built: Scratch) -> Result<PathBuf, KernelError> {
    let mut manifest = String::new();
    for name in FILES {
        manifest.push_str(&line(name, &hash::file(&built.path().join(name))?));
    }
    hash::write_whole(&built.path().join(MANIFEST), manifest.as_bytes())?;

    let dir = dirs.out().join(key);
    if dir.exists() {
        // Damaged, or somebody else was faster; ours is known to be good.
        fs::remove_dir_all(&dir).map_err(io("remove", &dir))?;
    }
    built.publish(&dir)?;
    Ok(dir)
}

/// Points the stable names `out/bzImage` and `out/vmlinux` at this build.
pub(crate) fn select(dirs: &Dirs, key: &str) -> Result<(), KernelError> {
    for name in ["bzImage", "vmlinux"] {
        let link = dirs.out().join(name);
        let target = Path::new(key).join(name);
        if fs::read_link(&link).is_ok_and(|now| now == target) {
            continue;
        }
        let new = dirs.out().join(format!(".{name}-{}", process::id()));
        let _ = fs::remove_file(&new);
        symlink(&target, &new).map_err(io("create", &new))?;
        fs::rename(&new, &link).map_err(io("rename to", &link))?;
    }
    Ok(())
}

/// As `sha256sum --check` wants it.
fn line(name: &str, sha256: &str) -> String {
    format!("{sha256}  {name}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Damage = (&'static str, fn(&Path));

    fn built(root: &Path) -> (Dirs, PathBuf) {
        let dirs = Dirs::new(root.to_owned());
        let scratch = dirs.scratch("build").unwrap();
        for name in FILES {
            fs::write(scratch.path().join(name), name).unwrap();
        }
        let dir = put(&dirs, "key", scratch).unwrap();
        (dirs, dir)
    }

    #[test]
    fn a_finished_build_is_found_again() {
        let root = tempfile::tempdir().unwrap();
        let (dirs, dir) = built(root.path());
        assert_eq!(find(&dirs, "key").unwrap(), Some(dir));
        assert_eq!(find(&dirs, "other").unwrap(), None);
    }

    #[test]
    fn a_damaged_build_does_not_count() {
        let damages: [Damage; 4] = [
            ("changed", |d| fs::write(d.join("vmlinux"), "x").unwrap()),
            ("cut short", |d| fs::write(d.join("bzImage"), "bz").unwrap()),
            ("missing", |d| fs::remove_file(d.join("config")).unwrap()),
            ("no manifest", |d| {
                fs::remove_file(d.join(MANIFEST)).unwrap();
            }),
        ];
        for (what, damage) in damages {
            let root = tempfile::tempdir().unwrap();
            let (dirs, dir) = built(root.path());
            damage(&dir);
            assert_eq!(find(&dirs, "key").unwrap(), None, "{what}");
        }
    }

    #[test]
    fn the_stable_names_follow_the_selected_build() {
        let root = tempfile::tempdir().unwrap();
        let (dirs, _) = built(root.path());
        for key in ["older", "key", "key"] {
            select(&dirs, key).unwrap();
        }
        let text = fs::read_to_string(dirs.out().join("vmlinux")).unwrap();
        assert_eq!(text, "vmlinux");
    }

    #[test]
    fn an_abandoned_scratch_directory_is_swept() {
        let root = tempfile::tempdir().unwrap();
        let dirs = Dirs::new(root.path().to_owned());
        let mine = dirs.scratch("mine").unwrap();
        // Larger than any process id (pid_max is at most 2^22).
        let dead = dirs.out().join("tmp-build-99999999");
        fs::create_dir(&dead).unwrap();
        dirs.sweep().unwrap();
        assert!(mine.path().exists());
        assert!(!dead.exists());
    }
}
