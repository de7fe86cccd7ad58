//! PID 1 of a benchmark guest: runs the steps named after `--` on the kernel
//! command line, reports one JSON line each, and stops the machine.
//!
//! Started as any other process it runs the steps of its arguments and ends
//! like any other program. `README.md` has the steps, lines and exit codes.

mod failure;
mod guest;
mod kernel_file;
mod lines;
mod measure;
mod run;
mod steps;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use failure::{EXIT_BAD_STEP, EXIT_PANIC, EXIT_STEP_FAILED};
use guest::facts::InitLine;
use guest::output::Output;
use guest::stopping::{default_action, stop};
use guest::{cmdline, modules, mounts};
use lines::{ErrorLine, ExitLine, Line};
use measure::vmstat::Vmstat;
use run::pressure::{ALLOCATE, allocate_as_victim};
use run::session::{Ending, Session};
use steps::program::{BadStep, parse_program};
use steps::table::STEPS;

/// Set once, when this turns out to be the init of a guest.
static GUEST: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if std::process::id() != 1 && arguments.first().is_some_and(|first| first == ALLOCATE) {
        return allocate_as_victim(arguments.get(1).map(String::as_str));
    }
    let no_init = arguments.iter().any(|argument| argument == "--no-init");
    arguments.retain(|argument| argument != "--no-init");
    let guest = std::process::id() == 1 && !no_init;
    GUEST.store(guest, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| end_after_panic(&panic.to_string())));
    if !guest {
        if arguments.iter().any(|argument| argument == "--help") {
            print_help();
            return ExitCode::SUCCESS;
        }
        run(Output::Native, &arguments, Vec::new(), None)
    }
    let missing = mounts::mount_all();
    let mut output = Output::of_guest();
    for line in &missing {
        output.say(line);
    }
    match kernel_file::read("/proc/cmdline") {
        Ok(cmdline) => {
            let loaded = modules::load_all(Path::new("/modules"), &cmdline);
            run(output, &cmdline::step_words(&cmdline), loaded, None)
        }
        Err(error) => run(output, &[], Vec::new(), Some(error.to_string())),
    }
}

/// Reports the machine, runs `words` and ends.
fn run(
    mut output: Output,
    words: &[String],
    loaded: Vec<modules::Loaded>,
    failed: Option<String>,
) -> ! {
    let guest = GUEST.load(Ordering::Relaxed);
    let failed = match InitLine::now(loaded) {
        Ok(line) => {
            output.line(&Line::Init(line));
            failed
        }
        Err(error) => failed.or(Some(error.to_string())),
    };
    if let Some(message) = failed {
        let text = None;
        output.line(&Line::Error(ErrorLine { text, message }));
        end(output, at_once(EXIT_STEP_FAILED))
    }
    let ending = match parse_program(words.iter().map(String::as_str)) {
        Ok(program) => Session::new(&mut output, guest).run(&program),
        Err(BadStep { word, message }) => {
            output.say(&message);
            let text = Some(word);
            output.line(&Line::Error(ErrorLine { text, message }));
            at_once(EXIT_BAD_STEP)
        }
    };
    end(output, ending)
}

/// The end of a run without steps.
fn at_once(code: i32) -> Ending {
    Ending {
        code,
        action: None,
        steps: 0,
    }
}

/// Writes the last line and ends.
fn end(mut output: Output, ending: Ending) -> ! {
    let guest = GUEST.load(Ordering::Relaxed);
    let action = guest.then(|| ending.action.unwrap_or_else(default_action));
    let counters = Vmstat::now().unwrap_or_default();
    output.line(&Line::Exit(ExitLine {
        code: ending.code,
        pgzero_bad: counters.total("pgzero_bad"),
        steps: ending.steps,
        action,
    }));
    match action {
        Some(action) => stop(output, action),
        None => std::process::exit(ending.code),
    }
}

/// A bug in this program, in any thread, must not leave a guest hanging.
fn end_after_panic(message: &str) {
    // Opened afresh: the thread that panicked may be in the midst of a line.
    let mut output = if GUEST.load(Ordering::Relaxed) {
        Output::of_guest()
    } else {
        Output::Native
    };
    let message = format!("guest-init has a bug: {}", message.replace('\n', " "));
    output.say(&message);
    let text = None;
    output.line(&Line::Error(ErrorLine { text, message }));
    end(output, at_once(EXIT_PANIC))
}

fn print_help() {
    let mut help = String::from(
        "guest-init: init of a benchmark guest, or a program that runs the same steps\n\n\
         usage: guest-init [--no-init] STEP...\n\n",
    );
    for spec in STEPS {
        help.push_str(&format!("  {}\n        {}\n", spec.usage, spec.summary));
    }
    // A closed pipe is the reader's business.
    let _ = std::io::stdout().write_all(help.as_bytes());
}
