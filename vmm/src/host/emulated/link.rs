//! This machine's end of the control channel: full duplex, never blocking, so
//! that neither a slow host nor a slow reader can hold up a stop request.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use crate::host::protocol::frame::CHUNK_BYTES;
use crate::host::protocol::{Decoder, Message, MessageError};

/// More than this unsent, and a sender should wait.
const BACKLOG: usize = 4 * CHUNK_BYTES;

/// Why the channel is useless.
#[derive(Debug, Error)]
pub(super) enum LinkError {
    #[error("it closed the control channel")]
    Closed,
    #[error("control channel: {0}")]
    Io(#[from] io::Error),
    #[error("control channel: {0}")]
    Message(#[from] MessageError),
}

/// What else a [`Link::turn`] waits for.
#[derive(Default)]
pub(super) struct Others<'a> {
    /// Readable when the run is to stop.
    pub(super) stop: Option<BorrowedFd<'a>>,
    /// Readable when the reader of the console is gone.
    pub(super) reader_gone: Option<BorrowedFd<'a>>,
    /// Console input, while the host has room for it.
    pub(super) input: Option<BorrowedFd<'a>>,
    /// Readable when somebody wants to control the VM.
    pub(super) calls: Option<BorrowedFd<'a>>,
}

/// What a [`Link::turn`] found.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) messages: Vec<Message>,
    pub(super) stop: bool,
    pub(super) reader_gone: bool,
    pub(super) input: bool,
    pub(super) calls: bool,
}

/// The channel.
pub(super) struct Link {
    stream: UnixStream,
    decoder: Decoder,
    unsent: Vec<u8>,
    sent: usize,
    chunk: Vec<u8>,
    /// When the host was last heard.
    pub(super) heard: Instant,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            unsent: Vec::new(),
            sent: 0,
            chunk: vec![0; CHUNK_BYTES],
            heard: Instant::now(),
        })
    }

    /// Puts a message in line.
    pub(super) fn queue(&mut self, message: &Message) -> Result<(), LinkError> {
        if self.sent > BACKLOG {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        Ok(message.encode(&mut self.unsent)?)
    }

    /// Whether a sender should wait with its next message.
    pub(super) fn is_backed_up(&self) -> bool {
        self.unsent.len() - self.sent > BACKLOG
    }

    /// Sends and receives what it can, waiting up to `timeout` for something to do.
    pub(super) fn turn(
        &mut self,
        others: &Others<'_>,
        timeout: Duration,
    ) -> Result<Turn, LinkError> {
        let mut wanted = PollFlags::IN;
        if self.sent < self.unsent.len() {
            wanted |= PollFlags::OUT;
        }
        let mut turn = Turn::default();
        let ready = {
            let mut fds = vec![PollFd::from_borrowed_fd(self.stream.as_fd(), wanted)];
            let optional = [others.stop, others.reader_gone, others.input, others.calls];
            fds.extend(
                optional
                    .iter()
                    .flatten()
                    .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)),
            );
            match poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            let mut found = fds.iter().map(|fd| !fd.revents().is_empty());
            let ready = found.next().unwrap_or_default();
            let mut next =
                |fd: Option<BorrowedFd<'_>>| fd.is_some() && found.next().unwrap_or_default();
            turn.stop = next(others.stop);
            turn.reader_gone = next(others.reader_gone);
            turn.input = next(others.input);
            turn.calls = next(others.calls);
            ready
        };
        if ready {
            // Receiving first: what a host said before it closed still counts.
            self.receive(&mut turn.messages)?;
            self.send()?;
        }
        Ok(turn)
    }

    fn send(&mut self) -> Result<(), LinkError> {
        while let Some(rest @ [_, ..]) = self.unsent.get(self.sent..) {
            match self.stream.write(rest) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    return Err(LinkError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// One read, so that a host that never stops talking cannot hold this side.
    fn receive(&mut self, messages: &mut Vec<Message>) -> Result<(), LinkError> {
        let length = match self.stream.read(&mut self.chunk) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(length) => length,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Err(LinkError::Closed);
            }
            Err(error) => return Err(error.into()),
        };
        self.heard = Instant::now();
        self.decoder
            .feed(self.chunk.get(..length).unwrap_or_default());
        while let Some(frame) = self.decoder.next_frame().map_err(MessageError::from)? {
            messages.push(Message::decode(&frame)?);
        }
        Ok(())
    }
}

/// Reads what is there of console input; empty at its end.
pub(super) fn read_input(mut from: &File, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let length = from.read(&mut bytes).unwrap_or(0);
    bytes.truncate(length);
    bytes
}
