//! Boot tests: real kernels, on the native host or in an emulated one that is
//! booted once for all of them. `cargo xtask test` builds what they need and runs
//! them; `cargo xtask test --boot NAME` runs some.

// A test that panics has failed, which is what it is for; `Value`s are indexed
// without panicking at all.
#![expect(clippy::indexing_slicing, clippy::panic)]

mod artifacts;
mod backings;
mod bad_input;
mod balloon;
mod command_line;
mod control;
mod control_command;
mod inflate_loop;
mod lab;
mod lifecycle;
mod overcommit;
mod stock_kernels;
mod the_loop;
mod users;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use artifacts::Artifacts;
use lab::Lab;
use libtest_mimic::{Arguments, Conclusion, Trial};

/// How many of the slowest tests are named at the end.
const SLOWEST: usize = 12;

/// A test's own complaint.
type Failure = Box<dyn std::error::Error>;

/// What a test does.
type Body = dyn FnOnce(&Lab) -> Result<(), Failure> + Send;

/// A named boot test.
struct Case {
    name: String,
    run: Box<Body>,
    /// Left out unless asked for by name or by `--all`.
    long: bool,
}

impl Case {
    fn new(
        name: impl Into<String>,
        run: impl FnOnce(&Lab) -> Result<(), Failure> + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
            long: false,
        }
    }

    /// The same, left out of a usual run.
    fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They share one host; and one guest at a time keeps its times comparable.
    arguments.test_threads = Some(1);

    let artifacts = match Artifacts::from_environment() {
        Ok(artifacts) => artifacts,
        Err(why) => {
            eprintln!("boot tests: {why}");
            let missing = std::env::var_os("AEROSTAT_REQUIRE").is_some();
            return ExitCode::from(if missing { 1 } else { 0 });
        }
    };
    let lab = Arc::new(Lab::new(artifacts));
    let cases = [
        the_loop::cases(),
        users::cases(),
        inflate_loop::cases(),
        backings::cases(),
        lifecycle::cases(),
        overcommit::cases(),
        balloon::cases(&lab),
        control::cases(),
        control_command::cases(),
        stock_kernels::cases(&lab),
        command_line::cases(),
        bad_input::cases(),
    ];
    let took = Arc::<Mutex<Vec<Took>>>::default();
    let trials = cases.into_iter().flatten().map(|case| {
        let (lab, took) = (Arc::clone(&lab), Arc::clone(&took));
        let (name, run) = (case.name.clone(), case.run);
        let test = move || {
            let begun = Instant::now();
            let outcome = run(&lab);
            let mut took = took.lock().unwrap_or_else(PoisonError::into_inner);
            took.push((begun.elapsed(), name));
            Ok(outcome?)
        };
        Trial::test(case.name, test).with_ignored_flag(case.long)
    });
    let conclusion: Conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Ends the emulated host before the process does.
    lab.close();
    say_slowest(&mut took.lock().unwrap_or_else(PoisonError::into_inner));
    conclusion.exit_code()
}

/// How long a test took, and its name.
type Took = (Duration, String);

fn say_slowest(took: &mut [Took]) {
    took.sort_by(|a, b| b.cmp(a));
    let slowest = took.iter().take(SLOWEST);
    let slowest = slowest.map(|(time, name)| format!("{name} {} s", time.as_secs()));
    eprintln!("slowest: {}", slowest.collect::<Vec<_>>().join(", "));
}
