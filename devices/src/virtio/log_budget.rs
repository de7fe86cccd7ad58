//! A bound on how many log lines a guest can cause.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lines a device logs at most, for all that its guest does. Counters go on.
const LINES: u32 = 32;

/// What is left to be logged on behalf of one device.
#[derive(Debug)]
pub(crate) struct LogBudget {
    left: AtomicU32,
}

impl LogBudget {
    /// A full budget.
    pub(crate) fn new() -> Self {
        Self {
            left: AtomicU32::new(LINES),
        }
    }

    /// Logs a warning while there is budget; the last line says that it is the
    /// last.
    pub(crate) fn warn(&self, message: fmt::Arguments<'_>) {
        match self.spend() {
            Some(0) => log::warn!("{message} (further messages of this device are dropped)"),
            Some(_) => log::warn!("{message}"),
            None => {}
        }
    }

    /// Takes one line; returns how many are left after it.
    fn spend(&self) -> Option<u32> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .ok()
            .map(|before| before.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_causes_a_bounded_number_of_lines() {
        let budget = LogBudget::new();
        let spent: Vec<u32> = std::iter::from_fn(|| budget.spend()).collect();
        assert_eq!(spent.len(), LINES as usize);
        assert_eq!(spent.last(), Some(&0), "the last line says it is the last");
        assert_eq!(budget.spend(), None, "an empty budget stays empty");
    }
}
