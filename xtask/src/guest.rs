//! A guest of a kernel that is tried, in a host that stays for the next one.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use vmm::config;
use vmm::host::{HostChoice, HostOptions, Session};
use vmm::results::RunResults;
use vmm::run_io::RunIo;
use vmm_sys_util::eventfd::EventFd;

use crate::Failure;
use crate::artifacts::Artifacts;

/// The host.
pub(crate) struct Lab {
    artifacts: Artifacts,
    session: Session,
}

/// What runs in it.
pub(crate) struct Guest {
    /// A bzImage.
    pub(crate) kernel: PathBuf,
    /// Words for the kernel.
    pub(crate) cmdline: String,
    /// Words for its init.
    pub(crate) steps: String,
    /// Overrides of the configuration.
    pub(crate) sets: Vec<String>,
}

/// A run that is over.
pub(crate) struct Ran {
    pub(crate) results: RunResults,
    pub(crate) console: String,
}

impl Lab {
    /// Boots the host.
    pub(crate) fn start(artifacts: &Artifacts) -> Result<Self, Failure> {
        let host = HostOptions {
            host_kernel: Some(artifacts.host_kernel.clone()),
            agent: Some(artifacts.aerostat.clone()),
            ..HostOptions::default()
        };
        let session = Session::start(HostChoice::Auto, &host, EventFd::new(0)?)
            .map_err(|verdict| format!("no host: {verdict}"))?;
        Ok(Self {
            artifacts: artifacts.clone(),
            session,
        })
    }

    /// Runs it to its end, whatever that is.
    pub(crate) fn run(&mut self, guest: &Guest) -> Result<Ran, Failure> {
        let Guest {
            kernel,
            cmdline,
            steps,
            sets,
        } = guest;
        let text = format!(
            "[kernel]\nimage = {kernel:?}\ninitrd = {:?}\ncmdline = {:?}\n\
             [timeout]\nboot = \"5m\"\nrun = \"15m\"\n",
            self.artifacts.initrd,
            format!("console=ttyS0 panic=-1 loglevel=7 {cmdline} -- {steps}"),
        );
        let config = config::load_str(&text, "guest", ".".as_ref(), sets)?;
        let console = Console::default();
        let io = RunIo {
            output: Box::new(console.clone()),
            input: None,
            stop: EventFd::new(0)?,
            control: None,
            exec: Instant::now(),
        };
        let results = self.session.run(&config, io);
        Ok(Ran {
            results,
            console: console.text(),
        })
    }
}

/// A console that is kept.
#[derive(Clone, Default)]
struct Console(Arc<Mutex<Vec<u8>>>);

impl Console {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
