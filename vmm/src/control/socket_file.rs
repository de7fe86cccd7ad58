//! The socket in the file system: made for its owner only, in the place of a
//! dead one at most, and removed at the end.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, fchmod, flock, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use thiserror::Error;

use crate::forced_exit::{Registration, on_forced_exit};

/// Longest path of a socket: `sun_path` less its final 0 (unix(7)).
const MAX_PATH: usize = 107;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// How long another may take to replace a socket in the same directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Why there is no socket. Reads on behind the path.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The path does not fit into an address.
    #[error("is longer than {MAX_PATH} bytes, which no socket's path can be")]
    TooLong,
    /// Somebody listens there.
    #[error("another VM is listening there; name another socket")]
    Live,
    /// Something else is there.
    #[error("is there already and no socket; remove it or name another path")]
    NotASocket,
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for SocketError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// A socket that listens. Dropping it removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
    _forced: Registration,
}

/// The file of a socket, told from another that took its place.
#[derive(Debug, Clone)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl ControlSocket {
    /// Makes the socket `path` with mode 0600 and listens. A socket nobody
    /// listens to is replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let address = address(path)?;
        let _lock = lock_directory(path)?;
        remove_if_dead(path)?;

        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Linux takes the mode of the socket itself, less the umask, for the
        // file it makes: there is no moment in which others could connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &address)?;
        let metadata = fs::symlink_metadata(path)?;
        let file = SocketFile {
            path: std::path::absolute(path)?,
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let for_forced_exit = file.clone();
        let this = Self {
            listener: UnixListener::from(socket),
            file,
            _forced: on_forced_exit(move || for_forced_exit.remove()),
        };
        if metadata.mode() & 0o077 != 0 {
            let what = "its file system cannot keep other users from it";
            return Err(io::Error::other(what).into());
        }
        listen(&this.listener, BACKLOG)?;
        Ok(this)
    }

    /// The listening end; it does not block.
    ///
    /// # Errors
    /// The error of duplicating a descriptor.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.file.remove();
    }
}

impl SocketFile {
    fn remove(&self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours {
            // Somebody may have removed it just now.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Connects to the socket `path`, without waiting.
///
/// # Errors
/// Those of connecting; `WouldBlock` if too many wait to be accepted.
pub fn connect_to(path: &Path) -> Result<UnixStream, SocketError> {
    let address = address(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

fn address(path: &Path) -> Result<SocketAddrUnix, SocketError> {
    if path.as_os_str().len() > MAX_PATH {
        return Err(SocketError::TooLong);
    }
    Ok(SocketAddrUnix::new(path)?)
}

/// Keeps two that find the same dead socket from removing each other's new one.
fn lock_directory(path: &Path) -> Result<OwnedFd, SocketError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = open(
        parent,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    // Held by another for a moment only. Not waited for longer: whoever may read the
    // directory may lock it for ever, and all that is lost is this protection.
    let deadline = Instant::now() + LOCK_PATIENCE;
    while flock(&directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        && Instant::now() < deadline
    {
        thread::sleep(Duration::from_millis(2));
    }
    Ok(directory)
}

fn remove_if_dead(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    match connect_to(path) {
        Err(SocketError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            log::debug!("replacing {}, to which nobody listens", path.display());
            Ok(rustix::fs::unlinkat(
                CWD,
                path,
                rustix::fs::AtFlags::empty(),
            )?)
        }
        // A full queue is one that somebody listens to.
        Ok(_) => Err(SocketError::Live),
        Err(SocketError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(SocketError::Live)
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
#[path = "socket_file_test.rs"]
mod tests;
