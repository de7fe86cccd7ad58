//! The emulated host as a whole: it boots once, takes files and runs guests.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::EventFd;

use super::files::GuestFile;
use super::initrd;
use super::link::{Link, LinkError, Others, Turn};
use super::pollable::pollable;
use super::qemu::{Qemu, QemuSpec};
use crate::host::failure::failed;
use crate::host::protocol::{FileStart, FileStored, Message, Ready, message};
use crate::outcome::{FailureClass, Verdict};
use crate::results::{HostFacts, HostKind};

/// From exec of QEMU until the agent is ready. Some 1.5 s on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// A host that says nothing this long is dead: it sends a sign of life every
/// [`crate::host::agent::ALIVE_EVERY`].
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait before the clocks are looked at again.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// Console lines logged when a host breaks.
const LAST_LINES: usize = 30;

/// Marks of a line that says why a host broke.
const TELLING: [&str; 5] = [
    "Kernel panic",
    "Oops",
    "BUG:",
    "aerostat host:",
    "qemu-system",
];

/// How QEMU says that it cannot have the memory of its guest.
const NO_MEMORY: &str = "cannot set up guest memory";

/// What an emulated host is made of.
pub(crate) struct MachineSpec {
    pub(crate) qemu: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) agent: PathBuf,
    pub(crate) memory: u64,
    pub(crate) cpus: u8,
    pub(crate) gigantic_pages: u64,
}

/// A host that is up. Dropping it ends it.
pub(crate) struct EmulatedHost {
    qemu: Qemu,
    pub(super) link: Link,
    /// Its RAM in bytes.
    memory: u64,
    stored: HashSet<String>,
    ready: Ready,
    boot: Duration,
    sent: Sent,
    /// Why no guest can run on it any more.
    broken: Option<String>,
    /// Huge pages that did not come back, over all runs.
    pub(super) leaked_pages: u64,
}

/// Files sent so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Their bytes.
    pub bytes: u64,
    /// The time it took.
    pub time: Duration,
}

impl EmulatedHost {
    /// Boots it.
    pub(crate) fn start(spec: &MachineSpec, stop: &EventFd) -> Result<Self, Verdict> {
        let internal = |error: &dyn std::fmt::Display| {
            failed(FailureClass::Internal, format!("emulated host: {error}"))
        };
        check_kernel(&spec.kernel)?;
        let initrd = initrd::build(&spec.agent).map_err(|error| internal(&error))?;
        let start = Instant::now();
        let (qemu, stream) = Qemu::start(QemuSpec {
            program: &spec.qemu,
            kernel: &spec.kernel,
            initrd,
            memory: spec.memory,
            cpus: spec.cpus,
            gigantic_pages: spec.gigantic_pages,
        })
        .map_err(|error| {
            internal(&format_args!(
                "cannot start {}: {error}",
                spec.qemu.display()
            ))
        })?;
        let mut host = Self {
            qemu,
            link: Link::new(stream).map_err(|error| internal(&error))?,
            memory: spec.memory,
            stored: HashSet::new(),
            ready: Ready::default(),
            boot: Duration::ZERO,
            sent: Sent::default(),
            broken: None,
            leaked_pages: 0,
        };
        host.ready = host
            .wait_until_ready(start, stop)
            .map_err(|verdict| with_kernel(verdict, &spec.kernel))?;
        host.boot = start.elapsed();
        if host.ready.protocol != message::VERSION {
            return Err(internal(&format_args!(
                "{} speaks protocol {} and this program {}; use the same build",
                spec.agent.display(),
                host.ready.protocol,
                message::VERSION
            )));
        }
        if let Some(reason) = &host.ready.no_kvm {
            return Err(failed(
                FailureClass::NoKvm,
                format!(
                    "the emulated host has no usable KVM: {reason}; is {} built with KVM?",
                    spec.kernel.display()
                ),
            ));
        }
        log::debug!(
            "emulated host ready after {} ms: {}",
            host.boot.as_millis(),
            host.ready.kernel
        );
        Ok(host)
    }

    fn wait_until_ready(&mut self, start: Instant, stop: &EventFd) -> Result<Ready, Verdict> {
        let stop =
            pollable(stop).map_err(|error| failed(FailureClass::Internal, error.to_string()))?;
        loop {
            let others = Others {
                stop: Some(std::os::fd::AsFd::as_fd(&stop)),
                ..Others::default()
            };
            let turn = self.turn(&others)?;
            if turn.stop {
                return Err(Verdict::Interrupted);
            }
            for message in turn.messages {
                if let Message::Ready(ready) = message {
                    return Ok(ready);
                }
            }
            if start.elapsed() > BOOT_LIMIT {
                return Err(self.give_up(&format!("not ready after {} s", BOOT_LIMIT.as_secs())));
            }
        }
    }

    /// One turn of the link; a broken or silent link ends the host.
    pub(super) fn turn(&mut self, others: &Others<'_>) -> Result<Turn, Verdict> {
        if let Some(reason) = &self.broken {
            return Err(failed(
                FailureClass::Internal,
                format!("the emulated host is gone: {reason}"),
            ));
        }
        match self.link.turn(others, TICK) {
            Ok(_) if self.link.heard.elapsed() > SILENCE_LIMIT => {
                Err(self.give_up(&format!("silent for {} s", SILENCE_LIMIT.as_secs())))
            }
            Ok(turn) => Ok(turn),
            Err(error) => Err(self.link_failed(&error)),
        }
    }

    /// Puts a message in line.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), Verdict> {
        self.link
            .queue(message)
            .map_err(|error| self.link_failed(&error))
    }

    fn link_failed(&mut self, error: &LinkError) -> Verdict {
        let exit = matches!(error, LinkError::Closed)
            .then(|| self.qemu.exit_status())
            .flatten();
        match exit {
            Some(status) => self.give_up(&format!("QEMU ended ({status})")),
            None => self.give_up(&error.to_string()),
        }
    }

    /// Ends the host and says why, with the last it had to say.
    pub(super) fn give_up(&mut self, reason: &str) -> Verdict {
        self.qemu.kill();
        let lines = self.qemu.console.lines();
        for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
            log::warn!("emulated host: {line}");
        }
        let telling = lines
            .iter()
            .rev()
            .find(|line| TELLING.iter().any(|mark| line.contains(mark)));
        let reason = match telling {
            Some(line) => format!("{reason}; it said: {}", line.trim()),
            None => reason.to_owned(),
        };
        self.broken = Some(reason.clone());
        if reason.contains(NO_MEMORY) {
            return failed(
                FailureClass::Memory,
                format!(
                    "this machine has not the {} MiB of RAM for the emulated host: lower \
                     memory.size or host.memory",
                    self.memory >> 20
                ),
            );
        }
        failed(
            FailureClass::Internal,
            format!("the emulated host broke down: {reason}"),
        )
    }

    /// Sends the files the host does not have. `false`: asked to stop.
    pub(super) fn send_files(
        &mut self,
        files: &mut [GuestFile],
        stop: &Others<'_>,
    ) -> Result<bool, Verdict> {
        for file in super::files::missing(files, &self.stored) {
            let start = Instant::now();
            self.send(&Message::FileStart(FileStart {
                id: file.id.clone(),
                bytes: file.bytes,
            }))?;
            let mut sent = 0;
            loop {
                while sent < file.bytes && !self.link.is_backed_up() {
                    let chunk = file
                        .next_chunk()
                        .map_err(|error| failed(FailureClass::Usage, error.to_string()))?;
                    let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                    if length == 0 || sent.saturating_add(length) > file.bytes {
                        return Err(changed(file));
                    }
                    sent += length;
                    self.send(&Message::FileData(chunk))?;
                }
                let turn = self.turn(stop)?;
                if turn.stop {
                    return Ok(false);
                }
                let stored = turn.messages.into_iter().find_map(|message| match message {
                    Message::FileStored(stored) => Some(stored),
                    _ => None,
                });
                match stored {
                    Some(FileStored { id, error: None }) if id == file.id => break,
                    Some(FileStored {
                        id,
                        error: Some(error),
                    }) if id == file.id => {
                        return Err(failed(
                            FailureClass::Memory,
                            format!(
                                "{}: {} does not fit into the emulated host: {error}",
                                file.key,
                                file.path.display()
                            ),
                        ));
                    }
                    Some(_) | None => {}
                }
            }
            self.stored.insert(file.id.clone());
            self.sent.bytes += file.bytes;
            self.sent.time += start.elapsed();
            log::debug!(
                "sent {}: {} bytes in {} ms",
                file.path.display(),
                file.bytes,
                start.elapsed().as_millis()
            );
        }
        Ok(true)
    }

    /// From exec of QEMU to ready.
    pub(crate) fn boot(&self) -> Duration {
        self.boot
    }

    /// What the files took so far.
    pub(crate) fn sent(&self) -> Sent {
        self.sent
    }

    /// QEMU's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.qemu.pid()
    }

    /// Huge pages that did not come back to their pool, over all runs.
    pub(crate) fn leaked_pages(&self) -> u64 {
        self.leaked_pages
    }

    /// The host, for results no inner run could write.
    pub(super) fn facts(&self) -> HostFacts {
        HostFacts {
            kind: HostKind::Emulated,
            kernel: self.ready.kernel.clone(),
            cpu: self.ready.cpu.clone(),
            cpus: self.ready.cpus,
            thp: None,
            pools: Vec::new(),
        }
    }
}

fn changed(file: &GuestFile) -> Verdict {
    failed(
        FailureClass::Usage,
        format!(
            "{}: {} changed while it was read",
            file.key,
            file.path.display()
        ),
    )
}

/// A host that breaks while it boots does so because of its kernel, mostly.
fn with_kernel(verdict: Verdict, kernel: &Path) -> Verdict {
    match verdict {
        Verdict::Failed {
            class: class @ FailureClass::Internal,
            message,
        } => failed(
            class,
            format!(
                "{message}; its kernel is {} (host.kernel, else kernel.image)",
                kernel.display()
            ),
        ),
        other => other,
    }
}

/// What QEMU would only say in its own words, or by never booting.
fn check_kernel(path: &Path) -> Result<(), Verdict> {
    use std::io::Read;
    /// Where a bzImage carries "HdrS" (Linux x86 boot protocol, offset 0x202).
    const HDRS: std::ops::Range<usize> = 0x202..0x206;

    let usage = |what: &dyn std::fmt::Display| {
        failed(
            FailureClass::Usage,
            format!(
                "kernel of the emulated host (host.kernel, else kernel.image): {}: {what}",
                path.display()
            ),
        )
    };
    let mut head = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(1024).read_to_end(&mut head))
        .map_err(|error| usage(&error))?;
    if head.starts_with(b"\x7fELF") || head.get(HDRS) == Some(b"HdrS") {
        return Ok(());
    }
    Err(usage(&"neither an ELF kernel nor a bzImage"))
}
