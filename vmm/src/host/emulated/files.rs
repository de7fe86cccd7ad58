//! The files a guest needs, and their names inside the host.

use std::collections::HashSet;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::config::Config;
use crate::host::agent;
use crate::host::content_id::ContentHasher;
use crate::host::protocol::frame::CHUNK_BYTES;

/// Why a file cannot be sent. Always the user's: the message names the key.
#[derive(Debug, Error)]
#[error("{key}: cannot read {path}: {source}")]
pub(super) struct FileError {
    key: &'static str,
    path: String,
    source: io::Error,
}

/// A file on its way.
pub(super) struct GuestFile {
    /// The configuration key that names it.
    pub(super) key: &'static str,
    /// Where the user has it.
    pub(super) path: PathBuf,
    /// What names it in the host.
    pub(super) id: String,
    /// Its length in bytes.
    pub(super) bytes: u64,
    content: File,
}

impl GuestFile {
    /// Opens and hashes it.
    fn open(key: &'static str, path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError {
            key,
            path: path.display().to_string(),
            source,
        };
        let mut content = File::open(path).map_err(failed)?;
        if !content.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            )));
        }
        let mut hasher = ContentHasher::default();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = content.read(&mut chunk).map_err(failed)?;
            if length == 0 {
                break;
            }
            hasher.write(chunk.get(..length).unwrap_or_default());
        }
        content.rewind().map_err(failed)?;
        Ok(Self {
            key,
            path: path.to_owned(),
            id: hasher.id(),
            bytes: hasher.bytes(),
            content,
        })
    }

    /// The next bytes of it; empty at the end.
    pub(super) fn next_chunk(&mut self) -> Result<Vec<u8>, FileError> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let most = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
        let read = (&mut self.content).take(most).read_to_end(&mut chunk);
        match read {
            Ok(_) => Ok(chunk),
            Err(source) => Err(FileError {
                key: self.key,
                path: self.path.display().to_string(),
                source,
            }),
        }
    }

    /// Its path in the host.
    pub(super) fn path_in_host(&self) -> PathBuf {
        agent::stored_file(&self.id)
    }
}

/// All files `config` names, opened.
pub(super) fn named_by(config: &Config) -> Result<Vec<GuestFile>, FileError> {
    let mut files = vec![GuestFile::open("kernel.image", &config.kernel.image)?];
    if let Some(initrd) = &config.kernel.initrd {
        files.push(GuestFile::open("kernel.initrd", initrd)?);
    }
    Ok(files)
}

/// Those the host does not have yet, each once.
pub(super) fn missing<'a>(
    files: &'a mut [GuestFile],
    stored: &HashSet<String>,
) -> Vec<&'a mut GuestFile> {
    let mut seen = stored.clone();
    files
        .iter_mut()
        .filter(|file| seen.insert(file.id.clone()))
        .collect()
}

/// In text from the host, names the user's paths instead of the host's.
pub(super) fn name_as_the_user_does(text: &str, files: &[GuestFile]) -> String {
    files.iter().fold(text.to_owned(), |text, file| {
        text.replace(
            &*file.path_in_host().to_string_lossy(),
            &file.path.to_string_lossy(),
        )
    })
}
