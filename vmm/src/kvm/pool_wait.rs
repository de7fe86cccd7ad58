//! What happens when the huge page pool is empty: the guest waits, and does not
//! die.
//!
//! With `memory.overcommit` nothing is reserved, so a guest access may find no
//! page left. Two things happen then, and both are waiting:
//!
//! - KVM takes the failed fault for one that needs I/O and tries it again and
//!   again inside the kernel ("asynchronous page fault"). Nothing of it is seen
//!   from outside, so the pool itself is looked at, a few times a second.
//! - Where KVM cannot do that, for one because the guest has interrupts off,
//!   KVM_RUN fails with EFAULT. The guest's registers are unchanged, and trying
//!   again later is correct.
//!
//! As soon as somebody frees a page, the guest goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// First pause; doubled up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(1);
/// Longest pause, and so the longest a freed page goes unnoticed.
const LONGEST: Duration = Duration::from_millis(64);

/// All that was seen of an empty pool.
#[derive(Debug, Default)]
pub struct PoolShortage {
    refused: AtomicU64,
    empty_micros: AtomicU64,
    told: AtomicBool,
}

impl PoolShortage {
    /// Notes that the pool has `free` pages and that `passed` went by since the
    /// last look.
    pub fn look(&self, free: Option<u64>, passed: Duration) {
        if free == Some(0) {
            let passed = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
            self.empty_micros.fetch_add(passed, Ordering::Relaxed);
            self.tell();
        }
    }

    /// Accesses KVM refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How long the pool was seen empty.
    #[must_use]
    pub fn empty(&self) -> Duration {
        Duration::from_micros(self.empty_micros.load(Ordering::Relaxed))
    }

    /// Once for people; the results carry the numbers.
    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the huge page pool is empty: a vCPU that touches new memory waits until a \
                 page is freed (memory.overcommit)"
            );
        }
    }
}

/// The waiting of one vCPU: call [`Self::pause`] each time the access fails and
/// [`Self::served`] when one succeeded.
pub struct PoolWait<'a> {
    total: &'a PoolShortage,
    since: Option<Instant>,
    next: Duration,
}

impl<'a> PoolWait<'a> {
    /// Not waiting; counts into `total`.
    #[must_use]
    pub fn new(total: &'a PoolShortage) -> Self {
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
            self.total.refused.fetch_add(1, Ordering::Relaxed);
            self.total.tell();
        }
        thread::park_timeout(self.next);
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
        let total = PoolShortage::default();
        let mut wait = PoolWait::new(&total);
        let begun = Instant::now();
        for _ in 0..3 {
            wait.pause();
        }
        assert_eq!(total.refused(), 1);
        assert!(begun.elapsed() >= Duration::from_millis(1 + 2 + 4));

        wait.served();
        wait.pause();
        assert_eq!(total.refused(), 2, "the next access is another one");
    }

    #[test]
    fn only_looks_at_an_empty_pool_add_up() {
        let total = PoolShortage::default();
        let tenth = Duration::from_millis(100);
        for free in [Some(1), Some(0), None, Some(0), Some(7)] {
            total.look(free, tenth);
        }
        assert_eq!(total.empty(), 2 * tenth);
        assert_eq!(total.refused(), 0);
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_over_once_served() {
        let total = PoolShortage::default();
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
