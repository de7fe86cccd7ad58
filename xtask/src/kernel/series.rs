//! `guest-kernel/patches`: our changes to the kernel, in the order of `series`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::error::{KernelError, io};
use super::tools;

/// One patch, read when the build starts.
pub(crate) struct Patch {
    /// Path below `patches/`.
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    /// What fails without it, by name; see `patches/series`.
    pub(crate) tests: Vec<String>,
}

/// All patches in order.
pub(crate) struct Series(Vec<Patch>);

impl Series {
    /// Reads `series` and the files it names. A patch file that it does not
    /// name is an error: it would silently not be applied.
    pub(crate) fn read(dir: &Path) -> Result<Self, KernelError> {
        let list = dir.join("series");
        let text = fs::read_to_string(&list).map_err(io("read", &list))?;
        let mut patches = Vec::new();
        for line in text.lines() {
            let (name, tests) = line.split_once('#').unwrap_or((line, ""));
            let name = name.trim();
            if name.is_empty() {
                continue;
            }
            let path = dir.join(name);
            patches.push(Patch {
                name: name.to_owned(),
                content: fs::read(&path).map_err(io("read", &path))?,
                tests: tests.split_whitespace().map(str::to_owned).collect(),
            });
        }

        for topic in fs::read_dir(dir).map_err(io("list", dir))? {
            let topic = topic.map_err(io("list", dir))?.path();
            if !topic.is_dir() {
                continue;
            }
            for file in fs::read_dir(&topic).map_err(io("list", &topic))? {
                let path = file.map_err(io("list", &topic))?.path();
                let name = path.strip_prefix(dir).unwrap_or(&path);
                let name = name.to_string_lossy();
                if name.ends_with(".patch") && !patches.iter().any(|p| p.name == name) {
                    return Err(KernelError::BadFile {
                        path: list,
                        message: format!("does not name {name}"),
                    });
                }
            }
        }
        Ok(Self(patches))
    }

    pub(crate) fn patches(&self) -> &[Patch] {
        &self.0
    }

    /// The subject of a patch, without `[PATCH]`.
    pub(crate) fn subject(patch: &Patch) -> String {
        subject(&String::from_utf8_lossy(&patch.content))
    }

    /// Applies all patches to an unpacked tree. Lines may have moved, but no
    /// context may differ.
    pub(crate) fn apply(&self, tree: &Path, scratch: &Path) -> Result<(), KernelError> {
        let input = scratch.join("patch");
        for patch in &self.0 {
            fs::write(&input, &patch.content).map_err(io("write", &input))?;
            let mut command = Command::new("patch");
            command
                .args(["--strip=1", "--forward", "--batch", "--fuzz=0"])
                .arg("--no-backup-if-mismatch")
                .arg("--input")
                .arg(&input)
                .arg("--directory")
                .arg(tree)
                .stdin(Stdio::null());
            let output = command.output().map_err(io("run", "patch"))?;
            if !output.status.success() {
                return Err(KernelError::Patch {
                    patch: patch.name.clone(),
                    output: tools::tail(&String::from_utf8_lossy(&output.stdout), 15),
                });
            }
        }
        Ok(())
    }
}

/// The subject in the header of a mail, without `[PATCH]`.
pub(crate) fn subject(mail: &str) -> String {
    let mut lines = mail
        .lines()
        .skip_while(|line| !line.starts_with("Subject: "));
    let first = lines.next().unwrap_or_default();
    let folded = lines.take_while(|line| line.starts_with(' '));
    let whole: String = std::iter::once(first).chain(folded).collect();
    let subject = whole.trim_start_matches("Subject: ");
    let tagged = subject.strip_prefix("[PATCH");
    let bare = tagged.and_then(|rest| rest.split_once("] "));
    bare.map_or(subject, |(_, bare)| bare).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n";

    fn write(dir: &Path, series: &str, patch: &str) {
        fs::create_dir_all(dir.join("10-topic")).unwrap();
        fs::write(dir.join("series"), series).unwrap();
        fs::write(dir.join("10-topic/0001.patch"), patch).unwrap();
    }

    #[test]
    fn applies_in_order_of_the_series() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "# comment\n\n10-topic/0001.patch\n", PATCH);
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("f"), "one\ntwo\nthree\n").unwrap();

        let series = Series::read(dir.path()).unwrap();
        series.apply(tree.path(), dir.path()).unwrap();
        let text = fs::read_to_string(tree.path().join("f")).unwrap();
        assert_eq!(text, "one\nTWO\nthree\n");
    }

    #[test]
    fn a_patch_that_does_not_fit_is_named() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "10-topic/0001.patch\n", PATCH);
        for content in [
            "one\ndos\nthree\n",
            "one\nTWO\nthree\n",
            "ONE\ntwo\nthree\n",
        ] {
            let tree = tempfile::tempdir().unwrap();
            fs::write(tree.path().join("f"), content).unwrap();
            let series = Series::read(dir.path()).unwrap();
            let error = series.apply(tree.path(), dir.path()).unwrap_err();
            assert!(
                error.to_string().contains("10-topic/0001.patch"),
                "{content:?}: {error}"
            );
        }
    }

    #[test]
    fn a_patch_outside_the_series_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "# nothing\n", PATCH);
        let error = Series::read(dir.path()).err().unwrap().to_string();
        assert!(error.contains("10-topic/0001.patch"), "{error}");
    }
}
