//! Writing to a terminal that may have stopped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Flags under which [`PatientWriter`] works.
fn open_flags() -> i32 {
    use rustix::fs::OFlags;
    let bits = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    i32::try_from(bits).unwrap_or(0)
}

/// Opens a terminal so that it neither blocks nor becomes a controlling one.
pub(crate) fn open_terminal(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(open_flags())
        .open(path)
}

/// Writes to a non-blocking file and waits for room, but not forever: a serial
/// port whose interrupt never comes must not keep the guest from powering off.
#[derive(Debug)]
pub(crate) struct PatientWriter {
    file: File,
    patience: Duration,
    stuck: bool,
}

impl PatientWriter {
    /// Waits up to `patience` for each bit of progress; after one time-out all
    /// later writes fail at once.
    pub(crate) fn new(file: File, patience: Duration) -> Self {
        Self {
            file,
            patience,
            stuck: false,
        }
    }

    /// Writes everything or fails.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.stuck {
            return Err(io::ErrorKind::TimedOut.into());
        }
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => bytes = bytes.get(len..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until everything has left the machine.
    pub(crate) fn drain(&self) {
        // Best effort at the end: there is nobody left to tell.
        let _ = rustix::termios::tcdrain(&self.file);
    }

    fn wait(&mut self) -> io::Result<()> {
        let timeout = Timespec::try_from(self.patience).ok();
        let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) => {
                self.stuck = true;
                Err(io::ErrorKind::TimedOut.into())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    fn pair() -> (PatientWriter, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let file = File::from(OwnedFd::from(near));
        (PatientWriter::new(file, Duration::from_millis(50)), far)
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let (mut writer, mut far) = pair();
        writer.patience = Duration::from_secs(5);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        writer.write_all(&vec![b'x'; 4 << 20]).unwrap();
        drop(writer);
        assert_eq!(reader.join().unwrap().len(), 4 << 20);
    }

    #[test]
    fn a_stopped_reader_costs_one_time_out() {
        let (mut writer, _far) = pair();
        let error = writer.write_all(&vec![b'x'; 4 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let before = Instant::now();
        assert!(writer.write_all(b"more").is_err());
        assert!(before.elapsed() < Duration::from_millis(50));
    }
}
