//! A stop before the machine runs: what the event loop waits for later is
//! looked at between two steps of building that take long.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use crate::config;
use crate::ending::{StopCause, Stopper};

/// Looks whether the user wants a stop, or a time limit has passed.
pub struct EarlyStop {
    user_stop: Epoll,
    limits: config::Timeout,
    exec: Instant,
    stopper: Arc<Stopper>,
}

impl EarlyStop {
    /// Requests of `stopper` to stop when `user_stop` is readable or one of
    /// `limits` passed, counted from `exec`.
    ///
    /// # Errors
    /// The errors of epoll.
    pub fn new(
        user_stop: &EventFd,
        limits: &config::Timeout,
        exec: Instant,
        stopper: Arc<Stopper>,
    ) -> std::io::Result<Self> {
        let epoll = Epoll::new()?;
        let fd = user_stop.as_raw_fd();
        let readable = EpollEvent::new(EventSet::IN, 0);
        epoll.ctl(ControlOperation::Add, fd, readable)?;
        Ok(Self {
            user_stop: epoll,
            limits: limits.clone(),
            exec,
            stopper,
        })
    }

    /// Whether to give up what is being done; requests the stop if so. Takes
    /// one system call and never blocks.
    #[must_use]
    pub fn is_due(&self, doing: &str) -> bool {
        if self.user_wants_it() {
            self.stopper.request(StopCause::Interrupted);
        }
        let limits = [("boot", self.limits.boot), ("run", self.limits.run)];
        for (key, limit) in limits {
            if limit > Duration::ZERO && self.exec.elapsed() >= limit {
                let what = format!("{doing} was not done within {limit:?} (timeout.{key})");
                self.stopper.request(StopCause::TimedOut(what));
            }
        }
        self.stopper.is_requested()
    }

    fn user_wants_it(&self) -> bool {
        let mut events = [EpollEvent::default()];
        // A look that a signal interrupted is repeated at the next chance.
        matches!(self.user_stop.wait(0, &mut events), Ok(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `is_due` requests, for limits in milliseconds that began 50 ms ago.
    fn cause(stop: bool, boot: u64, run: u64) -> Option<StopCause> {
        let user_stop = EventFd::new(libc::EFD_NONBLOCK).unwrap();
        if stop {
            user_stop.write(1).unwrap();
        }
        let limits = config::Timeout {
            boot: Duration::from_millis(boot),
            run: Duration::from_millis(run),
            pool: Duration::ZERO,
        };
        let stopper = Arc::new(Stopper::new().unwrap());
        let exec = Instant::now() - Duration::from_millis(50);
        let early = EarlyStop::new(&user_stop, &limits, exec, Arc::clone(&stopper)).unwrap();
        let due = early.is_due("building");
        assert_eq!(due, stopper.is_requested());
        assert_eq!(early.is_due("building"), due, "it stays so");
        stopper.cause().cloned()
    }

    #[test]
    fn the_user_and_both_limits_stop_what_takes_long() {
        let timed_out = |text: &str| Some(StopCause::TimedOut(text.to_owned()));
        assert_eq!(cause(false, 0, 0), None, "0 is no limit");
        assert_eq!(cause(false, 60_000, 60_000), None);
        assert_eq!(cause(true, 0, 0), Some(StopCause::Interrupted));
        assert_eq!(cause(true, 1, 1), Some(StopCause::Interrupted));
        assert_eq!(
            cause(false, 1, 0),
            timed_out("building was not done within 1ms (timeout.boot)")
        );
        assert_eq!(
            cause(false, 60_000, 2),
            timed_out("building was not done within 2ms (timeout.run)")
        );
    }
}
