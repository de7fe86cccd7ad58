//! Tells the owner that the guest told something.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts what the guest tells: a change of its balloon's size, a sample of
/// statistics, a step of a hinting run, a driver that comes up or goes.
///
/// To wait for something: read [`Changes::count`], look whether it is there,
/// and if not call [`Changes::wait_past`] with that count, so that nothing is
/// missed in between. A guest can make the count grow as fast as it likes; it
/// cannot make anyone wait.
#[derive(Debug, Default)]
pub struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    /// How many changes there have been.
    #[must_use]
    pub fn count(&self) -> u64 {
        *self.lock()
    }

    /// Waits until there have been more than `seen`, for `timeout` at most;
    /// returns how many there have been.
    pub fn wait_past(&self, seen: u64, timeout: Duration) -> u64 {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, |count| *count <= seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// There was another one.
    pub(crate) fn add(&self) {
        let mut count = self.lock();
        *count = count.saturating_add(1);
        drop(count);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_between_look_and_wait_is_not_missed() {
        let changes = Changes::default();
        let seen = changes.count();
        changes.add();
        assert_eq!(changes.wait_past(seen, Duration::from_secs(20)), 1);
        assert_eq!(changes.wait_past(1, Duration::from_millis(1)), 1, "timeout");
    }

    #[test]
    fn who_waits_is_woken() {
        let changes = Changes::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| changes.wait_past(0, Duration::from_secs(20)));
            changes.add();
            assert_eq!(waiter.join().unwrap(), 1);
        });
    }
}
