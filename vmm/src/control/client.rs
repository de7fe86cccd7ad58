//! One client of the socket: its lines in, its lines out, both within bounds.
//! Never waits for it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::Value;

use super::command::MAX_LINE;
use super::reply::Body;

/// Bytes a client may leave unread, beside what its socket holds. One reply is
/// always taken; a client that lets progress pile up is given up.
const MAX_UNREAD: usize = 64 << 10;
/// Bytes read at once.
const CHUNK_BYTES: usize = 16 << 10;

/// A line that came, or what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// It was longer than [`MAX_LINE`]; the rest of it is skipped.
    TooLong,
}

/// A request that is being carried out.
#[derive(Debug)]
pub struct Pending {
    /// Number of its call.
    pub call: u64,
    /// The client's own name for it.
    pub id: Option<Value>,
    /// When the VM must have answered.
    pub deadline: Instant,
}

/// A connected client.
pub struct Client<S = UnixStream> {
    stream: S,
    inbox: Vec<u8>,
    /// Inside a line that was too long.
    skipping: bool,
    /// It sends nothing more.
    ended: bool,
    outbox: Vec<u8>,
    /// What it waits for. The next line is read when that is answered.
    pub pending: Option<Pending>,
    /// When it last sent or took something.
    pub active: Instant,
}

impl<S: Read + Write> Client<S> {
    /// A client that just connected; `stream` must not block.
    pub fn new(stream: S, now: Instant) -> Self {
        Self {
            stream,
            inbox: Vec::new(),
            skipping: false,
            ended: false,
            outbox: Vec::new(),
            pending: None,
            active: now,
        }
    }

    /// Whether its next request may be read: the last one is answered, and the
    /// answer taken.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.pending.is_none() && self.outbox.is_empty()
    }

    /// Whether bytes wait for it.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether bytes of it may be read.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.is_ready() && !self.ended
    }

    /// Whether all is done that it will ever ask for.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ended && self.is_ready() && self.inbox.is_empty()
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// The client is gone.
    pub fn read(&mut self, now: Instant) -> io::Result<()> {
        let mut chunk = [0; CHUNK_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => {
                self.ended = true;
                Ok(())
            }
            Ok(length) => {
                self.active = now;
                self.inbox
                    .extend_from_slice(chunk.get(..length).unwrap_or_default());
                Ok(())
            }
            Err(error) if waits(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next line that has come, if it may be handled. Empty ones are none.
    pub fn next_line(&mut self) -> Option<Line> {
        while self.is_ready() {
            let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') else {
                let too_long = self.inbox.len() > MAX_LINE;
                // What was begun and not ended is no request.
                if too_long || self.skipping || self.ended {
                    self.inbox.clear();
                }
                if too_long && !self.skipping {
                    self.skipping = true;
                    return Some(Line::TooLong);
                }
                return None;
            };
            let mut line: Vec<u8> = self.inbox.drain(..=end).collect();
            line.truncate(end);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > MAX_LINE {
                return Some(Line::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Some(Line::Whole(line));
            }
        }
        None
    }

    /// Puts a line in line for it, and sends what it takes.
    ///
    /// # Errors
    /// The client is gone, or reads too slowly to be kept.
    pub fn tell(&mut self, body: &Body, id: Option<&Value>, now: Instant) -> io::Result<()> {
        if self.outbox.len() > MAX_UNREAD {
            return Err(io::Error::other("it does not read"));
        }
        self.outbox.extend_from_slice(body.line(id).as_bytes());
        self.flush(now)
    }

    /// Sends what it takes now.
    ///
    /// # Errors
    /// The client is gone.
    pub fn flush(&mut self, now: Instant) -> io::Result<()> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.outbox.drain(..length);
                    self.active = now;
                }
                Err(error) if waits(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<S: AsFd> AsFd for Client<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A stream that gives `input` by `step` bytes, then nothing.
    struct Given {
        input: Vec<u8>,
        step: usize,
    }

    impl Read for Given {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = self.step.min(self.input.len()).min(into.len());
            into[..length].copy_from_slice(&self.input[..length]);
            self.input.drain(..length);
            Ok(length)
        }
    }

    impl Write for Given {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// All lines of `input`, read by `step` bytes, and the most that was held.
    fn lines(input: &[u8], step: usize) -> (Vec<Line>, usize) {
        let now = Instant::now();
        let input = input.to_vec();
        let mut client = Client::new(Given { input, step }, now);
        let (mut lines, mut held) = (Vec::new(), 0);
        while !client.is_done() {
            client.read(now).unwrap();
            held = held.max(client.inbox.len());
            lines.extend(std::iter::from_fn(|| client.next_line()));
        }
        (lines, held)
    }

    #[test]
    fn a_line_of_the_longest_length_passes_and_one_byte_more_does_not() {
        let (fits, too_long) = (vec![b'x'; MAX_LINE], vec![b'x'; MAX_LINE + 1]);
        for step in [1000, 1 << 20] {
            let input = [&fits[..], b"\n", &too_long, b"\n \r\nnext\nunended"].concat();
            let (lines, _) = lines(&input, step);
            assert_eq!(
                lines,
                [
                    Line::Whole(fits.clone()),
                    Line::TooLong,
                    Line::Whole(b"next".to_vec())
                ],
                "by {step}"
            );
        }
    }

    #[test]
    fn a_line_without_end_is_told_once_and_not_kept() {
        let (lines, held) = lines(&vec![b'x'; 10 * MAX_LINE], CHUNK_BYTES);
        assert_eq!(lines, [Line::TooLong]);
        assert!(held <= MAX_LINE + CHUNK_BYTES, "{held}");
    }

    #[test]
    fn a_client_that_ends_inside_a_line_is_done_however_late_its_lines_are_handled() {
        let now = Instant::now();
        for input in ["begun", "a\nbegun", "a\nb\nbegun", "a\n", ""] {
            let whole = input.matches('\n').count();
            let input = input.as_bytes().to_vec();
            let mut client = Client::new(Given { input, step: 64 }, now);
            client.read(now).unwrap();
            client.read(now).unwrap();
            assert!(client.ended);
            let lines = std::iter::from_fn(|| client.next_line()).count();
            assert_eq!(lines, whole);
            assert!(client.is_done());
        }
    }

    #[test]
    fn a_second_line_waits_for_the_answer_to_the_first() {
        let now = Instant::now();
        let input = b"a\nb\n".to_vec();
        let mut client = Client::new(Given { input, step: 64 }, now);
        client.read(now).unwrap();
        assert_eq!(client.next_line(), Some(Line::Whole(b"a".to_vec())));
        client.pending = Some(Pending {
            call: 1,
            id: None,
            deadline: now,
        });
        assert_eq!(client.next_line(), None);
        client.pending = None;
        assert_eq!(client.next_line(), Some(Line::Whole(b"b".to_vec())));
    }

    proptest! {
        #[test]
        fn cutting_changes_nothing(
            text in "([a-c]{0,9}\n){0,9}", step in 1_usize..20
        ) {
            let expected: Vec<_> = text
                .lines()
                .filter(|line| !line.is_empty())
                .map(|line| Line::Whole(line.as_bytes().to_vec()))
                .collect();
            prop_assert_eq!(lines(text.as_bytes(), step).0, expected);
        }
    }
}
