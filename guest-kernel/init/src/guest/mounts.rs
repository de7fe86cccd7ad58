//! File systems a bare initrd does not have yet.

use rustix::fs::{Mode, mkdir};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

/// Where, and which file system. The kernel may have mounted devtmpfs already.
const MOUNTS: [(&str, &str); 4] = [
    ("/proc", "proc"),
    ("/sys", "sysfs"),
    ("/dev", "devtmpfs"),
    ("/sys/kernel/debug", "debugfs"),
];

/// Mounts all of [`MOUNTS`]; returns one line for each that is missing, except
/// for debugfs, which is not needed.
pub(crate) fn mount_all() -> Vec<String> {
    let mut missing = Vec::new();
    for (path, kind) in MOUNTS {
        // Fails where it exists, or where it is provided by the parent mount.
        let _ = mkdir(path, Mode::from_raw_mode(0o755));
        match mount(kind, path, kind, MountFlags::empty(), None) {
            Ok(()) | Err(Errno::BUSY) => {}
            Err(_) if kind == "debugfs" => {}
            Err(error) => missing.push(format!("cannot mount {kind} on {path}: {error}")),
        }
    }
    missing
}
