//! Hands the guest's console output to its reader without ever waiting for it.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// What a reader may lag behind before output is dropped.
const BACKLOG: usize = 1 << 20;

/// The writing end, beside a thread that may block.
pub(super) struct ConsoleWriter {
    shared: Arc<Shared>,
    /// Readable once the reader is gone.
    pub(super) reader_gone: EventFd,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    writing: bool,
    closed: bool,
    broken: bool,
    dropped: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsoleWriter {
    pub(super) fn start(output: Box<dyn Write + Send>) -> std::io::Result<Self> {
        let reader_gone = EventFd::new(EFD_NONBLOCK)?;
        let shared = Arc::new(Shared::default());
        let (theirs, gone) = (Arc::clone(&shared), reader_gone.try_clone()?);
        // Detached: it may be stuck in a write for as long as the reader likes.
        thread::Builder::new()
            .name("console-out".into())
            .spawn(move || write_out(&theirs, output, &gone))?;
        Ok(Self {
            shared,
            reader_gone,
        })
    }

    /// Takes output, or counts what finds no room.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.shared.lock();
        let room = if state.broken {
            0
        } else {
            BACKLOG.saturating_sub(state.waiting.len())
        };
        let (taken, dropped) = bytes.split_at(bytes.len().min(room));
        state.waiting.extend_from_slice(taken);
        state.dropped += u64::try_from(dropped.len()).unwrap_or(u64::MAX);
        self.shared.changed.notify_all();
    }

    /// Waits up to `patience` for the reader to take the rest, then gives up.
    /// Returns the bytes that were not taken.
    pub(super) fn finish(self, patience: Duration) -> u64 {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.changed.notify_all();
        while !state.broken && (state.writing || !state.waiting.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.dropped + u64::try_from(state.waiting.len()).unwrap_or(u64::MAX)
    }
}

fn write_out(shared: &Shared, mut output: Box<dyn Write + Send>, gone: &EventFd) {
    let mut state = shared.lock();
    loop {
        if state.waiting.is_empty() {
            if state.closed {
                return;
            }
            state = shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let bytes = std::mem::take(&mut state.waiting);
        state.writing = true;
        drop(state);
        let result = output.write_all(&bytes).and_then(|()| output.flush());
        state = shared.lock();
        state.writing = false;
        if result.is_err() {
            state.broken = true;
            state.dropped += u64::try_from(bytes.len() + state.waiting.len()).unwrap_or(u64::MAX);
            state.waiting.clear();
            // Fails only when the counter is full, and then it is readable anyway.
            let _ = gone.write(1);
        }
        shared.changed.notify_all();
        if state.broken {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn output_arrives_whole_and_in_order() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let console = ConsoleWriter::start(Box::new(writer)).unwrap();
        for n in 0..1000 {
            console.push(format!("{n}\n").as_bytes());
        }
        assert_eq!(console.finish(Duration::from_secs(5)), 0);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(
            text,
            (0..1000).map(|n| format!("{n}\n")).collect::<String>()
        );
    }

    #[test]
    fn a_reader_that_stops_reading_holds_nobody_and_what_it_misses_is_counted() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let console = ConsoleWriter::start(Box::new(writer)).unwrap();
        let total = 4 * BACKLOG;
        let start = Instant::now();
        (0..total / 4096).for_each(|_| console.push(&[b'x'; 4096]));
        let dropped = console.finish(Duration::from_millis(50));
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(
            dropped >= u64::try_from(total - 2 * BACKLOG).unwrap(),
            "{dropped} of {total} bytes"
        );
        drop(reader);
    }

    #[test]
    fn a_reader_that_is_gone_is_noticed() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let console = ConsoleWriter::start(Box::new(Gone)).unwrap();
        console.push(b"lost");
        let deadline = Instant::now() + Duration::from_secs(5);
        while console.reader_gone.read().is_err() {
            assert!(
                Instant::now() < deadline,
                "the broken reader was not noticed"
            );
            thread::sleep(Duration::from_millis(1));
        }
        console.push(b"more");
        assert_eq!(console.finish(Duration::ZERO), 8);
    }
}
