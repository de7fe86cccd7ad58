//! What happens when the huge page pool is empty: the guest waits, and does not
//! die.
//!
//! With `memory.overcommit` nothing is reserved, and the kernel may fail to renew a
//! reservation when pages are given back, so a guest access may find no page left. Two things happen then, and both are waiting:
//!
//! - KVM takes the failed fault for one that needs I/O and tries it again and
//!   again inside the kernel ("asynchronous page fault"). From outside it shows
//!   only in the vCPU's [`FaultCounts`], which are looked at ten times a second
//!   with the pool.
//! - Where KVM cannot do that, for one because the guest has interrupts off,
//!   KVM_RUN fails with EFAULT. The guest's registers are unchanged, and trying
//!   again later is correct.
//!
//! As soon as somebody frees a page, the guest goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::fault_counts::{FaultCounts, Faults};

/// First pause; doubled up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(1);
/// Longest pause, and so the longest a freed page goes unnoticed.
const LONGEST: Duration = Duration::from_millis(64);

/// All that was seen of an empty pool.
#[derive(Debug, Default)]
pub struct PoolShortage {
    refused: AtomicU64,
    pausing: AtomicUsize,
    empty_micros: AtomicU64,
    told: AtomicBool,
    looks: Mutex<Looks>,
}

/// What one look is compared with.
#[derive(Debug, Default)]
struct Looks {
    counts: Vec<FaultCounts>,
    last: Vec<Faults>,
    waits: Waits,
}

/// How long vCPUs waited, as far as looks can tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Until now, without a break; zero if none waits.
    pub now: Duration,
    /// In all.
    pub total: Duration,
    /// How often it began.
    pub count: u64,
}

impl PoolShortage {
    /// Nothing seen yet; `counts` are those of the vCPUs.
    #[must_use]
    pub fn new(counts: Vec<FaultCounts>) -> Self {
        let looks = Looks {
            counts,
            ..Looks::default()
        };
        Self {
            looks: Mutex::new(looks),
            ..Self::default()
        }
    }

    /// Notes that the pool has `free` pages and that `passed` went by since the
    /// last look; returns how long some vCPU waits.
    pub fn look(&self, free: Option<u64>, passed: Duration) -> Duration {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let empty = free == Some(0);
        let faulting = looks.any_faults_in_vain();
        if empty {
            let passed = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
            self.empty_micros.fetch_add(passed, Ordering::Relaxed);
        }
        let waiting = empty && (faulting || self.pausing.load(Ordering::Relaxed) > 0);
        if waiting {
            self.tell();
        }
        looks.waits.note(waiting, passed)
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

    /// How long vCPUs waited.
    #[must_use]
    pub fn waits(&self) -> Waits {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.waits
    }

    /// Once for people; the results carry the numbers.
    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the huge page pool is empty: a vCPU that touches new memory waits until a \
                 page is freed"
            );
        }
    }
}

impl Looks {
    /// Whether a vCPU faulted since the last look and none of it was fixed.
    fn any_faults_in_vain(&mut self) -> bool {
        let now: Vec<_> = self.counts.iter().map(FaultCounts::read).collect();
        let now: Vec<Faults> = now.into_iter().map(Result::unwrap_or_default).collect();
        let last = std::mem::replace(&mut self.last, now);
        let mut pairs = last.iter().zip(&self.last);
        pairs.any(|(last, now)| now.taken > last.taken && now.fixed == last.fixed)
    }
}

impl Waits {
    /// Adds a look to the wait, or ends it; returns how long it lasts.
    fn note(&mut self, waiting: bool, passed: Duration) -> Duration {
        if !waiting {
            self.now = Duration::ZERO;
            return self.now;
        }
        if self.now.is_zero() {
            self.count = self.count.saturating_add(1);
        }
        self.now = self.now.saturating_add(passed);
        self.total = self.total.saturating_add(passed);
        self.now
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
            self.total.pausing.fetch_add(1, Ordering::Relaxed);
            self.total.tell();
        }
        thread::park_timeout(self.next);
        self.next = (self.next * 2).min(LONGEST);
    }

    /// Notes that the access went through. Cheap when nothing was waited for.
    pub fn served(&mut self) {
        if let Some(since) = self.since.take() {
            self.total.pausing.fetch_sub(1, Ordering::Relaxed);
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
    fn an_empty_pool_alone_is_no_wait() {
        let total = PoolShortage::default();
        let tenth = Duration::from_millis(100);
        for free in [Some(1), Some(0), None, Some(0), Some(7)] {
            assert_eq!(total.look(free, tenth), Duration::ZERO);
        }
        assert_eq!(total.empty(), 2 * tenth);
        assert_eq!(total.waits(), Waits::default());
    }

    #[test]
    fn a_wait_lasts_until_the_access_went_through_or_the_pool_has_a_page() {
        let total = PoolShortage::default();
        let tenth = Duration::from_millis(100);
        let mut wait = PoolWait::new(&total);
        wait.pause();
        assert_eq!(total.look(Some(0), tenth), tenth);
        assert_eq!(total.look(Some(0), 2 * tenth), 3 * tenth);
        assert_eq!(total.look(Some(1), tenth), Duration::ZERO);
        assert_eq!(total.look(Some(0), tenth), tenth);
        wait.served();
        assert_eq!(total.look(Some(0), tenth), Duration::ZERO);
        let waits = Waits {
            now: Duration::ZERO,
            total: 4 * tenth,
            count: 2,
        };
        assert_eq!(total.waits(), waits);
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
