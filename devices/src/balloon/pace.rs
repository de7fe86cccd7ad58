//! How fast memory is cleared: so that clearing ahead of time does not take the
//! memory bandwidth the guest needs now.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest sleep before looking whether to go on at all.
const NAP: Duration = Duration::from_millis(5);

/// Keeps a rate by pausing after work that was done.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes per second; `None` is no limit.
    rate: Option<NonZeroU64>,
    /// Before this nothing more is to be cleared.
    next: Option<Instant>,
}

impl Pace {
    /// At most `rate` bytes per second.
    pub(crate) fn new(rate: Option<NonZeroU64>) -> Self {
        Self { rate, next: None }
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Pauses for as long as `bytes` may take, counted from the end of the pause
    /// before. Idle time counts for at most these bytes, so that it is not made up
    /// for by a burst. Ends early when `cancel` is set.
    pub(crate) fn pause(&mut self, bytes: u64, cancel: &AtomicBool) {
        let Some(rate) = self.rate.filter(|_| bytes > 0) else {
            return;
        };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let pause = Duration::from_nanos(nanos);
        let started = self.started(pause);
        let next = started + pause;
        self.next = Some(next);
        while !cancel.load(Ordering::Relaxed) {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// When the work that takes `pause` at this rate may be taken to have begun:
    /// at the end of the last pause, unless that is longer ago than the work could
    /// have taken.
    fn started(&self, pause: Duration) -> Instant {
        let now = Instant::now();
        let earliest = now.checked_sub(pause).unwrap_or(now);
        self.next.map_or(earliest, |next| next.max(earliest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_rate_is_kept_over_many_pieces_and_none_is_no_pause() {
        let go_on = AtomicBool::new(false);
        let time = |rate: Option<u64>| {
            let mut pace = Pace::new(rate.and_then(NonZeroU64::new));
            let begun = Instant::now();
            for _ in 0..20 {
                thread::sleep(Duration::from_micros(200));
                pace.pause(MIB, &go_on);
            }
            begun.elapsed()
        };
        assert!(time(None) < Duration::from_millis(100));
        let limited = time(Some(100 * MIB));
        // The first piece follows idle time.
        assert!(limited >= Duration::from_millis(190), "{limited:?}");
    }

    #[test]
    fn a_pause_ends_when_the_driver_takes_the_queue_away() {
        let cancel = AtomicBool::new(false);
        let mut pace = Pace::new(NonZeroU64::new(1));
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                cancel.store(true, Ordering::Relaxed);
            });
            pace.pause(u64::MAX, &cancel);
            pace.pause(u64::MAX, &cancel);
        });
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
