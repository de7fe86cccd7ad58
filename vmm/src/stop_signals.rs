//! Signals that ask for a stop: the first one asks the run to end, a second one
//! leaves at once.

use std::fs::File;
use std::io::{self, Read};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::forced_exit;
use crate::outcome::Verdict;

/// Signals this close together are one request: a closed terminal, for one,
/// sends several.
const ONE_REQUEST: Duration = Duration::from_millis(100);

/// Catches SIGINT, SIGTERM, SIGHUP and SIGQUIT from now on. The first makes the
/// returned event readable; a later one undoes what [`forced_exit`] knows of
/// and leaves with the exit code of an interrupted run.
///
/// Programs that are started later get the default handling of these signals.
///
/// # Errors
/// The errors of eventfd, of pipes, of installing handlers and of starting a thread.
pub fn catch() -> io::Result<EventFd> {
    let stop = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
    let ask = stop.try_clone()?;
    // A pipe, because the kernel of an emulated host has no sockets.
    let (signals, caught) = pipe_with(PipeFlags::CLOEXEC)?;
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        low_level::pipe::register_raw(signal, caught.try_clone()?)?;
    }
    let mut signals = File::from(signals);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut first: Option<Instant> = None;
            // One byte per signal; this process keeps the writing end, so there is no end.
            while let Ok(1) = signals.read(&mut [0]) {
                match first {
                    None => {
                        first = Some(Instant::now());
                        // Only a full counter fails, and then it is readable anyway.
                        let _ = ask.write(1);
                    }
                    Some(asked) if asked.elapsed() < ONE_REQUEST => {}
                    Some(_) => forced_exit::leave(Verdict::Interrupted.exit_code()),
                }
            }
        })?;
    Ok(stop)
}
