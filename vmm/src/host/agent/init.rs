//! What makes the agent the init of a Linux: mounts, the port, the end.

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::thread;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot, uname};
use thiserror::Error;

use super::meminfo::Meminfo;
use super::outbox::Outbox;
use super::serve::{Places, serve};
use super::{ALIVE_EVERY, FILES, INIT_PATH, JOB, port};
use crate::host::protocol::{Message, Ready, message};

#[derive(Debug, Error)]
enum InitError {
    #[error("mount {0}: {1}")]
    Mount(&'static str, io::Error),
    #[error(transparent)]
    Port(#[from] port::PortError),
    #[error("control channel: {0}")]
    Channel(io::Error),
}

/// Whether this process is the init of an emulated host.
#[must_use]
pub fn is_init() -> bool {
    std::process::id() == 1
        && std::env::args_os()
            .next()
            .is_some_and(|name| name == INIT_PATH)
}

/// Serves the other side until it goes away, then ends the machine.
pub fn main() -> ! {
    // An init that dies, or a thread of it, would leave the other side waiting.
    std::panic::set_hook(Box::new(|panic| {
        say(&format!("{panic}"));
        end_machine()
    }));
    match init() {
        Ok(()) => say("the control channel was closed"),
        Err(error) => say(&error.to_string()),
    }
    end_machine()
}

fn init() -> Result<(), InitError> {
    mount_all()?;
    let port = port::open()?;
    let reader = port.try_clone().map_err(InitError::Channel)?;
    let outbox = Outbox::new(port);
    outbox
        .send(&Message::Ready(facts()))
        .map_err(InitError::Channel)?;
    let alive = outbox.clone();
    thread::spawn(move || {
        while alive.send(&Message::Alive).is_ok() {
            thread::sleep(ALIVE_EVERY);
        }
    });
    serve(reader, &outbox, Places::default()).map_err(InitError::Channel)
}

fn mount_all() -> Result<(), InitError> {
    const MOUNTS: [(&str, &str, &CStr); 5] = [
        ("devtmpfs", "/dev", c""),
        ("proc", "/proc", c""),
        ("sysfs", "/sys", c""),
        ("tmpfs", FILES, c"size=75%,mode=700"),
        ("tmpfs", JOB, c"size=75%,mode=700"),
    ];
    for (kind, at, options) in MOUNTS {
        mount(kind, at, kind, MountFlags::empty(), options)
            .map_err(|error| InitError::Mount(at, error.into()))?;
    }
    Ok(())
}

fn facts() -> Ready {
    let uname = uname();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, name)| name.to_owned());
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime = uptime
        .split_whitespace()
        .next()
        .and_then(|seconds| seconds.parse::<f64>().ok());
    let kvm = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    Ready {
        protocol: message::VERSION,
        aerostat: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: format!(
            "{} {}",
            uname.release().to_string_lossy(),
            uname.version().to_string_lossy()
        ),
        cpu: cpu.unwrap_or_default(),
        cpus: thread::available_parallelism()
            .map_or(0, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        memory: Meminfo::read().total,
        no_kvm: kvm.err().map(|error| format!("/dev/kvm: {error}")),
        uptime_ms: Duration::try_from_secs_f64(uptime.unwrap_or_default()).map_or(0, |uptime| {
            u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)
        }),
    }
}

/// On the serial console, which the other side keeps the end of.
pub(super) fn say(text: &str) {
    eprintln!("aerostat host: {text}");
}

/// QEMU runs with `-no-reboot`: a restart ends it.
fn end_machine() -> ! {
    // Only fails where this is not PID 1, and then the process ends.
    let _ = reboot(RebootCommand::Restart);
    std::process::exit(70)
}
