//! One host for all guests, and what a guest's run gives to look at.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use vmm::config::{self, Config};
use vmm::host::{HostChoice, HostOptions, JobOptions, Session};
use vmm::outcome::Verdict;
use vmm::results::{GuestLine, HostKind, RunResults, TRIPLE_FAULT};
use vmm::run_io::RunIo;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::Failure;
use crate::artifacts::Artifacts;

/// 1 GiB pages that the host sets aside at boot.
const GIGANTIC_PAGES: u64 = 3;
/// RAM of the emulated host: those, the largest guest on other pages (6 GiB), and
/// room for the host itself.
const HOST_MEMORY: u64 = 11 << 30;

/// The host, booted when the first guest needs it.
pub(crate) struct Lab {
    pub(crate) artifacts: Artifacts,
    session: Mutex<Option<Session>>,
    /// Guests that were run again because their emulator failed; see
    /// [`emulator_failed`]. One too many is a failure.
    tried_again: AtomicU32,
}

/// What an oops says about the instruction at such an address.
const NOWHERE: &str = "Code: Unable to access opcode bytes";

/// How often the emulator may fail in all tests.
const TRY_AGAIN: u32 = 3;

/// A run that is over.
pub(crate) struct Ran {
    pub(crate) results: RunResults,
    pub(crate) console: String,
}

/// The kernel command line of a guest without its init's steps.
const CMDLINE: &str = "console=ttyS0 panic=-1 loglevel=5";

impl Lab {
    pub(crate) fn new(artifacts: Artifacts) -> Self {
        Self {
            artifacts,
            session: Mutex::new(None),
            tried_again: AtomicU32::new(0),
        }
    }

    /// Runs our kernel with `steps` for init; `sets` are overrides such as
    /// `memory.page=1G`.
    pub(crate) fn run(&self, steps: &str, sets: &[&str]) -> Result<Ran, Failure> {
        self.run_config(&self.config(steps, sets)?)
    }

    /// Runs `config`; again, in another host, if the emulator failed.
    pub(crate) fn run_config(&self, config: &Config) -> Result<Ran, Failure> {
        self.until_the_emulator_holds(|| self.run_once(config), |ran| &ran.results)
    }

    /// Runs a guest with `run`; again if the emulator failed.
    pub(crate) fn until_the_emulator_holds<T>(
        &self,
        run: impl Fn() -> Result<T, Failure>,
        results: impl Fn(&T) -> &RunResults,
    ) -> Result<T, Failure> {
        loop {
            let ran = run()?;
            let Some(what) = emulator_failed(results(&ran)) else {
                return Ok(ran);
            };
            let before = self.tried_again.fetch_add(1, Ordering::Relaxed);
            if before >= TRY_AGAIN {
                return Ok(ran);
            }
            eprintln!(
                "THE EMULATOR FAILED ({what}): this guest runs again, {} of {TRY_AGAIN} times \
                 in all tests",
                before + 1
            );
        }
    }

    fn run_once(&self, config: &Config) -> Result<Ran, Failure> {
        let console = Output::default();
        let io = RunIo {
            output: Box::new(console.clone()),
            input: None,
            stop: EventFd::new(EFD_NONBLOCK)?,
            control: None,
            exec: Instant::now(),
        };
        let results = self.run_with(config, JobOptions::default(), io)?;
        let ran = Ran {
            results,
            console: console.text(),
        };
        Ok(ran)
    }

    /// Runs `config` connected to `io`.
    pub(crate) fn run_with(
        &self,
        config: &Config,
        options: JobOptions,
        io: RunIo,
    ) -> Result<RunResults, Failure> {
        let mut session = self.session();
        if session.is_none() {
            let stop = EventFd::new(EFD_NONBLOCK)?;
            let started = Session::start(HostChoice::Auto, &self.host_options(), stop);
            *session = Some(started.map_err(|verdict| format!("no host: {verdict:?}"))?);
        }
        let running = session.as_mut().ok_or("no host")?;
        let results = running.run_with(config, &options, io);
        if emulator_failed(&results).is_some() {
            // The next guest gets another one.
            drop(session.take());
        }
        Ok(results)
    }

    /// The configuration of a small guest of ours with `sets` applied.
    pub(crate) fn config(&self, steps: &str, sets: &[&str]) -> Result<Config, Failure> {
        let text = format!(
            "[kernel]\nimage = {:?}\ninitrd = {:?}\ncmdline = {:?}\n\
             [memory]\nsize = \"512M\"\n[timeout]\nboot = \"60s\"\nrun = \"60s\"\n",
            self.artifacts.bzimage,
            self.artifacts.initrd,
            format!("{CMDLINE} -- {steps}"),
        );
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        Ok(config::load_str(&text, "boot-test", ".".as_ref(), &sets)?)
    }

    /// Shuts the host down.
    pub(crate) fn close(&self) {
        drop(self.session().take());
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        // A failed test leaves the host as it was: the next one may use it.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host_options(&self) -> HostOptions {
        HostOptions {
            host_kernel: Some(self.artifacts.host_kernel.clone()),
            agent: Some(self.artifacts.aerostat.clone()),
            memory: Some(HOST_MEMORY),
            gigantic_pages: GIGANTIC_PAGES,
            ..HostOptions::default()
        }
    }
}

/// How an emulated CPU fails under a kernel: it stands still, the host's or the
/// guest's (seen with one and with two of them), or it is reset without a word of the
/// kernel that ran on it (seen with QEMU 7.2 and 10.0), or goes on at an address where
/// there is no code, with interrupts disabled. About once in ten minutes on a loaded
/// machine; README.md has what is known of the causes. Any other panic or oops, or a
/// wrong result, is never taken for it, and a bug of ours that stops or resets a guest
/// each time still fails.
fn emulator_failed(results: &RunResults) -> Option<String> {
    if results.host.kind != HostKind::Emulated {
        return None;
    }
    match &results.verdict {
        Verdict::Failed { message, .. }
            if message.contains("broke down: silent")
                || message.ends_with("broke down: QEMU ended (exit status: 0)") =>
        {
            Some(message.clone())
        }
        Verdict::GuestPanic => results
            .console_tail
            .iter()
            .find(|line| *line == TRIPLE_FAULT || line.contains(NOWHERE))
            .cloned(),
        Verdict::Timeout { what } if has_time(results) => Some(what.clone()),
        _ => None,
    }
}

/// Whether all limits were such that no test expects one to pass.
fn has_time(results: &RunResults) -> bool {
    let limits = &results.config["timeout"];
    let minute = |key: &str| limits[key].as_u64() >= Some(60_000);
    minute("boot_ms") && minute("run_ms") && limits["pool_ms"] == 0
}

impl Ran {
    /// Fails unless the run ended with this exit code, and shows the console then.
    pub(crate) fn exits(&self, code: u8) -> Result<&Self, Failure> {
        if self.results.exit_code == code {
            return Ok(self);
        }
        let verdict = &self.results.verdict;
        let tail: Vec<_> = self.console.lines().rev().take(15).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        let lines: Vec<_> = self
            .results
            .guest
            .iter()
            .map(|line| line.line.to_string())
            .collect();
        Err(format!(
            "exit code {} ({verdict:?}), expected {code}; guest said:\n{}\nconsole ends:\n{}",
            self.results.exit_code,
            lines.join("\n"),
            tail.join("\n"),
        )
        .into())
    }

    /// The guest's lines of this type, in order.
    pub(crate) fn lines(&self, kind: &str) -> Vec<&GuestLine> {
        let all = self.results.guest.iter();
        all.filter(|line| line.line["type"] == kind).collect()
    }
}

/// What the guest's kernel did not clear of an allocation.
pub(crate) fn percent_skipped(line: &serde_json::Value) -> Result<f64, Failure> {
    let skipped = line["pages_skipped"].as_f64().ok_or("no pages_skipped")?;
    let pages = line["pages"].as_f64().ok_or("no pages")?;
    Ok(skipped / pages * 100.0)
}

/// A console that is kept.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
