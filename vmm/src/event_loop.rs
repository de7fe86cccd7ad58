//! What the main thread waits for while the guest runs: the user, the guest's
//! milestones, time limits, and console input.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use event_manager::{EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberOps};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::timerfd::TimerFd;

use crate::config;
use crate::console_input::{ConsoleInput, Next};
use crate::ending::{StopCause, Stopper};
use crate::milestones::Milestones;

/// How long a panicking guest has to print the rest and to reset by itself.
const PANIC_GRACE: Duration = Duration::from_secs(1);
/// When to look again whether the guest took input; a 115200 baud line would
/// have carried a FIFO of 64 bytes by then.
const INPUT_RETRY: Duration = Duration::from_millis(5);
/// No timer can be set to nothing: a limit that has passed already fires at once.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// How often the pool behind an overcommitted guest is looked at.
const POOL_INTERVAL: Duration = Duration::from_millis(100);

/// Event sources that can be ready at once: one slot for each.
const SOURCES: usize = 9;

const USER_STOP: u32 = 0;
const MACHINE_STOP: u32 = 1;
const MILESTONE: u32 = 2;
const BOOT_LIMIT: u32 = 3;
const RUN_LIMIT: u32 = 4;
const PANIC_LIMIT: u32 = 5;
const INPUT: u32 = 6;
const INPUT_AGAIN: u32 = 7;
const POOL: u32 = 8;

/// Why the loop could not run.
#[derive(Debug, thiserror::Error)]
pub enum EventLoopError {
    /// A timer could not be made or set.
    #[error("event loop: timer: {0}")]
    Timer(#[from] vmm_sys_util::errno::Error),
    /// Waiting failed.
    #[error("event loop: {0}")]
    Wait(#[from] event_manager::Error),
}

/// What the loop listens to and what it calls.
pub struct Connections<'a> {
    /// Readable when the user wants it to stop.
    pub user_stop: &'a EventFd,
    /// Where all requests to stop meet.
    pub stopper: &'a Stopper,
    /// What the guest reached.
    pub milestones: &'a Milestones,
    /// Console input.
    pub input: Option<ConsoleInput>,
    /// Called once, when the guest's init gave its first line.
    pub on_init: Box<dyn FnOnce() + 'a>,
    /// Called ten times a second with the time since the last call; returns how
    /// long a vCPU has been waiting for a page of the pool.
    pub pool_watch: Option<Box<dyn Fn(Duration) -> Duration + 'a>>,
}

/// What is waited for, and what is told.
pub struct EventLoop<'a> {
    user_stop: &'a EventFd,
    stopper: &'a Stopper,
    milestones: &'a Milestones,
    on_init: Option<Box<dyn FnOnce() + 'a>>,
    pool_watch: Option<Box<dyn Fn(Duration) -> Duration + 'a>>,
    input: Option<ConsoleInput>,
    /// Whether readiness of the input can be waited for: not of a regular file.
    input_polls: bool,
    limits: config::Timeout,
    boot: TimerFd,
    run: TimerFd,
    panic: TimerFd,
    input_again: TimerFd,
    pool: TimerFd,
    /// What went wrong inside a callback, which cannot return it.
    failed: Option<EventLoopError>,
}

impl<'a> EventLoop<'a> {
    /// Prepares the loop; time limits count from `exec`.
    ///
    /// # Errors
    /// [`EventLoopError::Timer`].
    pub fn new(
        to: Connections<'a>,
        limits: &config::Timeout,
        exec: Instant,
    ) -> Result<Self, EventLoopError> {
        let limit = |limit: Duration| {
            let mut timer = TimerFd::new()?;
            if !limit.is_zero() {
                timer.reset(limit.saturating_sub(exec.elapsed()).max(AT_ONCE), None)?;
            }
            Ok::<_, EventLoopError>(timer)
        };
        let mut pool = TimerFd::new()?;
        if to.pool_watch.is_some() {
            pool.reset(POOL_INTERVAL, Some(POOL_INTERVAL))?;
        }
        Ok(Self {
            user_stop: to.user_stop,
            stopper: to.stopper,
            milestones: to.milestones,
            on_init: Some(to.on_init),
            pool_watch: to.pool_watch,
            input: to.input,
            input_polls: true,
            limits: limits.clone(),
            boot: limit(limits.boot)?,
            run: limit(limits.run)?,
            panic: TimerFd::new()?,
            input_again: TimerFd::new()?,
            pool,
            failed: None,
        })
    }

    /// Runs until a stop is requested, by whomever.
    ///
    /// # Errors
    /// [`EventLoopError`].
    pub fn run(self) -> Result<(), EventLoopError> {
        let stopper = self.stopper;
        let mut manager = EventManager::new_with_capacity(SOURCES)?;
        let id = manager.add_subscriber(self);
        loop {
            if let Some(error) = manager.subscriber_mut(id)?.failed.take() {
                return Err(error);
            }
            if stopper.is_requested() {
                return Ok(());
            }
            manager.run()?;
        }
    }

    fn milestone(&mut self) -> Result<(), EventLoopError> {
        // Several may have been folded into one; each is looked at below.
        let _ = self.milestones.event().read();
        if self.milestones.has_init() {
            if let Some(on_init) = self.on_init.take() {
                self.boot.clear()?;
                on_init();
            }
        }
        if self.milestones.has_panicked() && !self.panic.is_armed()? {
            log::warn!("the guest's kernel panics");
            self.panic.reset(PANIC_GRACE, None)?;
        }
        Ok(())
    }

    fn timed_out(&self, what: &str, limit: Duration, key: &str) {
        let what = format!("{what} within {limit:?} (timeout.{key}); raise it for a slow machine");
        self.stopper.request(StopCause::TimedOut(what));
    }

    fn look_at_pool(&mut self) -> Result<(), EventLoopError> {
        let intervals = u32::try_from(self.pool.wait()?).unwrap_or(u32::MAX);
        if let Some(watch) = &self.pool_watch {
            let waited = watch(POOL_INTERVAL.saturating_mul(intervals));
            let limit = self.limits.pool;
            if !limit.is_zero() && waited >= limit {
                self.timed_out("no page of the empty huge page pool", limit, "pool");
            }
        }
        Ok(())
    }

    /// Forwards input and arranges for the next time.
    fn forward_input(&mut self, ops: &mut EventOps) -> Result<(), EventLoopError> {
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        let next = input.forward();
        // Taken out while it is not wanted: even with no event asked for, epoll
        // would report a hang-up over and over.
        let events = Events::with_data(input, INPUT, EventSet::IN);
        if self.input_polls && next != Next::WhenReadable {
            ops.remove(events)?;
            self.input_polls = false;
        }
        match next {
            Next::WhenReadable if self.input_polls => {}
            Next::WhenReadable | Next::WhenTaken => {
                self.input_again.reset(INPUT_RETRY, None)?;
            }
            Next::Never => self.input = None,
        }
        Ok(())
    }

    /// The moment after the guest's FIFO was full, or a regular file was read.
    fn input_again(&mut self, ops: &mut EventOps) -> Result<(), EventLoopError> {
        self.input_again.wait()?;
        self.wait_for_input(ops)
    }

    /// Waits for input where that is possible; reads it right away where not.
    fn wait_for_input(&mut self, ops: &mut EventOps) -> Result<(), EventLoopError> {
        let Some(input) = &self.input else {
            return Ok(());
        };
        self.input_polls = ops
            .add(Events::with_data(input, INPUT, EventSet::IN))
            .is_ok();
        if self.input_polls {
            return Ok(());
        }
        self.forward_input(ops)
    }

    fn add(&mut self, ops: &mut EventOps) -> Result<(), EventLoopError> {
        let sources: [(&dyn AsRawFd, u32); 8] = [
            (self.user_stop, USER_STOP),
            (self.stopper.event(), MACHINE_STOP),
            (self.milestones.event(), MILESTONE),
            (&self.boot, BOOT_LIMIT),
            (&self.run, RUN_LIMIT),
            (&self.panic, PANIC_LIMIT),
            (&self.input_again, INPUT_AGAIN),
            (&self.pool, POOL),
        ];
        for (source, data) in sources {
            ops.add(Events::with_data_raw(
                source.as_raw_fd(),
                data,
                EventSet::IN,
            ))?;
        }
        self.wait_for_input(ops)
    }
}

impl MutEventSubscriber for EventLoop<'_> {
    fn init(&mut self, ops: &mut EventOps) {
        self.failed = self.add(ops).err();
    }

    fn process(&mut self, events: Events, ops: &mut EventOps) {
        let done = match events.data() {
            USER_STOP => {
                // Stays readable for whoever else waits for it.
                self.stopper.request(StopCause::Interrupted);
                Ok(())
            }
            MILESTONE => self.milestone(),
            BOOT_LIMIT => {
                let what = "no line from the guest's init on its second serial port";
                self.timed_out(what, self.limits.boot, "boot");
                Ok(())
            }
            RUN_LIMIT => {
                self.timed_out("the guest did not finish", self.limits.run, "run");
                Ok(())
            }
            PANIC_LIMIT => {
                self.stopper.request(StopCause::Panic);
                Ok(())
            }
            INPUT => self.forward_input(ops),
            INPUT_AGAIN => self.input_again(ops),
            POOL => self.look_at_pool(),
            // A machine that stops is what the loop's end looks for.
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.failed = Some(error);
        }
    }
}

#[cfg(test)]
#[path = "event_loop_tests.rs"]
mod tests;
