//! One host for one guest or many.

use vmm_sys_util::eventfd::EventFd;

use super::choose::{self, Chosen, Places};
use super::emulated::{EmulatedHost, MachineSpec, Sent};
use super::failure::{failed, no_facts};
use super::{HostChoice, HostOptions, JobOptions, native};
use crate::config::Config;
use crate::outcome::{FailureClass, Verdict};
use crate::results::{HostKind, RunResults};
use crate::run_io::RunIo;

/// A host that is up. Dropping it ends it and leaves nothing behind.
pub struct Session {
    host: Host,
}

enum Host {
    Native,
    Emulated(Box<EmulatedHost>),
}

/// Runs one guest on the host that `choice` picks.
pub fn run(config: &Config, choice: HostChoice, options: &HostOptions, io: RunIo) -> RunResults {
    let started = io
        .stop
        .try_clone()
        .map_err(|error| failed(FailureClass::Internal, error.to_string()))
        .and_then(|stop| Session::start(choice, &options.completed_by(config), stop));
    match started {
        Ok(mut session) => session.run(config, io),
        Err(verdict) => {
            let kind = if choice == HostChoice::Native {
                HostKind::Native
            } else {
                HostKind::Emulated
            };
            RunResults::new(config, no_facts(kind), verdict)
        }
    }
}

impl Session {
    /// Picks a host and, if it is emulated, boots it.
    ///
    /// # Errors
    ///
    /// The verdict of everything that was to run on it: no such host, a host
    /// that does not come up, or `stop` became readable before it did.
    pub fn start(
        choice: HostChoice,
        options: &HostOptions,
        stop: EventFd,
    ) -> Result<Self, Verdict> {
        let (chosen, why) = choose::decide(choice, &choose::look(&Places::default()))?;
        if native::kind() == HostKind::Native {
            log::info!("{why}");
        }
        let host = match chosen {
            Chosen::Native => Host::Native,
            Chosen::Emulated(qemu) => {
                let kernel = options.host_kernel.clone().ok_or_else(|| {
                    failed(
                        FailureClass::Usage,
                        "the emulated host has no kernel: name one with host.kernel",
                    )
                })?;
                let spec = MachineSpec {
                    qemu,
                    kernel,
                    agent: options.agent_path(),
                    memory: options.memory_bytes(),
                    cpus: options.cpu_count(),
                    gigantic_pages: options.gigantic_pages,
                };
                Host::Emulated(Box::new(EmulatedHost::start(&spec, &stop)?))
            }
        };
        Ok(Self { host })
    }

    /// Native or emulated.
    #[must_use]
    pub fn kind(&self) -> HostKind {
        match &self.host {
            Host::Native => native::kind(),
            Host::Emulated(_) => HostKind::Emulated,
        }
    }

    /// Runs one guest to its end.
    pub fn run(&mut self, config: &Config, io: RunIo) -> RunResults {
        self.run_with(config, &JobOptions::default(), io)
    }

    /// Runs one guest to its end, with a say in how the host is prepared.
    pub fn run_with(&mut self, config: &Config, options: &JobOptions, io: RunIo) -> RunResults {
        match &mut self.host {
            Host::Native => native::run(config, io),
            Host::Emulated(host) => host.run(config, options, io),
        }
    }

    /// What booting an emulated host took, from exec of QEMU, in milliseconds.
    #[must_use]
    pub fn boot_ms(&self) -> Option<f64> {
        self.emulated().map(|host| host.boot().as_secs_f64() * 1e3)
    }

    /// Files sent to an emulated host so far.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.emulated().map(EmulatedHost::sent).unwrap_or_default()
    }

    /// Huge pages that were missing from their pool after a run, over all runs
    /// on an emulated host. Anything but 0 is a leak.
    #[must_use]
    pub fn leaked_pages(&self) -> u64 {
        self.emulated().map_or(0, EmulatedHost::leaked_pages)
    }

    /// Process id of an emulated host's QEMU.
    #[must_use]
    pub fn qemu_pid(&self) -> Option<u32> {
        self.emulated().map(EmulatedHost::pid)
    }

    fn emulated(&self) -> Option<&EmulatedHost> {
        match &self.host {
            Host::Native => None,
            Host::Emulated(host) => Some(host),
        }
    }
}
