//! A shell's programs for guests that need more than our init: Debian's static
//! busybox.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;
use crate::apt::Apt;
use crate::artifacts::out;
use crate::command::{run, say};

const PACKAGE: &str = "busybox-static";
const SUITE: &str = "bookworm";

/// Fetches it if it is not there yet; the program.
pub(crate) fn fetch() -> Result<PathBuf, Failure> {
    let program = out().join("busybox");
    if program.exists() {
        return Ok(program);
    }
    say(&format!("fetching Debian's {PACKAGE}"));
    let apt = Apt::open(&out().join("apt").join(SUITE), SUITE)?;
    let deb = apt.download(PACKAGE)?;
    let tree = out().join("busybox.tree");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree)?;
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&tree))?;
    fs::remove_file(&deb)?;
    // Where it lies depends on the release: /bin is a link in newer ones.
    let inside = ["bin/busybox", "usr/bin/busybox"].map(|path| tree.join(path));
    let found = inside.iter().find(|path| path.exists());
    let found = found.ok_or_else(|| format!("{PACKAGE} holds no busybox"))?;
    fs::rename(found, &program)?;
    fs::remove_dir_all(&tree)?;
    Ok(program)
}
