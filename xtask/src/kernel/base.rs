//! `guest-kernel/base`: the release everything starts from, and its hashes.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::error::{KernelError, io};

/// The pinned release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Base {
    /// As the kernel's Makefile spells it.
    pub(crate) version: String,
    pub(crate) kernel_archive: KernelArchive,
    pub(crate) debian: Debian,
}

/// The tarball on the kernel archive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct KernelArchive {
    pub(crate) url: String,
    /// Absent: nobody has pinned it yet, so it is used only with `--sha256`.
    pub(crate) tarball_sha256: Option<String>,
}

/// Debian's source package of the release, which carries Debian's patches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Debian {
    pub(crate) package: String,
    pub(crate) suite: String,
    pub(crate) version: String,
    /// Of the tarball inside the package.
    pub(crate) tarball_sha256: String,
    /// Of the tree the tarball unpacks to, see [`super::hash::tree`].
    pub(crate) tree_sha256: String,
}

impl Base {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, KernelError> {
        let text = fs::read_to_string(path).map_err(io("read", path))?;
        let base: Self = toml::from_str(&text).map_err(|error| KernelError::BadFile {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        let hashes = [
            base.kernel_archive.tarball_sha256.as_ref(),
            Some(&base.debian.tarball_sha256),
            Some(&base.debian.tree_sha256),
        ];
        for hash in hashes.into_iter().flatten() {
            if !is_sha256(hash) {
                return Err(KernelError::BadFile {
                    path: path.to_owned(),
                    message: format!("'{hash}' is not a sha256 in lower-case hexadecimal"),
                });
            }
        }
        Ok(base)
    }

    /// The hashes a build without `--source` may start from, best first.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = &str> {
        let archive = self.kernel_archive.tarball_sha256.as_deref();
        archive.into_iter().chain([
            self.debian.tarball_sha256.as_str(),
            self.debian.tree_sha256.as_str(),
        ])
    }
}

/// Is this a digest as `sha256sum` prints it?
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
