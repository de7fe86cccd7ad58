//! The QEMU process: started with nothing on disk, and never left behind.

// UNSAFETY: what a child does between fork and exec is outside the language's guarantees.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::command_line::{self, Machine};
use super::tsc;
use crate::tail::Tail;

/// How long an exit status may take once QEMU closed its end of the channel.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// A running QEMU; killed and reaped when dropped.
pub(super) struct Qemu {
    child: Child,
    /// What the host's serial console and QEMU itself said last.
    pub(super) console: Tail,
    /// Dropped last: lets the thread end that QEMU regards as its parent.
    /// Disconnected when `console` has all there is.
    drained: mpsc::Receiver<()>,
    _keeper: mpsc::Sender<()>,
}

/// What a QEMU is made of.
pub(super) struct QemuSpec<'a> {
    pub(super) program: &'a Path,
    pub(super) kernel: &'a Path,
    pub(super) initrd: File,
    pub(super) memory: u64,
    pub(super) cpus: u8,
    pub(super) gigantic_pages: u64,
}

impl Qemu {
    /// Starts it; the stream is the control channel.
    pub(super) fn start(spec: QemuSpec<'_>) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let machine = Machine {
            kernel: spec.kernel,
            initrd: spec.initrd.as_raw_fd(),
            control: theirs.as_raw_fd(),
            memory: spec.memory,
            cpus: spec.cpus,
            gigantic_pages: spec.gigantic_pages,
            tsc_khz: tsc::measure_khz(),
        };
        let (console, console_writer) = UnixStream::pair()?;
        let mut command = Command::new(spec.program);
        command
            .args(command_line::arguments(&machine))
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(console_writer.try_clone()?))
            .stderr(OwnedFd::from(console_writer))
            // A Ctrl-C is for this process, which then stops the guest in order.
            .process_group(0);
        hand_down(&mut command, vec![spec.initrd.into(), theirs.into()]);
        let (child, keeper) = spawn_on_own_thread(command)?;

        let tail = Tail::default();
        let kept = tail.clone();
        let (all_read, drained) = mpsc::channel();
        thread::Builder::new()
            .name("host-console".into())
            .spawn(move || {
                kept.drain(console);
                drop(all_read);
            })?;
        Ok((
            Self {
                child,
                console: tail,
                drained,
                _keeper: keeper,
            },
            ours,
        ))
    }

    /// QEMU's process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it ends within a moment; otherwise it is killed.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + EXIT_WAIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        None
    }

    /// Ends it now. It holds nothing that would have to be saved.
    pub(super) fn kill(&mut self) {
        // Both fail only for a child that is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its last words come with its end.
        let _ = self.drained.recv_timeout(EXIT_WAIT);
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lets the child inherit `descriptors`, and die with this process.
///
/// They stay close-on-exec here, so no other child can inherit them by accident.
fn hand_down(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let parent = process::id();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if parent_id() != parent {
            // The parent died before the line above could notice.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        for descriptor in &descriptors {
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes three system calls and
    // reads what it owns; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Spawns from a thread that lives until the sender is dropped.
///
/// The kernel sends the parent death signal when the *thread* that forked ends,
/// and a session may be started on any thread, such as one of a test.
fn spawn_on_own_thread(mut command: Command) -> io::Result<(Child, mpsc::Sender<()>)> {
    let (keeper, kept) = mpsc::channel::<()>();
    let (spawned, child) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("qemu-parent".into())
        .spawn(move || {
            let result = command.spawn();
            // Closes this process's copies of what the child inherited.
            drop(command);
            if spawned.send(result).is_ok() {
                let _ = kept.recv();
            }
        })?;
    let child = child.recv().map_err(io::Error::other)??;
    Ok((child, keeper))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn state_of(pid: u32) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("State:\t"))
            .map(str::to_owned)
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it_but_not_its_keeper() {
        let (mut child, keeper) = thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60").stdin(Stdio::null());
            hand_down(&mut command, Vec::new());
            spawn_on_own_thread(command).unwrap()
        })
        .join()
        .unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(
            child.try_wait().unwrap().is_none(),
            "the asking thread is gone, the child is not"
        );

        drop(keeper);
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
        assert_eq!(state_of(child.id()), None);
    }

    #[test]
    fn only_the_named_descriptors_are_inherited() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let number = theirs.as_raw_fd();
        let mut command = Command::new("ls");
        command.args(["-1", "/proc/self/fd"]).stdin(Stdio::null());
        hand_down(&mut command, vec![theirs.into()]);
        let seen = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(
            seen.lines().any(|line| line == number.to_string()),
            "{seen}"
        );
        assert!(
            !seen
                .lines()
                .any(|line| line == ours.as_raw_fd().to_string()),
            "{seen}"
        );
    }

    #[test]
    fn a_program_that_is_missing_is_an_error_here() {
        let Err(error) = spawn_on_own_thread(Command::new("/nonexistent/qemu")) else {
            panic!("nothing to start, yet it started");
        };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
