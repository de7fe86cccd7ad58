//! SHA-256 of files and of whole source trees.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::{KernelError, io};

/// A SHA-256 in the making.
#[derive(Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    /// Adds a field so that no two sequences of fields hash alike.
    pub(crate) fn field(&mut self, name: &str, content: &[u8]) {
        self.0.update(name.as_bytes());
        self.0.update([0]);
        self.0.update((content.len() as u64).to_le_bytes());
        self.0.update(content);
    }

    /// The digest in lower-case hexadecimal.
    pub(crate) fn finish(self) -> String {
        let mut hex = String::with_capacity(64);
        for byte in self.0.finalize() {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }

    fn stream(&mut self, path: &Path) -> Result<(), KernelError> {
        let mut file = File::open(path).map_err(io("open", path))?;
        let mut buffer = vec![0; 1 << 18];
        loop {
            let n = file.read(&mut buffer).map_err(io("read", path))?;
            match buffer.get(..n) {
                None | Some([]) => return Ok(()),
                Some(bytes) => self.0.update(bytes),
            }
        }
    }
}

/// SHA-256 of the content of one file.
pub(crate) fn file(path: &Path) -> Result<String, KernelError> {
    let mut hasher = Hasher::default();
    hasher.stream(path)?;
    Ok(hasher.finish())
}

/// SHA-256 of a source tree: names, contents, symbolic links and executable
/// bits of everything in it, except a `.git` at its top. Not times and owners.
pub(crate) fn tree(root: &Path) -> Result<String, KernelError> {
    let mut hasher = Hasher::default();
    directory(root, root, &mut hasher)?;
    Ok(hasher.finish())
}

fn directory(root: &Path, dir: &Path, hasher: &mut Hasher) -> Result<(), KernelError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).map_err(io("list", dir))? {
        entries.push(entry.map_err(io("list", dir))?);
    }
    entries.sort_by_key(fs::DirEntry::file_name);

    for entry in entries {
        let path = entry.path();
        if dir == root && entry.file_name() == ".git" {
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path);
        let meta = fs::symlink_metadata(&path).map_err(io("inspect", &path))?;
        if meta.is_dir() {
            directory(root, &path, hasher)?;
        } else if meta.is_symlink() {
            let target = fs::read_link(&path).map_err(io("read", &path))?;
            hasher.field("link", name.as_os_str().as_bytes());
            hasher.field("target", target.as_os_str().as_bytes());
        } else {
            let executable = meta.permissions().mode() & 0o100 != 0;
            hasher.field(
                if executable { "program" } else { "file" },
                name.as_os_str().as_bytes(),
            );
            hasher.field("length", &meta.len().to_le_bytes());
            hasher.stream(&path)?;
        }
    }
    Ok(())
}

/// Writes `content` so that a reader sees all of it or nothing.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), KernelError> {
    let mut file = File::create(path).map_err(io("create", path))?;
    file.write_all(content).map_err(io("write", path))?;
    file.sync_all().map_err(io("sync", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    type Change = (&'static str, fn(&Path));

    fn sample(root: &Path) {
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/one"), "1").unwrap();
        fs::write(root.join("a/b/two"), "22").unwrap();
        symlink("one", root.join("a/link")).unwrap();
    }

    #[test]
    fn file_hash_is_plain_sha256() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            file(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn equal_trees_hash_alike_wherever_they_are() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sample(one.path());
        sample(two.path());
        fs::create_dir(two.path().join(".git")).unwrap();
        fs::write(two.path().join(".git/HEAD"), "x").unwrap();
        assert_eq!(tree(one.path()).unwrap(), tree(two.path()).unwrap());
    }

    #[test]
    fn every_kind_of_change_changes_the_tree_hash() {
        let changes: [Change; 6] = [
            ("content", |r| fs::write(r.join("a/one"), "2").unwrap()),
            ("name", |r| {
                fs::rename(r.join("a/one"), r.join("a/uno")).unwrap();
            }),
            ("new file", |r| fs::write(r.join("new"), "").unwrap()),
            ("removed file", |r| {
                fs::remove_file(r.join("a/b/two")).unwrap();
            }),
            ("link target", |r| {
                fs::remove_file(r.join("a/link")).unwrap();
                symlink("b/two", r.join("a/link")).unwrap();
            }),
            ("executable bit", |r| {
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(r.join("a/one"), mode).unwrap();
            }),
        ];
        for (what, change) in changes {
            let dir = tempfile::tempdir().unwrap();
            sample(dir.path());
            let before = tree(dir.path()).unwrap();
            change(dir.path());
            assert_ne!(before, tree(dir.path()).unwrap(), "{what}");
        }
    }
}
