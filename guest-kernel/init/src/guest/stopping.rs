//! How a guest ends.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::system::{RebootCommand, reboot};

use super::output::Output;
use crate::lines::Action;

/// Longest time for the last bytes to leave.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// What a guest does that was not told how to end. Without ACPI there is no
/// power off on x86: the kernel would halt and the VMM wait, so it reboots.
pub(crate) fn default_action() -> Action {
    if Path::new("/sys/firmware/acpi/tables/FACP").exists() {
        Action::PowerOff
    } else {
        Action::Reboot
    }
}

/// Sends the last bytes and stops the machine.
pub(crate) fn stop(mut output: Output, action: Action) -> ! {
    // A port that never drains does not keep the machine running.
    let limit = thread::Builder::new().spawn(move || {
        thread::sleep(DRAIN_LIMIT);
        stop_now(action);
    });
    if limit.is_ok() {
        output.drain();
    }
    rustix::fs::sync();
    stop_now(action)
}

/// Stops the machine, at the latest with a panic of the kernel.
pub(crate) fn stop_now(action: Action) -> ! {
    let (first, second) = match action {
        Action::PowerOff => (RebootCommand::PowerOff, RebootCommand::Restart),
        Action::Reboot => (RebootCommand::Restart, RebootCommand::PowerOff),
    };
    let _ = reboot(first);
    let _ = reboot(second);
    // The end of PID 1 is a kernel panic, which no VMM waits on forever.
    std::process::exit(crate::failure::EXIT_PANIC)
}
