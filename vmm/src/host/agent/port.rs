//! The control channel's end in the host: a virtio-serial port.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use super::PORT_NAME;

/// Sysfs directory of all ports.
const PORTS: &str = "/sys/class/virtio-ports";
/// How long the port may take to appear.
const WAIT: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(5);

/// Why there is no channel.
#[derive(Debug, Error)]
pub(super) enum PortError {
    #[error("no virtio-serial port {PORT_NAME}; is this kernel built with CONFIG_VIRTIO_CONSOLE?")]
    Missing,
    #[error("{0}: {1}")]
    Open(String, io::Error),
    #[error("{0}: nobody at the other end")]
    Unconnected(String),
}

/// Opens it, once it is there and the other side is connected.
pub(super) fn open() -> Result<File, PortError> {
    let deadline = Instant::now() + WAIT;
    let path = loop {
        match find() {
            Some(path) => break path,
            None if Instant::now() > deadline => return Err(PortError::Missing),
            None => thread::sleep(RETRY),
        }
    };
    let name = || path.display().to_string();
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|error| PortError::Open(name(), error))?;
    // Until the driver has heard of the other side, a read would say "end of file".
    while !is_connected(&port).map_err(|error| PortError::Open(name(), error))? {
        if Instant::now() > deadline {
            return Err(PortError::Unconnected(name()));
        }
        thread::sleep(RETRY);
    }
    Ok(port)
}

fn find() -> Option<PathBuf> {
    let ports = fs::read_dir(PORTS).ok()?;
    ports.flatten().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim_end() == PORT_NAME).then(|| PathBuf::from("/dev").join(port.file_name()))
    })
}

fn is_connected(port: &File) -> io::Result<bool> {
    let mut fds = [PollFd::new(port, PollFlags::OUT)];
    poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    let [fd] = fds;
    Ok(!fd.revents().contains(PollFlags::HUP))
}
