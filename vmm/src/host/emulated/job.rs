//! One guest on the emulated host.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control_relay::ControlRelay;
use super::files::{self, GuestFile};
use super::inner_results;
use super::link::{self, Others};
use super::machine::EmulatedHost;
use super::pollable::pollable;
use crate::config::{self, Backing, Config};
use crate::console_output::ConsoleOutput;
use crate::ending::{StopCause, Stopper};
use crate::host::failure::failed;
use crate::host::options::JobOptions;
use crate::host::protocol::{Done, Job, Message, Pool};
use crate::outcome::{FailureClass, Verdict};
use crate::results::RunResults;
use crate::run_io::RunIo;
use crate::tail::Tail;

/// Input bytes on their way or not yet consumed; bounds what the host holds.
const INPUT_WINDOW: usize = 16 << 10;
/// What a clean stop may take on an emulated CPU before it is forced.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// What a forced end may take before the whole host is ended.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// How much later than the inner run this side sees its time limit.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(30);
/// Largest results document; beyond it the run counts as broken.
const MAX_RESULTS: usize = 64 << 20;

/// How far a stop has come.
enum Stopping {
    No,
    Asked(Instant),
    Forced(Instant),
}

/// A run in progress, seen from here.
struct Running {
    console: ConsoleOutput,
    /// Says why once nobody takes the console's output any more.
    reader: Arc<Stopper>,
    control: Option<ControlRelay>,
    input: Option<File>,
    input_room: usize,
    stopping: Stopping,
    /// What this side decided, if it ended the run itself.
    decided: Option<Verdict>,
    log: Tail,
    unfinished_line: Vec<u8>,
    results: Vec<u8>,
}

impl EmulatedHost {
    /// Runs one guest to its end.
    pub(crate) fn run(&mut self, config: &Config, options: &JobOptions, io: RunIo) -> RunResults {
        match self.try_run(config, options, io) {
            Ok(results) => results,
            Err(verdict) => RunResults::new(config, self.facts(), verdict),
        }
    }

    fn try_run(
        &mut self,
        config: &Config,
        options: &JobOptions,
        io: RunIo,
    ) -> Result<RunResults, Verdict> {
        let internal = |error: std::io::Error| failed(FailureClass::Internal, error.to_string());
        let stop = pollable(&io.stop).map_err(internal)?;
        let mut files = files::named_by(config)
            .map_err(|error| failed(FailureClass::Usage, error.to_string()))?;
        let only_stop = Others {
            stop: Some(stop.as_fd()),
            ..Others::default()
        };
        if !self.send_files(&mut files, &only_stop)? {
            return Err(Verdict::Interrupted);
        }

        let input = io.input.filter(|_| config.console.input);
        let reader = Arc::new(Stopper::new().map_err(internal)?);
        let reader_gone = pollable(reader.event()).map_err(internal)?;
        let console = ConsoleOutput::start(io.output, Arc::clone(&reader)).map_err(internal)?;
        let control = io.control.map(ControlRelay::new);
        let mut job = job(config, &files, options, input.is_some());
        job.control = control.is_some();
        self.send(&Message::Job(job))?;
        let mut running = Running {
            console,
            reader,
            control,
            input,
            input_room: INPUT_WINDOW,
            stopping: Stopping::No,
            decided: None,
            log: Tail::default(),
            unfinished_line: Vec::new(),
            results: Vec::new(),
        };
        let ended = self.follow(&mut running, config, &stop, &reader_gone);
        let unread = running.console.close();
        let done = ended?;
        self.report_leaks(&done);
        let inner = inner_results::Inner {
            ended: done.ended,
            document: &running.results,
            last_log_line: running.log.lines().pop(),
            decided: running.decided,
        };
        let mut results = inner.into_results(config, self.facts(), &files);
        results.dropped.console_bytes += unread;
        Ok(results)
    }

    /// Carries messages until the run is over.
    fn follow(
        &mut self,
        running: &mut Running,
        config: &Config,
        stop: &OwnedFd,
        reader_gone: &OwnedFd,
    ) -> Result<Done, Verdict> {
        let deadline = outer_deadline(config);
        loop {
            let listening = matches!(running.stopping, Stopping::No);
            let others = Others {
                stop: listening.then(|| stop.as_fd()),
                reader_gone: listening.then(|| reader_gone.as_fd()),
                input: running
                    .input
                    .as_ref()
                    .filter(|_| running.input_room > 0)
                    .map(AsFd::as_fd),
                calls: running.control.as_ref().map(ControlRelay::waiting),
            };
            let turn = self.turn(&others)?;
            for message in turn.messages {
                if let Some(done) = running.take(message) {
                    return Ok(done);
                }
            }
            if turn.input {
                self.forward_input(running)?;
            }
            if turn.calls {
                self.forward_calls(running)?;
            }
            if turn.stop {
                self.ask_to_stop(running, Verdict::Interrupted)?;
            } else if turn.reader_gone {
                let why = running.reader_verdict();
                self.ask_to_stop(running, why)?;
            } else if listening && deadline.is_some_and(|deadline| Instant::now() > deadline) {
                let what = format!(
                    "the run took longer than {} s",
                    config.timeout.run.as_secs_f64()
                );
                self.ask_to_stop(running, Verdict::Timeout { what })?;
            }
            self.escalate(running)?;
        }
    }

    fn forward_input(&mut self, running: &mut Running) -> Result<(), Verdict> {
        let Some(input) = &running.input else {
            return Ok(());
        };
        let bytes = link::read_input(input, running.input_room);
        if bytes.is_empty() {
            running.input = None;
            return self.send(&Message::InputEnd);
        }
        running.input_room -= bytes.len();
        self.send(&Message::Input(bytes))
    }

    fn forward_calls(&mut self, running: &Running) -> Result<(), Verdict> {
        let calls = running.control.iter().flat_map(ControlRelay::calls);
        calls
            .map(Message::Calls)
            .try_for_each(|call| self.send(&call))
    }

    fn ask_to_stop(&mut self, running: &mut Running, why: Verdict) -> Result<(), Verdict> {
        running.stopping = Stopping::Asked(Instant::now());
        running.decided = Some(why);
        self.send(&Message::Stop)
    }

    fn escalate(&mut self, running: &mut Running) -> Result<(), Verdict> {
        match running.stopping {
            Stopping::Asked(since) if since.elapsed() > STOP_GRACE => {
                running.stopping = Stopping::Forced(Instant::now());
                self.send(&Message::Kill)
            }
            Stopping::Forced(since) if since.elapsed() > KILL_GRACE => {
                let broken = self.give_up("it did not end a guest when told to");
                Err(running.decided.take().unwrap_or(broken))
            }
            Stopping::No | Stopping::Asked(_) | Stopping::Forced(_) => Ok(()),
        }
    }

    fn report_leaks(&mut self, done: &Done) {
        for leak in &done.leaks {
            log::warn!(
                "after the run the emulated host's pool of {} KiB pages has {} free and {} reserved of {}",
                leak.page_bytes >> 10,
                leak.free,
                leak.reserved,
                leak.total
            );
            self.leaked_pages += leak.total.saturating_sub(leak.free).max(leak.reserved);
        }
    }
}

impl Running {
    /// The verdict of a run that lost the reader of its console.
    fn reader_verdict(&self) -> Verdict {
        match self.reader.cause() {
            Some(StopCause::Broken(message)) => failed(FailureClass::Internal, message),
            _ => Verdict::Interrupted,
        }
    }

    /// Takes a message; gives back the last one.
    fn take(&mut self, message: Message) -> Option<Done> {
        match message {
            Message::Output(bytes) => self.console.push(&bytes),
            Message::Log(bytes) => self.log(&bytes),
            Message::Results(bytes) if self.results.len() + bytes.len() <= MAX_RESULTS => {
                self.results.extend_from_slice(&bytes);
            }
            Message::InputTaken(bytes) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.input_room = self.input_room.saturating_add(bytes).min(INPUT_WINDOW);
            }
            Message::Answers(bytes) => {
                if let Some(control) = &mut self.control {
                    control.answers(&bytes);
                }
            }
            Message::Done(done) => return Some(done),
            // A document that is too long misses its end and does not parse; the rest is no news.
            _ => {}
        }
        None
    }

    /// Logs the inner run's lines as they become whole.
    fn log(&mut self, bytes: &[u8]) {
        self.log.push(bytes);
        self.unfinished_line.extend_from_slice(bytes);
        while let Some(end) = self.unfinished_line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unfinished_line.drain(..=end).collect();
            pass_on(String::from_utf8_lossy(&line).trim_end());
        }
        if self.unfinished_line.len() > MAX_LINE {
            self.unfinished_line.clear();
        }
    }
}

/// A line longer than this is not logged.
const MAX_LINE: usize = 64 << 10;

/// Logs a line of the inner run at the level it gave it itself. Lines without
/// one, such as its verdict, are for the results and only of interest in debugging.
fn pass_on(line: &str) {
    // As the logger writes it: "aerostat: [  0.123] warn: message".
    let leveled = line
        .strip_prefix("aerostat: [")
        .and_then(|rest| rest.split_once("] "))
        .and_then(|(at, rest)| Some((at, rest.split_once(": ")?)))
        .and_then(|(at, (level, message))| Some((at, level.parse::<log::Level>().ok()?, message)));
    match leveled {
        Some((at, level, message)) => log::log!(level, "emulated host [{}]: {message}", at.trim()),
        None => log::debug!("emulated host: {line}"),
    }
}

/// What the host is asked to do.
fn job(config: &Config, files: &[GuestFile], options: &JobOptions, input: bool) -> Job {
    let size = config.memory.size;
    let page_bytes = config.memory.page.bytes();
    let hugetlb = config.memory.backing == Backing::Hugetlb;
    let needed = size.div_ceil(page_bytes);
    Job {
        config: inside(config, files, input).to_toml(),
        pool: hugetlb.then(|| Pool {
            page_bytes,
            pages: options.pool_pages.unwrap_or(needed),
        }),
        plain_bytes: if hugetlb { 0 } else { size },
        input,
        control: false,
        debug: log::log_enabled!(log::Level::Debug),
    }
}

/// The configuration as the inner run sees it: its own paths, its own pipes.
fn inside(config: &Config, files: &[GuestFile], input: bool) -> Config {
    let mut inside = config.clone();
    for file in files {
        let path = file.path_in_host();
        match file.key {
            "kernel.initrd" => inside.kernel.initrd = Some(path),
            _ => inside.kernel.image = path,
        }
    }
    if inside.console.output != config::ConsoleOutput::None {
        inside.console.output = config::ConsoleOutput::Stdout;
    }
    inside.console.input = input;
    inside.results.path = Some(crate::host::agent::RESULTS_PATH.into());
    // Clients connect here, and come to it through the host's channel.
    inside.control.socket = None;
    inside.host.kernel = None;
    inside.host.memory = None;
    inside
}

/// When this side stops waiting for the inner run's own time limit.
fn outer_deadline(config: &Config) -> Option<Instant> {
    let limit = config.timeout.run;
    (!limit.is_zero())
        .then(|| {
            Instant::now()
                .checked_add(limit)?
                .checked_add(TIMEOUT_MARGIN)
        })
        .flatten()
}
