//! What has to be undone even when the process leaves without unwinding: on a
//! second Ctrl-C, or a panic.
//!
//! Raw terminals, temporary files and child processes register here what undoes
//! them, and drop the registration once they undid it themselves.

use std::process;
use std::sync::{Mutex, PoisonError};

type Undo = Box<dyn FnOnce() + Send>;

/// Registered actions with their numbers, oldest first.
static ACTIONS: Mutex<(u64, Vec<(u64, Undo)>)> = Mutex::new((0, Vec::new()));

/// Takes its action back when dropped, without running it.
#[derive(Debug)]
#[must_use = "dropping it takes the action back"]
pub struct Registration(u64);

/// Has `undo` run when the process is forced to leave. It runs on any thread,
/// at most once, and must neither block nor panic.
pub fn on_forced_exit(undo: impl FnOnce() + Send + 'static) -> Registration {
    let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    actions.0 += 1;
    let number = actions.0;
    actions.1.push((number, Box::new(undo)));
    Registration(number)
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        actions.1.retain(|(number, _)| *number != self.0);
    }
}

/// Runs what is registered, latest first, and leaves with `code`.
pub fn leave(code: u8) -> ! {
    undo_all();
    process::exit(i32::from(code))
}

fn undo_all() {
    // The lock is not held while they run: each may drop registrations.
    let actions = {
        let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut actions.1)
    };
    for (_, undo) in actions.into_iter().rev() {
        undo();
    }
}

/// Makes a panic of any thread end the process with the exit code of an
/// internal error, after undoing what is registered.
pub fn leave_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        undo_all();
        let place = panic
            .location()
            .map(|place| format!(" at {place}"))
            .unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("panic");
        // stderr may be gone; eprintln would panic again.
        let line = format!("aerostat: internal error: {message}{place}\n");
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        process::exit(70);
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_registered_runs_latest_first_and_what_was_taken_back_does_not() {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let note = |name| {
            let ran = Arc::clone(&ran);
            on_forced_exit(move || ran.lock().expect("lock").push(name))
        };
        let _first = note("first");
        let taken_back = note("taken back");
        let _last = note("last");
        drop(taken_back);
        undo_all();
        undo_all();
        assert_eq!(*ran.lock().expect("lock"), ["last", "first"]);
    }
}
