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

/// Hexadecimal digits of each hash in a key: the release string has room for 64
/// characters (`__NEW_UTS_LEN`) in all.
const DIGITS: usize = 10;

impl Inputs<'_> {
    /// The key of the build of these inputs from the source with this hash:
    /// `sSOURCE-pPATCHES-cCONFIG`, the first [`DIGITS`] of a SHA-256 each. The last
    /// one is over fragments, toolchain and recipe.
    pub(crate) fn key(&self, source_sha256: &str) -> String {
        let source = source_sha256.get(..DIGITS).unwrap_or(source_sha256);
        let patches = short(|hasher| {
            for patch in self.series.patches() {
                hasher.field(&patch.name, &patch.content);
            }
        });
        let config = short(|hasher| {
            for fragment in self.fragments.files() {
                hasher.field(&fragment.name, fragment.text.as_bytes());
            }
            hasher.field("toolchain", self.toolchain.as_bytes());
            hasher.field("recipe", compile::recipe().as_bytes());
        });
        format!("s{source}-p{patches}-c{config}")
    }
}

fn short(fill: impl FnOnce(&mut Hasher)) -> String {
    let mut hasher = Hasher::default();
    fill(&mut hasher);
    let mut hash = hasher.finish();
    hash.truncate(DIGITS);
    hash
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
