//! One run, from a configuration to its results.

use std::cell::Cell;
use std::sync::Arc;

use crate::builder::{self, Ends};
use crate::config::Config;
use crate::console_input::ConsoleInput;
use crate::control::control_thread::ControlThread;
use crate::early_stop::EarlyStop;
use crate::ending::{GuestWord, StopCause, Stopper, verdict};
use crate::event_loop::{Connections, EventLoop};
use crate::outcome::{FailureClass, Verdict};
use crate::results::{HostFacts, HostKind, RunResults};
use crate::run_io::RunIo;

/// Runs the guest of `config` under this machine's KVM until it ends, by
/// itself or by a limit, and tells how. Every failure becomes a verdict.
///
/// Blocks; `io.stop` ends it from outside.
#[must_use]
pub fn run(config: &Config, kind: HostKind, facts: HostFacts, io: RunIo) -> RunResults {
    let mut results = RunResults::new(config, facts, Verdict::Success);
    let verdict = run_into(config, kind, io, &mut results).unwrap_or_else(|verdict| verdict);
    results.set_verdict(verdict);
    results
}

/// Builds, runs and takes apart; `Err` is the verdict of a run that could not
/// be.
fn run_into(
    config: &Config,
    kind: HostKind,
    io: RunIo,
    results: &mut RunResults,
) -> Result<Verdict, Verdict> {
    let since_exec = || Some(io.exec.elapsed().as_secs_f64() * 1e3);
    let stopper = Arc::new(Stopper::new().map_err(internal)?);
    let early_stop = EarlyStop::new(&io.stop, &config.timeout, io.exec, Arc::clone(&stopper));
    let ends = Ends {
        output: io.output,
        stopper: Arc::clone(&stopper),
        early_stop: early_stop.map_err(internal)?,
        exec: io.exec,
    };
    let built = builder::build(config, kind, ends, &mut results.timings);
    let mut machine = built.map_err(|error| match stopper.cause() {
        // What was given up on request is no failure.
        Some(cause) => verdict(cause, GuestWord::default()),
        None => Verdict::Failed {
            class: error.class(),
            message: error.to_string(),
        },
    })?;

    let footprint = Cell::new(None);
    {
        let port = &machine.com1;
        let input = io
            .input
            .map(|file| ConsoleInput::new(file, Arc::clone(port)));
        let mut vcpus = machine.start().map_err(internal)?;
        results.timings.started_ms = since_exec();
        let control = io
            .control
            .map(|port| ControlThread::start(port, machine.control(config, vcpus.pause())))
            .transpose()
            .map_err(internal)?;
        let connections = Connections {
            user_stop: &io.stop,
            stopper: &stopper,
            milestones: &machine.milestones,
            input,
            on_init: Box::new(|| footprint.set(machine.footprint(&config.memory))),
            pool_watch: machine.pool_watch(),
        };
        let event_loop = EventLoop::new(connections, &config.timeout, io.exec);
        if let Err(error) = event_loop.and_then(EventLoop::run) {
            stopper.request(StopCause::Broken(error.to_string()));
        }
        drop(control);
        let intact = vcpus.join();
        results.timings.stopped_ms = since_exec();
        if !intact {
            return Err(internal("a vCPU thread panicked"));
        }
    }
    results.footprint = footprint.into_inner();
    results.footprint_at_end = machine.footprint(&config.memory);
    Ok(machine.finish(results))
}

fn internal(error: impl ToString) -> Verdict {
    Verdict::Failed {
        class: FailureClass::Internal,
        message: error.to_string(),
    }
}
