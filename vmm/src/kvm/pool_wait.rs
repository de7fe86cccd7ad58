//! What a vCPU does when the huge page pool is empty: wait, not die.
//!
//! With `memory.overcommit` nothing is reserved, so a guest access may find no
//! page left. `KVM_RUN` then fails with EFAULT, the guest's registers are
//! unchanged, and trying again later is correct: as soon as somebody frees a
//! page, the guest goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// First pause; doubled up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(1);
/// Longest pause, and so the longest a freed page goes unnoticed.
const LONGEST: Duration = Duration::from_millis(64);

/// All waiting of all vCPUs.
#[derive(Debug, Default)]
pub struct PoolWaits {
    waits: AtomicU64,
    micros: AtomicU64,
}

impl PoolWaits {
    /// How many accesses had to wait, and for how long altogether.
    #[must_use]
    pub fn total(&self) -> (u64, Duration) {
        (
            self.waits.load(Ordering::Relaxed),
            Duration::from_micros(self.micros.load(Ordering::Relaxed)),
        )
    }
}

/// The waiting of one vCPU: call [`Self::pause`] each time the access fails and
/// [`Self::served`] when one succeeded.
pub struct PoolWait<'a> {
    total: &'a PoolWaits,
    since: Option<Instant>,
    next: Duration,
}

impl<'a> PoolWait<'a> {
    /// Not waiting; adds what it waits to `total`.
    #[must_use]
    pub fn new(total: &'a PoolWaits) -> Self {
        Self {
            total,
            since: None,
            next: SHORTEST,
        }
    }

    /// Pauses, longer each time. Ends early if the thread is unparked, which
    /// is how a stop gets through.
    pub fn pause(&mut self) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            let before = self.total.waits.fetch_add(1, Ordering::Relaxed);
            // Once for people; the results carry the number.
            if before == 0 {
                log::warn!(
                    "the huge page pool is empty: a vCPU waits until a page is freed \
                     (memory.overcommit)"
                );
            }
        }
        let begun = Instant::now();
        thread::park_timeout(self.next);
        let paused = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.total.micros.fetch_add(paused, Ordering::Relaxed);
        self.next = (self.next * 2).min(LONGEST);
    }

    /// Notes that the access went through. Cheap when nothing was waited for.
    pub fn served(&mut self) {
        if let Some(since) = self.since.take() {
            log::debug!("a vCPU waited {:?} for a huge page", since.elapsed());
            self.next = SHORTEST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_access_that_waits_is_counted_once_however_often_it_is_tried() {
        let total = PoolWaits::default();
        let mut wait = PoolWait::new(&total);
        for _ in 0..3 {
            wait.pause();
        }
        let (waits, waited) = total.total();
        assert_eq!(waits, 1);
        assert!(waited >= Duration::from_millis(1 + 2 + 4), "{waited:?}");

        wait.served();
        wait.pause();
        assert_eq!(total.total().0, 2, "the next access is another wait");
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_over_once_served() {
        let total = PoolWaits::default();
        let mut wait = PoolWait::new(&total);
        for _ in 0..10 {
            // Unparked before: returns at once, so that this test does not wait.
            thread::current().unpark();
            wait.pause();
        }
        assert_eq!(wait.next, LONGEST);
        wait.served();
        assert_eq!(wait.next, SHORTEST);
    }
}
