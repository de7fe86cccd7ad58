//! The event loop without a machine: everything it waits for is made here.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;

use devices::interrupt::Interrupt;
use devices::serial::{SerialPort, SerialSink};

use super::*;

struct Fixture {
    user_stop: EventFd,
    stopper: Stopper,
    milestones: Milestones,
}

impl Fixture {
    fn new() -> Self {
        Self {
            user_stop: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
            stopper: Stopper::new().unwrap(),
            milestones: Milestones::new().unwrap(),
        }
    }

    /// Runs the loop with limits in milliseconds; returns the cause and whether
    /// the init was noticed.
    fn run(&self, boot: u64, run: u64, input: Option<ConsoleInput>) -> (StopCause, bool) {
        let limits = config::Timeout {
            boot: Duration::from_millis(boot),
            run: Duration::from_millis(run),
            pool: Duration::ZERO,
        };
        let noticed = Cell::new(false);
        let to = Connections {
            user_stop: &self.user_stop,
            stopper: &self.stopper,
            milestones: &self.milestones,
            input,
            on_init: Box::new(|| noticed.set(true)),
            pool_watch: None,
        };
        let event_loop = EventLoop::new(to, &limits, Instant::now());
        event_loop.unwrap().run().unwrap();
        (self.stopper.cause().unwrap().clone(), noticed.get())
    }
}

#[test]
fn the_user_stops_it_even_before_it_began() {
    let fixture = Fixture::new();
    fixture.user_stop.write(1).unwrap();
    assert_eq!(fixture.run(0, 0, None).0, StopCause::Interrupted);
    assert_eq!(
        fixture.user_stop.read().unwrap(),
        1,
        "still readable for others"
    );
}

#[test]
fn a_guest_that_powers_off_ends_it() {
    let fixture = Fixture::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            fixture.stopper.request(StopCause::PowerOff);
        });
        assert_eq!(fixture.run(0, 0, None).0, StopCause::PowerOff);
    });
}

#[test]
fn without_a_sign_from_init_the_boot_limit_ends_it() {
    let (cause, noticed) = Fixture::new().run(20, 0, None);
    let StopCause::TimedOut(what) = cause else {
        panic!("{cause:?}");
    };
    assert!(what.contains("20ms (timeout.boot)"), "{what}");
    assert!(!noticed);
}

#[test]
fn once_init_is_up_only_the_run_limit_counts() {
    let fixture = Fixture::new();
    fixture.milestones.init_is_up();
    let (cause, noticed) = fixture.run(20, 80, None);
    let StopCause::TimedOut(what) = cause else {
        panic!("{cause:?}");
    };
    assert!(what.contains("80ms (timeout.run)"), "{what}");
    assert!(noticed);
}

#[test]
fn a_panic_ends_it_after_a_grace_in_which_the_guest_may_reset() {
    let fixture = Fixture::new();
    fixture.milestones.panicked();
    let begun = Instant::now();
    assert_eq!(fixture.run(0, 0, None).0, StopCause::Panic);
    assert!(begun.elapsed() >= PANIC_GRACE);

    let fixture = Fixture::new();
    fixture.milestones.panicked();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            fixture.stopper.request(StopCause::Reset);
        });
        assert_eq!(fixture.run(0, 0, None).0, StopCause::Reset);
    });
}

#[test]
fn the_pool_is_looked_at_ten_times_a_second() {
    let fixture = Fixture::new();
    let seen = Cell::new(Duration::ZERO);
    let to = Connections {
        user_stop: &fixture.user_stop,
        stopper: &fixture.stopper,
        milestones: &fixture.milestones,
        input: None,
        on_init: Box::new(|| {}),
        pool_watch: Some(Box::new(|passed| {
            seen.set(seen.get() + passed);
            Duration::ZERO
        })),
    };
    let limits = config::Timeout {
        boot: Duration::ZERO,
        run: Duration::from_millis(250),
        pool: Duration::ZERO,
    };
    EventLoop::new(to, &limits, Instant::now())
        .unwrap()
        .run()
        .unwrap();
    assert_eq!(seen.get(), Duration::from_millis(200));
}

#[test]
fn a_vcpu_waits_for_the_pool_as_long_as_the_limit_says() {
    let run = |pool_limit: u64| {
        let fixture = Fixture::new();
        let waited = Cell::new(Duration::ZERO);
        let to = Connections {
            user_stop: &fixture.user_stop,
            stopper: &fixture.stopper,
            milestones: &fixture.milestones,
            input: None,
            on_init: Box::new(|| {}),
            pool_watch: Some(Box::new(|passed| {
                waited.set(waited.get() + passed);
                waited.get()
            })),
        };
        let limits = config::Timeout {
            boot: Duration::ZERO,
            run: Duration::from_millis(350),
            pool: Duration::from_millis(pool_limit),
        };
        let ends = EventLoop::new(to, &limits, Instant::now()).unwrap().run();
        ends.unwrap();
        let cause = fixture.stopper.cause().cloned();
        match cause {
            Some(StopCause::TimedOut(what)) => what,
            other => panic!("{other:?}"),
        }
    };
    assert!(run(0).contains("timeout.run"), "no limit");
    assert!(run(200).contains("timeout.pool"));
    assert!(run(10_000).contains("timeout.run"), "a limit not reached");
}

struct NoInterrupt;

impl Interrupt for NoInterrupt {
    fn trigger(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(Default, Clone)]
struct Transmitted(Arc<Mutex<Vec<u8>>>);

impl SerialSink for Transmitted {
    fn transmit(&mut self, bytes: &[u8]) {
        self.0.lock().unwrap().extend(bytes);
    }
}

fn serial() -> Arc<SerialPort> {
    Arc::new(SerialPort::new(
        Arc::new(NoInterrupt),
        Box::new(Transmitted::default()),
    ))
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Runs the loop for 200 ms with `input`; it must not have been busy.
fn run_idle(input: File) {
    let fixture = Fixture::new();
    let before = cpu_time();
    let (cause, _) = fixture.run(0, 200, Some(ConsoleInput::new(input, serial())));
    assert!(matches!(cause, StopCause::TimedOut(_)));
    assert!(
        cpu_time() - before < Duration::from_millis(100),
        "the loop was busy"
    );
}

#[test]
fn input_of_any_kind_neither_ends_the_loop_nor_makes_it_busy() {
    // A device that epoll refuses, at its end at once.
    run_idle(File::open("/dev/null").unwrap());
    // One that epoll refuses and that never ends; the guest takes nothing.
    run_idle(File::open("/dev/zero").unwrap());
    // A regular file.
    run_idle(File::open("/proc/self/exe").unwrap());
    // A directory, which cannot be read.
    run_idle(File::open("/").unwrap());
    // A pipe whose writer is gone.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    run_idle(File::from(OwnedFd::from(reader)));
    // A pipe with more than the guest takes, whose writer goes away.
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; 4096]).unwrap();
    drop(writer);
    run_idle(File::from(OwnedFd::from(reader)));
    // A pipe in which nothing comes.
    let (reader, _writer) = std::io::pipe().unwrap();
    run_idle(File::from(OwnedFd::from(reader)));
}
