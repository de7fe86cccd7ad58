//! A run: the steps in order, and what they leave behind.

use std::time::{Duration, Instant};

use rustix::time::ClockId;

use super::{
    balloon, command, console, hold, hugetlb, populate, pressure, reporting, settings, stress,
};
use crate::failure::{EXIT_NOT_ZERO, EXIT_OK, EXIT_STEP_FAILED, StepError};
use crate::guest::facts::{Balloon, PageZeroed, Reporting};
use crate::guest::output::Output;
use crate::kernel_file;
use crate::lines::{Action, DoneLine, EmptyLine, ErrorLine, InfoLine, Line, StepLine};
use crate::measure::meminfo::Meminfo;
use crate::measure::memory::Memory;
use crate::measure::perf::now_ns;
use crate::measure::vmstat::Vmstat;
use crate::steps::program::Node;
use crate::steps::table::{Rounds, Step};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The exit code.
    pub(crate) code: i32,
    /// How to stop, if a step said so.
    pub(crate) action: Option<Action>,
    /// Steps that ran.
    pub(crate) steps: u64,
}

/// What a step did.
pub(crate) enum Outcome {
    /// It has this to report.
    Report(Line),
    /// Fresh memory was not zero.
    NotZero(Line),
    /// It ends the run.
    End { code: i32, action: Option<Action> },
}

/// A run.
pub(crate) struct Session<'a> {
    output: &'a mut Output,
    /// Whether the machine is ours to crash.
    guest: bool,
    kept: Vec<Memory>,
    not_zero: bool,
    steps: u64,
}

impl<'a> Session<'a> {
    /// A run that has not begun.
    pub(crate) fn new(output: &'a mut Output, guest: bool) -> Self {
        Self {
            output,
            guest,
            kept: Vec::new(),
            not_zero: false,
            steps: 0,
        }
    }

    /// Runs `program` until it ends or a step fails.
    pub(crate) fn run(mut self, program: &[Node]) -> Ending {
        let (mut code, action) = self.run_list(program, None).unwrap_or((EXIT_OK, None));
        if self.not_zero {
            code = EXIT_NOT_ZERO;
        }
        Ending {
            code,
            action,
            steps: self.steps,
        }
    }

    /// `Some` if the run is over.
    fn run_list(&mut self, list: &[Node], iteration: Option<u32>) -> Option<(i32, Option<Action>)> {
        for node in list {
            let over = match node {
                Node::Loop { rounds, body } => {
                    let begun = Instant::now();
                    let again = |done: u32| match rounds {
                        Rounds::Count(count) => done < *count,
                        Rounds::For(long) => done == 0 || begun.elapsed() < *long,
                    };
                    (0..u32::MAX)
                        .take_while(|done| again(*done))
                        .find_map(|done| self.run_list(body, Some(done + 1)))
                }
                Node::Step { text, step } => self.run_step(text, step, iteration),
            };
            if over.is_some() {
                return over;
            }
        }
        None
    }

    fn run_step(
        &mut self,
        text: &str,
        step: &Step,
        iteration: Option<u32>,
    ) -> Option<(i32, Option<Action>)> {
        self.steps += 1;
        self.output.say(&format!("step {}: {text}", self.steps));
        let (line, over) = match self.perform(step, iteration) {
            Ok(Outcome::Report(line)) => (line, None),
            Ok(Outcome::NotZero(line)) => {
                self.not_zero = true;
                self.output.say("FRESH MEMORY WAS NOT ZERO");
                (line, None)
            }
            Ok(Outcome::End { code, action }) => return Some((code, action)),
            Err(error) => {
                self.output.say(&format!("{text}: {error}"));
                let line = ErrorLine {
                    text: Some(text.to_owned()),
                    message: error.to_string(),
                };
                (Line::Error(line), Some((EXIT_STEP_FAILED, None)))
            }
        };
        self.report(line, iteration);
        over
    }

    fn report(&mut self, line: Line, iteration: Option<u32>) {
        let step = self.steps;
        self.output.line(&StepLine {
            line,
            step,
            iteration,
        });
    }

    fn perform(&mut self, step: &Step, iteration: Option<u32>) -> Result<Outcome, StepError> {
        let end = |code, action| Ok(Outcome::End { code, action });
        Ok(Outcome::Report(match step {
            Step::Populate {
                region,
                write,
                check,
                fault_at,
                file,
            } => {
                let how = populate::How {
                    write: *write,
                    check: *check,
                    fault_at: *fault_at,
                    file: *file,
                };
                return populate::populate(*region, how);
            }
            Step::Fallocate {
                bytes,
                page_bytes,
                check,
            } => return hugetlb::allocate_file(*bytes, *page_bytes, *check),
            Step::Dirty(region) => Line::Dirty(populate::dirty(*region)?.0),
            Step::Fill(region) => {
                let (line, memory) = populate::dirty(*region)?;
                self.kept.push(memory);
                Line::Fill(line)
            }
            Step::Hold { region, duration } => Line::Hold(hold::hold(*region, *duration)?),
            Step::Pool { page_bytes, pages } => {
                self.require_guest()?;
                Line::Pool(hugetlb::pool(*page_bytes, *pages)?)
            }
            Step::Flush(passes) => Line::Flush(reporting::flush(*passes)?),
            Step::Verify(on) => Line::Verify(settings::verify(*on)?),
            Step::Off(off) => Line::Off(settings::off(*off)?),
            Step::ZeroMode(mode) => Line::ZeroMode(settings::zero_mode(*mode)?),
            Step::ZeroBatch(pages) => Line::ZeroBatch(settings::zero_batch(*pages)?),
            Step::DropCaches => Line::DropCaches(settings::drop_caches()?),
            Step::Compact => Line::Compact(settings::compact()?),
            Step::Sleep(duration) => Line::Sleep(sleep(*duration)?),
            Step::Stress {
                workers,
                bytes,
                duration,
                balloon,
            } => {
                if *balloon {
                    self.require_guest()?;
                }
                return stress::stress(*workers, *bytes, *duration, *balloon);
            }
            Step::WaitBalloon { bytes, patience } => {
                Line::WaitBalloon(balloon::wait(*bytes, *patience)?)
            }
            Step::Balloon(binding) => {
                self.require_guest()?;
                Line::Balloon(balloon::bind(*binding)?)
            }
            Step::Pressure(bytes) => {
                self.require_guest()?;
                Line::Pressure(pressure::pressure(*bytes)?)
            }
            Step::Write { path, text } => {
                self.require_guest()?;
                Line::Write(settings::write(path, text)?)
            }
            Step::Exec(words) => Line::Exec(command::exec(words)?),
            Step::Print(text) => {
                self.output.console(format!("{text}\n").as_bytes());
                Line::Print(EmptyLine {})
            }
            Step::SpinConsole(bytes) => Line::SpinConsole(console::spin(self.output, *bytes)),
            Step::Info => Line::Info(Box::new(info()?)),
            Step::Exit(code) => return end(*code, None),
            Step::Reboot => {
                self.require_guest()?;
                return end(EXIT_OK, Some(Action::Reboot));
            }
            Step::Poweroff => {
                self.require_guest()?;
                return end(EXIT_OK, Some(Action::PowerOff));
            }
            Step::Panic => {
                self.require_guest()?;
                self.report(Line::Panic(EmptyLine {}), iteration);
                self.output.drain();
                // A kernel without SysRq panics when PID 1 ends.
                let _ = kernel_file::write("/proc/sysrq-trigger", "c");
                std::process::exit(EXIT_STEP_FAILED)
            }
            Step::Hang => {
                self.report(Line::Hang(EmptyLine {}), iteration);
                self.output.drain();
                loop {
                    std::hint::spin_loop();
                }
            }
        }))
    }

    fn require_guest(&self) -> Result<(), StepError> {
        if self.guest {
            Ok(())
        } else {
            Err(StepError::NotGuest)
        }
    }
}

fn sleep(duration: Duration) -> Result<DoneLine, StepError> {
    let start = now_ns(ClockId::Monotonic);
    std::thread::sleep(duration);
    Ok(DoneLine {
        supported: true,
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
    })
}

fn info() -> Result<InfoLine, StepError> {
    let meminfo = Meminfo::now()?;
    Ok(InfoLine {
        uptime_ms: now_ns(ClockId::Boottime) / 1_000_000,
        meminfo_bytes: meminfo.bytes,
        meminfo_counts: meminfo.counts,
        vmstat: Vmstat::now()?.into_counters(),
        balloon: Balloon::now(),
        page_zeroed: PageZeroed::now(),
        reporting: Reporting::now(),
    })
}
