//! Target: a client of the control socket, without the VM behind it.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use serde_json::json;
use vmm::control::client::{Client, Line};
use vmm::control::command::{MAX_LINE, parse};
use vmm::control::reply::{Body, ControlError, ErrorCode};

use crate::one_line_log::{self, assert_one_line};

/// A socket whose other end sends and takes bytes in pieces.
struct Wire {
    sent: Vec<u8>,
    /// Bytes of `sent` that were read.
    read: usize,
    taken: Vec<u8>,
    piece: usize,
    /// Every other write finds the socket full.
    full: bool,
}

impl Read for &mut Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = &self.sent[self.read..];
        let length = left.len().min(into.len()).min(self.piece);
        into[..length].copy_from_slice(&left[..length]);
        self.read += length;
        Ok(length)
    }
}

impl Write for &mut Wire {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.full = !self.full;
        if self.full {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = from.len().min(self.piece);
        self.taken.extend_from_slice(&from[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn run(data: &[u8]) {
    one_line_log::start();
    let [piece, times, sent @ ..] = data else {
        return;
    };
    // Lines longer than an input can be, too, and those not byte by byte.
    let times = usize::from(times.saturating_sub(127)).max(1);
    let mut wire = Wire {
        sent: sent.repeat(times),
        read: 0,
        taken: Vec::new(),
        piece: times * (1 + 16 * usize::from(*piece)),
        full: false,
    };
    let requests = requests(&wire.sent);
    serve(&mut wire);
    let replies: Vec<_> = wire.taken.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(replies.len(), requests, "each request is answered once");
    for reply in replies {
        let text = std::str::from_utf8(reply).expect("JSON is UTF-8");
        assert!(Body::parse(reply).is_ok(), "{text} is a reply");
    }
}

/// How many requests there are in what is sent: lines with something in them.
fn requests(sent: &[u8]) -> usize {
    let lines = sent.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter(|line| match line.strip_suffix(b"\n") {
            Some(line) => line.len() > MAX_LINE || !line.trim_ascii().is_empty(),
            // One that does not end is none, unless it is too long for one.
            None => line.len() > MAX_LINE,
        })
        .count()
}

/// What the server does, with a VM that answers at once.
fn serve(wire: &mut Wire) {
    let now = Instant::now();
    let mut client = Client::new(wire, now);
    while !client.is_done() {
        if client.wants_input() {
            client.read(now).expect("the wire does not fail");
        }
        while let Some(line) = client.next_line() {
            let (body, id) = answer(line);
            client.tell(&body, id.as_ref(), now).expect("it reads");
        }
        client.flush(now).expect("the wire does not fail");
    }
}

fn answer(line: Line) -> (Body, Option<serde_json::Value>) {
    let Line::Whole(line) = line else {
        let error = ControlError::new(ErrorCode::BadRequest, "too long");
        return (Body::Failed(error), None);
    };
    assert!(line.len() <= MAX_LINE);
    match parse(&line) {
        Ok(request) => (Body::done(&json!({})), request.id),
        Err(bad) => {
            assert_one_line(&bad.error.message, 0);
            (Body::Failed(bad.error), bad.id)
        }
    }
}
