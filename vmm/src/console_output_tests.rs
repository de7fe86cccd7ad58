//! The console against readers that take all, nothing, or go away.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Passes on what is written to it.
struct Taking(Sender<Vec<u8>>);

impl Write for Taking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .send(bytes.to_vec())
            .map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Never takes anything until it is let go.
struct Blocked(Receiver<()>);

impl Write for Blocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Failing(io::ErrorKind);

impl Write for Failing {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn console(output: impl Write + Send + 'static) -> (ConsoleOutput, ConsoleSink, Arc<Stopper>) {
    let stopper = Arc::new(Stopper::new().unwrap());
    let console = ConsoleOutput::start(Box::new(output), Arc::clone(&stopper)).unwrap();
    let sink = console.sink(Arc::new(Milestones::new().unwrap()));
    (console, sink, stopper)
}

/// Waits up to two seconds.
fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        condition()
    })
}

#[test]
fn every_byte_arrives_in_order_and_none_is_dropped() {
    let (sender, receiver) = channel();
    let (console, mut sink, _) = console(Taking(sender));
    let sent: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    for chunk in sent.chunks(7) {
        sink.transmit(chunk);
    }
    assert_eq!(console.close(), 0);
    assert_eq!(receiver.try_iter().flatten().collect::<Vec<_>>(), sent);
}

#[test]
fn bytes_are_gathered_into_few_writes() {
    let (sender, receiver) = channel();
    let (console, mut sink, _) = console(Taking(sender));
    for byte in b"a line of the kernel's log, byte by byte, as a UART sends it\n" {
        sink.transmit(&[*byte]);
    }
    assert_eq!(console.close(), 0);
    assert!(receiver.try_iter().count() <= 3);
}

#[test]
fn a_reader_that_stops_holds_nobody_up_and_what_is_lost_is_counted() {
    let (release, gate) = channel();
    let (console, mut sink, stopper) = console(Blocked(gate));
    let begun = Instant::now();
    for _ in 0..64 {
        sink.transmit(&[b'x'; 64 << 10]);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "a vCPU was held up"
    );
    assert!(!stopper.is_requested());
    assert_eq!(console.close(), 64 * (64 << 10), "all of it was lost");
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "closing is bounded"
    );
    drop(release);
}

#[test]
fn a_reader_that_went_away_stops_the_machine() {
    let (_console, mut sink, stopper) = console(Failing(io::ErrorKind::BrokenPipe));
    sink.transmit(b"x");
    assert!(eventually(|| stopper.is_requested()));
    assert_eq!(stopper.cause(), Some(&StopCause::ConsoleClosed));
}

#[test]
fn output_that_fails_otherwise_is_a_failure_with_its_reason() {
    let (_console, mut sink, stopper) = console(Failing(io::ErrorKind::StorageFull));
    sink.transmit(b"x");
    assert!(eventually(|| stopper.is_requested()));
    let Some(StopCause::Broken(message)) = stopper.cause() else {
        panic!("{:?}", stopper.cause());
    };
    assert!(message.starts_with("console output: "), "{message}");
}

#[test]
fn a_panic_is_seen_even_when_its_bytes_are_dropped() {
    let stopper = Arc::new(Stopper::new().unwrap());
    let milestones = Arc::new(Milestones::new().unwrap());
    let (release, gate) = channel();
    let console = ConsoleOutput::start(Box::new(Blocked(gate)), stopper).unwrap();
    let mut sink = console.sink(Arc::clone(&milestones));
    sink.transmit(&[b'x'; 1 << 20]);
    assert!(!milestones.has_panicked());
    sink.transmit(b"Kernel panic - not ");
    sink.transmit(b"syncing: test\n");
    assert!(milestones.has_panicked());
    let last = console.tail().pop().unwrap();
    assert!(last.ends_with("Kernel panic - not syncing: test"), "{last}");
    drop(release);
}
