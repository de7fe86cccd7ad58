//! One run: a child with pipes, from the moment it is asked for to its results.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, pidfd_send_signal, wait,
    waitpid,
};

use super::control_pipes::{ControlPipes, MAX_CALLS};
use super::outbox::Outbox;
use super::pools::{PoolError, Pools};
use super::serve::Places;
use crate::config::TEST_FAULTS;
use crate::control::pipes::PIPES_VARIABLE;
use crate::host::native::HOST_KIND_VARIABLE;
use crate::host::protocol::frame::CHUNK_BYTES;
use crate::host::protocol::{Done, Ended, Job, Message};
use crate::outcome::FailureClass;

/// Input held for a child that does not read. The other side keeps below it.
const MAX_INPUT: usize = 64 << 10;
/// Largest results document passed on, and the other side's bound as well.
const MAX_RESULTS: u64 = 64 << 20;
/// File names in the job's directory.
const CONFIG: &str = "config.toml";
const RESULTS: &str = "results.json";

/// Handle to a job that runs on a thread of its own.
pub(super) struct RunningJob {
    shared: Arc<Mutex<Control>>,
    input: mpsc::Sender<Vec<u8>>,
    input_held: Arc<AtomicUsize>,
    calls: mpsc::SyncSender<Vec<u8>>,
    over: Arc<AtomicBool>,
}

/// What the other side wants of the child, which may not be there yet.
#[derive(Default)]
struct Control {
    child: Option<OwnedFd>,
    signal: Option<Signal>,
}

impl RunningJob {
    pub(super) fn start(job: Job, outbox: Outbox, places: Places) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Control::default()));
        let (input, input_receiver) = mpsc::channel();
        let input_held = Arc::new(AtomicUsize::new(0));
        let (calls, call_receiver) = mpsc::sync_channel(MAX_CALLS);
        let over = Arc::new(AtomicBool::new(false));
        let (control, held, ends) = (
            Arc::clone(&shared),
            Arc::clone(&input_held),
            Arc::clone(&over),
        );
        thread::Builder::new().name("job".into()).spawn(move || {
            let input = (input_receiver, held);
            let ended = run(&job, &control, input, call_receiver, &outbox, &places);
            let ended = ended.unwrap_or_else(|error| refused(FailureClass::Internal, &error));
            let leaks = places.pools.leaks();
            // Before it is said: the next job may follow at once.
            ends.store(true, Ordering::Release);
            // Fails only when the other side is gone, which the reader notices.
            let _ = outbox.send(&Message::Done(Done { ended, leaks }));
        })?;
        Ok(Self {
            shared,
            input,
            input_held,
            calls,
            over,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Passes input on; what exceeds the bound is dropped.
    pub(super) fn input(&self, bytes: Vec<u8>) {
        let length = bytes.len();
        let held = self.input_held.fetch_add(length, Ordering::Relaxed);
        let fits = held.saturating_add(length) <= MAX_INPUT;
        if length == 0 || !fits || self.input.send(bytes).is_err() {
            self.input_held.fetch_sub(length, Ordering::Relaxed);
        }
    }

    pub(super) fn end_input(&self) {
        // An empty piece is the end; nobody listens once the job is over.
        let _ = self.input.send(Vec::new());
    }

    /// Passes a control call on; it is dropped if too many are waiting.
    pub(super) fn call(&self, line: Vec<u8>) {
        let _ = self.calls.try_send(line);
    }

    pub(super) fn stop(&self) {
        signal(&self.shared, Signal::TERM);
    }

    pub(super) fn kill(&self) {
        signal(&self.shared, Signal::KILL);
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Signals the child now, or as soon as it is there.
fn signal(shared: &Mutex<Control>, signal: Signal) {
    let mut control = lock(shared);
    control.signal = Some(signal);
    if let Some(child) = &control.child {
        // Fails only for a child that has ended.
        let _ = pidfd_send_signal(child, signal);
    }
}

fn lock(shared: &Mutex<Control>) -> MutexGuard<'_, Control> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(
    job: &Job,
    shared: &Mutex<Control>,
    (input, held): (mpsc::Receiver<Vec<u8>>, Arc<AtomicUsize>),
    calls: mpsc::Receiver<Vec<u8>>,
    outbox: &Outbox,
    places: &Places,
) -> io::Result<Ended> {
    let (config, results) = (places.job.join(CONFIG), places.job.join(RESULTS));
    // Left over only if an earlier run was killed.
    let _ = fs::remove_file(&results);
    if let Err(error) = places
        .pools
        .set(job.pool)
        .and_then(|()| Pools::check_room(job.plain_bytes))
    {
        let class = match error {
            PoolError::Io(..) => FailureClass::Internal,
            _ => FailureClass::Memory,
        };
        return Ok(refused(class, &error));
    }
    fs::write(&config, &job.config)?;

    let mut command = Command::new(&places.program);
    command
        .args(job.debug.then_some("--verbose"))
        .args(["run", "--host", "native"])
        .arg(&config)
        .env(HOST_KIND_VARIABLE, "emulated")
        // The outer process has asked for it already, or the key was refused there.
        .env(TEST_FAULTS, "1")
        .stdin(if job.input {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let control = job.control.then(|| ControlPipes::connect(calls, outbox));
    let (control, answers) = control.transpose()?.unzip();
    if let Some(pipes) = &control {
        command.env(PIPES_VARIABLE, pipes.variable());
    }
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    adopt(shared, pid)?;
    let pumps = connect(&mut child, input, held, outbox);

    let (_, status) = waitpid(Some(pid), WaitOptions::empty())?.ok_or(io::ErrorKind::NotFound)?;
    // Whatever the child started goes with it, so that the pipes end too.
    let _ = kill_process_group(pid, Signal::KILL);
    // And with them the pipes it was controlled through.
    drop(control);
    for pump in pumps.into_iter().chain(answers) {
        // A pump that panicked has ended the machine.
        let _ = pump.join();
    }
    reap_orphans();
    send_results(&results, outbox)?;
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signalled(signal.unwrap_or_default()),
    })
}

/// Makes the child known, and gives it a signal that came before it.
fn adopt(shared: &Mutex<Control>, pid: Pid) -> io::Result<()> {
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    let mut control = lock(shared);
    if let Some(signal) = control.signal {
        pidfd_send_signal(&child, signal)?;
    }
    control.child = Some(child);
    Ok(())
}

/// Threads between the child's pipes and the other side.
fn connect(
    child: &mut Child,
    input: mpsc::Receiver<Vec<u8>>,
    held: Arc<AtomicUsize>,
    outbox: &Outbox,
) -> Vec<JoinHandle<()>> {
    if let Some(stdin) = child.stdin.take() {
        let outbox = outbox.clone();
        // Ends with the job's handle, not with the child: it is not waited for.
        thread::spawn(move || feed(stdin, &input, &held, &outbox));
    }
    let mut pumps = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let outbox = outbox.clone();
        pumps.push(thread::spawn(move || {
            pump(stdout, Message::Output, &outbox)
        }));
    }
    if let Some(stderr) = child.stderr.take() {
        let outbox = outbox.clone();
        pumps.push(thread::spawn(move || pump(stderr, Message::Log, &outbox)));
    }
    pumps
}

/// Passes on what comes, until it ends.
pub(super) fn pump(mut from: impl Read, as_message: fn(Vec<u8>) -> Message, outbox: &Outbox) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let bytes = chunk.get(..length).unwrap_or_default().to_vec();
        if outbox.send(&as_message(bytes)).is_err() {
            return;
        }
    }
}

/// Writes input to the child and reports each piece as taken, so that more comes.
fn feed(stdin: ChildStdin, input: &mpsc::Receiver<Vec<u8>>, held: &AtomicUsize, outbox: &Outbox) {
    let mut stdin = Some(stdin);
    while let Ok(bytes) = input.recv() {
        if bytes.is_empty() {
            stdin = None;
            continue;
        }
        if stdin
            .as_mut()
            .is_some_and(|stdin| stdin.write_all(&bytes).is_err())
        {
            // It closed its input or ended: the rest is taken and dropped.
            stdin = None;
        }
        held.fetch_sub(bytes.len(), Ordering::Relaxed);
        let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if outbox.send(&Message::InputTaken(taken)).is_err() {
            return;
        }
    }
}

/// As init, this process inherits everybody's orphans.
fn reap_orphans() {
    if std::process::id() == 1 {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

fn send_results(path: &std::path::Path, outbox: &Outbox) -> io::Result<()> {
    let mut document = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_RESULTS).read_to_end(&mut document)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    fs::remove_file(path)?;
    document
        .chunks(CHUNK_BYTES)
        .try_for_each(|chunk| outbox.send(&Message::Results(chunk.to_vec())))
}

fn refused(class: FailureClass, error: &dyn std::fmt::Display) -> Ended {
    Ended::Refused {
        class,
        message: error.to_string(),
    }
}
