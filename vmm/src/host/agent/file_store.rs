//! Files from the other side, kept by their content for the whole session.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::host::content_id::{ContentHasher, is_id};
use crate::host::protocol::{FileStart, FileStored};

/// A directory of files, and at most one that is still coming.
pub(super) struct FileStore {
    directory: PathBuf,
    incoming: Option<Incoming>,
}

struct Incoming {
    header: FileStart,
    file: File,
    hasher: ContentHasher,
}

impl FileStore {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            incoming: None,
        }
    }

    /// A file follows. An answer now means that it failed or is complete already.
    pub(super) fn start(&mut self, header: FileStart) -> Option<FileStored> {
        self.abandon();
        let id = header.id.clone();
        if !is_id(&id) {
            return Some(FileStored {
                error: Some(format!("{id:?} is no name for a file")),
                id,
            });
        }
        match File::create(self.partial(&id)) {
            Ok(file) => {
                self.incoming = Some(Incoming {
                    header,
                    file,
                    hasher: ContentHasher::default(),
                });
                self.finish_if_complete()
            }
            Err(error) => Some(FileStored {
                id,
                error: Some(error.to_string()),
            }),
        }
    }

    /// More of it. Data nobody announced, or that comes after an error, is dropped.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Option<FileStored> {
        let incoming = self.incoming.as_mut()?;
        incoming.hasher.write(bytes);
        let written = if incoming.hasher.bytes() > incoming.header.bytes {
            Err(io::Error::other("longer than announced"))
        } else {
            incoming.file.write_all(bytes)
        };
        match written {
            Ok(()) => self.finish_if_complete(),
            Err(error) => {
                let id = incoming.header.id.clone();
                self.abandon();
                Some(FileStored {
                    id,
                    error: Some(error.to_string()),
                })
            }
        }
    }

    /// Forgets a file that is not complete.
    pub(super) fn abandon(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            // Fails only if it is gone already.
            let _ = fs::remove_file(self.partial(&incoming.header.id));
        }
    }

    fn finish_if_complete(&mut self) -> Option<FileStored> {
        let incoming = self.incoming.as_ref()?;
        if incoming.hasher.bytes() < incoming.header.bytes {
            return None;
        }
        let id = incoming.header.id.clone();
        let arrived = incoming.hasher.id();
        let result = if arrived == id {
            fs::rename(self.partial(&id), self.directory.join(&id))
        } else {
            Err(io::Error::other("its content changed while it was sent"))
        };
        match result {
            Ok(()) => self.incoming = None,
            Err(_) => self.abandon(),
        }
        Some(FileStored {
            id,
            error: result.err().map(|error| error.to_string()),
        })
    }

    fn partial(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.partial"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("aerostat-store-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<_> = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn header(content: &[u8]) -> FileStart {
        let mut hasher = ContentHasher::default();
        hasher.write(content);
        FileStart {
            id: hasher.id(),
            bytes: hasher.bytes(),
        }
    }

    #[test]
    fn a_file_in_pieces_is_kept_under_its_name() {
        let directory = Directory::new("pieces");
        let mut store = FileStore::new(directory.0.clone());
        let header = header(b"kernel image");
        assert_eq!(store.start(header.clone()), None);
        assert_eq!(store.data(b"kernel"), None);
        assert_eq!(
            store.data(b" image"),
            Some(FileStored {
                id: header.id.clone(),
                error: None
            })
        );
        assert_eq!(directory.names(), std::slice::from_ref(&header.id));
        assert_eq!(
            fs::read(directory.0.join(&header.id)).unwrap(),
            b"kernel image"
        );
    }

    #[test]
    fn an_empty_file_is_complete_at_once() {
        let directory = Directory::new("empty");
        let header = header(b"");
        let stored = FileStore::new(directory.0.clone()).start(header.clone());
        assert_eq!(
            stored,
            Some(FileStored {
                id: header.id,
                error: None
            })
        );
    }

    #[test]
    fn wrong_content_wrong_length_and_wrong_names_leave_nothing() {
        let directory = Directory::new("wrong");
        let mut store = FileStore::new(directory.0.clone());
        let header = header(b"kernel");
        store.start(header.clone());
        let answer = store.data(b"kernem").unwrap();
        assert_eq!(
            answer.error.as_deref(),
            Some("its content changed while it was sent")
        );

        store.start(header.clone());
        let answer = store.data(b"kernel and more").unwrap();
        assert_eq!(answer.error.as_deref(), Some("longer than announced"));
        assert_eq!(store.data(b"yet more"), None);

        let answer = store
            .start(FileStart {
                id: "../escape".into(),
                bytes: 1,
            })
            .unwrap();
        assert!(answer.error.is_some());
        assert_eq!(directory.names(), Vec::<String>::new());
    }

    #[test]
    fn an_incomplete_file_makes_room_for_the_next() {
        let directory = Directory::new("next");
        let mut store = FileStore::new(directory.0.clone());
        store.start(header(b"first"));
        store.data(b"fir");
        let second = header(b"second");
        store.start(second.clone());
        assert!(store.data(b"second").unwrap().error.is_none());
        assert_eq!(directory.names(), [second.id]);
    }
}
