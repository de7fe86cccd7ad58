//! The console's way out: vCPUs put bytes into a bounded queue, a thread of its
//! own writes them. Whoever reads the console may stop reading; then bytes are
//! dropped and counted, and no vCPU ever waits.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use devices::serial::SerialSink;

use crate::console_panic::PanicScanner;
use crate::ending::{StopCause, Stopper};
use crate::milestones::Milestones;
use crate::tail::Tail;

/// Bytes that wait for a slow reader at most.
const QUEUE_BYTES: usize = 128 << 10;

/// How long output is gathered before it is written: a UART transmits byte by
/// byte, and a write for each would cost more than the guest's own work.
const GATHER: Duration = Duration::from_millis(4);

/// How long closing waits for a reader that takes nothing at all.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// Bytes taken out and being written.
    in_flight: usize,
    /// Bytes written so far, by which closing sees progress.
    written: u64,
    dropped: u64,
    /// No more bytes come.
    closing: bool,
    /// Nothing is written any more: all is done, or the reader is gone.
    ended: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when the thread has something to do, and when it did it.
    changed: Condvar,
    /// The last of it, whether anybody read it or not.
    tail: Tail,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes, or counts those that find no room.
    fn push(&self, bytes: &[u8]) {
        self.tail.push(bytes);
        let mut queue = self.lock();
        let room = QUEUE_BYTES.saturating_sub(queue.bytes.len());
        let (taken, dropped) = bytes.split_at(bytes.len().min(room));
        if queue.ended {
            queue.dropped += bytes.len() as u64;
            return;
        }
        queue.dropped += dropped.len() as u64;
        let was_empty = queue.bytes.is_empty();
        queue.bytes.extend(taken);
        drop(queue);
        if was_empty {
            self.changed.notify_all();
        }
    }
}

/// The thread that writes, seen from the run.
pub struct ConsoleOutput {
    shared: Arc<Shared>,
}

impl ConsoleOutput {
    /// Starts the thread that writes to `output`. It requests a stop when
    /// nobody reads there any more.
    ///
    /// # Errors
    /// The error of starting the thread.
    pub fn start(output: Box<dyn Write + Send>, stopper: Arc<Stopper>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("console".to_string())
            .stack_size(128 << 10)
            .spawn(move || write_all_that_comes(&theirs, output, &stopper))?;
        Ok(Self { shared })
    }

    /// What the serial port transmits into.
    #[must_use]
    pub fn sink(&self, milestones: Arc<Milestones>) -> ConsoleSink {
        ConsoleSink {
            shared: Arc::clone(&self.shared),
            scanner: PanicScanner::default(),
            milestones,
        }
    }

    /// The last lines so far, read or not.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        self.shared.tail.lines()
    }

    /// Takes output that does not come from a serial port of this process.
    pub fn push(&self, bytes: &[u8]) {
        self.shared.push(bytes);
    }

    /// Waits until all is written, as long as the reader takes something now and
    /// then; returns how many bytes were dropped. A thread whose write never
    /// returns is left behind.
    #[must_use]
    pub fn close(self) -> u64 {
        let mut queue = self.shared.lock();
        queue.closing = true;
        self.shared.changed.notify_all();
        let mut written = queue.written;
        let mut progress = Instant::now();
        while !queue.ended {
            let left = CLOSE_PATIENCE.saturating_sub(progress.elapsed());
            if left.is_zero() {
                break;
            }
            let wait = self.shared.changed.wait_timeout(queue, left);
            queue = wait.unwrap_or_else(PoisonError::into_inner).0;
            if queue.written != written {
                written = queue.written;
                progress = Instant::now();
            }
        }
        queue.dropped + (queue.bytes.len() + queue.in_flight) as u64
    }
}

impl Drop for ConsoleOutput {
    /// Lets the thread end, if the machine was never finished.
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
    }
}

/// The thread.
fn write_all_that_comes(shared: &Shared, mut output: Box<dyn Write + Send>, stopper: &Stopper) {
    let mut batch = Vec::new();
    loop {
        let mut queue = shared.lock();
        while queue.bytes.is_empty() && !queue.closing {
            let wait = shared.changed.wait(queue);
            queue = wait.unwrap_or_else(PoisonError::into_inner);
        }
        if !queue.closing {
            drop(queue);
            thread::sleep(GATHER);
            queue = shared.lock();
        }
        batch.clear();
        batch.extend(queue.bytes.drain(..));
        queue.in_flight = batch.len();
        let last = queue.closing && batch.is_empty();
        drop(queue);
        let result = if last {
            Ok(())
        } else {
            write_batch(shared, &mut output, &batch)
        };
        if last || result.is_err() {
            shared.lock().ended = true;
            shared.changed.notify_all();
        }
        match result {
            Ok(()) if last => return,
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                log::warn!("stdout is closed: nobody reads the console any more");
                return stopper.request(StopCause::ConsoleClosed);
            }
            Err(error) => {
                return stopper.request(StopCause::Broken(format!("console output: {error}")));
            }
        }
    }
}

fn write_batch(shared: &Shared, output: &mut dyn Write, batch: &[u8]) -> io::Result<()> {
    let mut left = batch;
    while !left.is_empty() {
        match output.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                left = left.get(n..).unwrap_or_default();
                let mut queue = shared.lock();
                queue.written += n as u64;
                queue.in_flight = left.len();
                drop(queue);
                shared.changed.notify_all();
            }
            // Somebody made our stdout non-blocking, as shells share it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(GATHER),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    output.flush()
}

/// Takes what the guest's console transmits.
pub struct ConsoleSink {
    shared: Arc<Shared>,
    scanner: PanicScanner,
    milestones: Arc<Milestones>,
}

impl SerialSink for ConsoleSink {
    fn transmit(&mut self, bytes: &[u8]) {
        if self.scanner.scan(bytes) {
            self.milestones.panicked();
        }
        self.shared.push(bytes);
    }
}

#[cfg(test)]
#[path = "console_output_tests.rs"]
mod tests;
