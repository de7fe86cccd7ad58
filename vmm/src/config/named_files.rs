//! The files a configuration names: there, regular, readable, and small enough
//! for guest RAM. Found out before anything is started.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::entries::Entries;
use super::error::{ConfigError, Origin, Problem};
use super::schema::{Config, ConsoleOutput};
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
    let wrong = |key, path: &Path, reason| {
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
    };
    for (key, path, room) in files {
        let Some(path) = path else { continue };
        usable(path, room).map_err(|reason| wrong(key, path, reason))?;
    }

    // What is written must not be anything else that is named.
    let console = match &config.console.output {
        ConsoleOutput::File(path) => Some(path),
        ConsoleOutput::Stdout | ConsoleOutput::None => None,
    };
    let outputs = [
        ("results.path", config.results.path.as_ref()),
        ("console.output.file", console),
        ("control.socket", config.control.socket.as_ref()),
    ];
    let (Origin::Text { name, .. } | Origin::File(name) | Origin::Flag(name)) = document;
    let document = ("the configuration file", Path::new(name.as_ref()));
    let inputs = files
        .into_iter()
        .filter_map(|(key, path, _)| Some((key, path?.as_path())));
    let mut taken: Vec<_> = inputs.chain([document]).collect();
    for (key, path) in outputs {
        let Some(path) = path else { continue };
        if let Some((other, _)) = taken.iter().find(|(_, other)| is_same(path, other)) {
            let reason = format!("is also {other}, which it would overwrite; name another file");
            return Err(wrong(key, path, reason));
        }
        taken.push((key, path));
    }
    Ok(())
}

/// Whether both paths name one file, there or not. Terminals, pipes and the like can
/// be shared.
fn is_same(one: &Path, other: &Path) -> bool {
    let metadata = [one, other].map(fs::metadata);
    match metadata {
        [Ok(a), Ok(b)] => {
            let is_file = a.is_file() || a.file_type().is_socket();
            is_file && (a.dev(), a.ino()) == (b.dev(), b.ino())
        }
        [Err(_), Err(_)] => {
            let place = |path: &Path| {
                let parent = path
                    .parent()
                    .filter(|parent| !parent.as_os_str().is_empty());
                let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
                Some((parent.ok()?, path.file_name()?.to_owned()))
            };
            place(one).is_some_and(|one| Some(one) == place(other))
        }
        _ => false,
    }
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

#[cfg(test)]
#[path = "named_files_test.rs"]
mod tests;
