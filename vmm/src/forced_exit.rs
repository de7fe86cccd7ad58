//! What has to be undone even when the process leaves without unwinding: on a
//! second Ctrl-C, or a panic.
//!
//! Raw terminals, temporary files and child processes register here what undoes
//! them, and drop the registration once they undid it themselves.

use std::fmt;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::outcome::FailureClass;

type Undo = Box<dyn FnOnce() + Send>;

/// Registered actions with their numbers, oldest first, and the last number.
struct Registry(Mutex<(u64, Vec<(u64, Undo)>)>);

/// Those of this process.
static PROCESS: Registry = Registry::new();

/// Takes its action back when dropped, without running it.
#[must_use = "dropping it takes the action back"]
pub struct Registration {
    registry: &'static Registry,
    number: u64,
}

/// Has `undo` run when the process is forced to leave. It runs on any thread,
/// at most once, and must neither block nor panic.
pub fn on_forced_exit(undo: impl FnOnce() + Send + 'static) -> Registration {
    PROCESS.register(Box::new(undo))
}

/// Runs what is registered, latest first, and leaves with `code`.
pub fn leave(code: u8) -> ! {
    PROCESS.undo_all();
    process::exit(i32::from(code))
}

impl Registry {
    const fn new() -> Self {
        Self(Mutex::new((0, Vec::new())))
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Vec<(u64, Undo)>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&'static self, undo: Undo) -> Registration {
        let mut actions = self.lock();
        actions.0 += 1;
        let number = actions.0;
        actions.1.push((number, undo));
        Registration {
            registry: self,
            number,
        }
    }

    fn undo_all(&self) {
        // The lock is not held while they run: each may drop registrations.
        let actions = std::mem::take(&mut self.lock().1);
        for (_, undo) in actions.into_iter().rev() {
            undo();
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.number).finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry
            .lock()
            .1
            .retain(|(number, _)| *number != self.number);
    }
}

/// Makes a panic of any thread end the process with the exit code of an
/// internal error, after undoing what is registered.
pub fn leave_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        PROCESS.undo_all();
        let place = panic
            .location()
            .map(|place| format!(" at {place}"))
            .unwrap_or_default();
        let payload = panic.payload();
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("panic");
        // stderr may be gone; eprintln would panic again.
        let line = format!("aerostat: internal error: {message}{place}\n");
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        process::exit(i32::from(FailureClass::Internal.exit_code()));
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_registered_runs_latest_first_and_what_was_taken_back_does_not() {
        let registry: &'static Registry = Box::leak(Box::new(Registry::new()));
        let ran = Arc::new(Mutex::new(Vec::new()));
        let note = |name| {
            let ran = Arc::clone(&ran);
            registry.register(Box::new(move || ran.lock().expect("lock").push(name)))
        };
        let _first = note("first");
        let taken_back = note("taken back");
        let _last = note("last");
        drop(taken_back);
        registry.undo_all();
        registry.undo_all();
        assert_eq!(*ran.lock().expect("lock"), ["last", "first"]);
    }
}
