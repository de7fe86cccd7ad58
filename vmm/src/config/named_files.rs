//! The files a configuration names: there, regular, readable, and small enough
//! for guest RAM. Found out before anything is started.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::entries::Entries;
use super::error::{ConfigError, Origin, Problem};
use super::schema::Config;
use super::units::format_size;

/// Checks kernel, initrd and the emulated host's kernel.
pub(super) fn check(
    config: &Config,
    entries: &Entries,
    document: &Origin,
) -> Result<(), ConfigError> {
    let ram = config.memory.size;
    let files = [
        ("kernel.image", Some(&config.kernel.image), Some(ram)),
        ("kernel.initrd", config.kernel.initrd.as_ref(), Some(ram)),
        ("host.kernel", config.host.kernel.as_ref(), None),
    ];
    for (key, path, room) in files {
        let Some(path) = path else { continue };
        usable(path, room).map_err(|reason| {
            ConfigError::new(
                entries
                    .get(key)
                    .map_or_else(|| document.clone(), |entry| entry.origin.clone()),
                Some(key),
                Problem::NamedFile {
                    path: shown(path),
                    reason,
                },
            )
        })?;
    }
    Ok(())
}

/// A path for a one-line message.
pub(super) fn shown(path: &Path) -> String {
    path.display()
        .to_string()
        .chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

fn usable(path: &Path, room: Option<u64>) -> Result<(), String> {
    // The type first: opening a named pipe would wait for its other end.
    let metadata = fs::metadata(path).map_err(|error| reason(&error))?;
    if metadata.is_dir() {
        return Err("is a directory, not a file".to_owned());
    }
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    File::open(path).map_err(|error| reason(&error))?;
    if metadata.len() == 0 {
        return Err("is empty".to_owned());
    }
    match room {
        Some(room) if metadata.len() >= room => Err(format!(
            "{} bytes do not fit into guest RAM, which is {} ({room} bytes); raise memory.size",
            metadata.len(),
            format_size(room)
        )),
        _ => Ok(()),
    }
}

/// The reason without the number the system gives it.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
