//! The build key: one name for everything that decides what comes out.

use std::process::Command;

use super::compile;
use super::config::Fragments;
use super::error::KernelError;
use super::hash::Hasher;
use super::series::Series;
use super::tools;

/// All inputs of a build but the source.
pub(crate) struct Inputs<'a> {
    pub(crate) series: &'a Series,
    pub(crate) fragments: &'a Fragments,
    /// First lines of what compiler and linker say about themselves.
    pub(crate) toolchain: &'a str,
}

impl Inputs<'_> {
    /// The key of the build of these inputs from the source with this hash:
    /// 16 hexadecimal digits, short enough for `/proc/version`.
    pub(crate) fn key(&self, source_sha256: &str) -> String {
        let mut hasher = Hasher::default();
        hasher.field("source", source_sha256.as_bytes());
        for patch in self.series.patches() {
            hasher.field(&patch.name, &patch.content);
        }
        for fragment in self.fragments.files() {
            hasher.field(&fragment.name, fragment.text.as_bytes());
        }
        hasher.field("toolchain", self.toolchain.as_bytes());
        hasher.field("recipe", compile::recipe().as_bytes());
        let mut key = hasher.finish();
        key.truncate(16);
        key
    }
}

/// What compiles and links here.
pub(crate) fn toolchain() -> Result<String, KernelError> {
    let mut text = String::new();
    for program in ["gcc", "ld"] {
        let version = tools::run(Command::new(program).arg("--version"))?;
        text.push_str(version.lines().next().unwrap_or_default());
        text.push('\n');
    }
    Ok(text)
}
