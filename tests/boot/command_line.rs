//! The `aerostat` command itself, as its own process with a host of its own.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::Lab;
use crate::{Case, Failure};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("cli::run_passes_console_code_and_results", passes_all_on),
        Case::new("cli::sigterm_during_boot_ends_cleanly", sigterm_during_boot),
        Case::new("cli::sigkill_leaves_no_host_behind", sigkill),
        Case::new("cli::stdout_closed_ends_the_run", stdout_closed),
    ]
}

/// `aerostat run` on our kernel; a mark in the kernel command line tells its
/// emulated host from those of other tests.
fn aerostat(lab: &Lab, steps: &str) -> Command {
    let artifacts = &lab.artifacts;
    let mut command = Command::new(&artifacts.aerostat);
    command.arg("run").arg(config_file(lab, steps));
    command.args(["--host-kernel".as_ref(), artifacts.host_kernel.as_os_str()]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A configuration in the folder cargo gives to tests.
fn config_file(lab: &Lab, steps: &str) -> std::path::PathBuf {
    let artifacts = &lab.artifacts;
    let name = steps.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    let text = format!(
        "[kernel]\nimage = {:?}\ninitrd = {:?}\ncmdline = {:?}\n[memory]\nsize = \"512M\"\n",
        artifacts.bzimage,
        artifacts.initrd,
        format!("console=ttyS0 panic=-1 -- {steps}"),
    );
    // The tests run one after the other; each writes the file it then runs.
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

fn passes_all_on(lab: &Lab) -> Result<(), Failure> {
    let results = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("results.json");
    let _ = fs::remove_file(&results);
    let mut command = aerostat(lab, "print=hello exit=7");
    let out = command.arg("--results").arg(&results).output()?;
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(7), "{stderr}");
    assert!(
        stdout.contains("hello"),
        "the console goes to stdout: {stdout}\n{stderr}"
    );
    assert!(stdout.contains("Linux version"), "all of it: {stdout}");
    let document: Value = serde_json::from_str(&fs::read_to_string(&results)?)?;
    assert_eq!(document["exit_code"], 7);
    assert_eq!(document["config"]["memory"]["size"], 512 << 20);
    assert!(
        document["timings"]["init_ms"].as_f64() > Some(0.0),
        "{document}"
    );
    Ok(())
}

fn sigterm_during_boot(lab: &Lab) -> Result<(), Failure> {
    let child = aerostat(lab, "hang").spawn()?;
    thread::sleep(Duration::from_secs(1));
    signal(&child, "TERM")?;
    let (code, stderr) = ended(child, Duration::from_secs(10))?;
    assert_eq!(code, Some(130), "{stderr}");
    no_host_of(lab)
}

fn sigkill(lab: &Lab) -> Result<(), Failure> {
    let child = aerostat(lab, "hang").spawn()?;
    thread::sleep(Duration::from_secs(2));
    signal(&child, "KILL")?;
    ended(child, Duration::from_secs(5))?;
    thread::sleep(Duration::from_millis(500));
    no_host_of(lab)
}

fn stdout_closed(lab: &Lab) -> Result<(), Failure> {
    let mut child = aerostat(lab, "hang").spawn()?;
    drop(child.stdout.take());
    let (code, stderr) = ended(child, Duration::from_secs(30))?;
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("stdout"), "it must say why: {stderr}");
    no_host_of(lab)
}

fn signal(child: &Child, name: &str) -> Result<(), Failure> {
    let pid = child.id().to_string();
    let status = Command::new("kill").args(["-s", name, &pid]).status()?;
    assert!(status.success(), "kill -s {name} {pid}");
    Ok(())
}

/// Waits for its end, at most `limit`; exit code and stderr.
fn ended(mut child: Child, limit: Duration) -> Result<(Option<i32>, String), Failure> {
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Err(format!("still running after {limit:?}").into());
        }
        thread::sleep(Duration::from_millis(20));
    };
    let mut stderr = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_string(&mut stderr)?;
    }
    Ok((status.code(), stderr))
}

/// Fails if a QEMU is there that is not the lab's own: only those started by this
/// process may be.
fn no_host_of(_lab: &Lab) -> Result<(), Failure> {
    let own = std::process::id();
    let mut strays = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // pid (comm) state ppid ...
        let Some((comm, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let mut fields = rest.split_whitespace();
        let (state, parent) = (fields.next(), fields.next());
        let is_own = parent == Some(own.to_string().as_str());
        if comm.contains("(qemu-system") && state != Some("Z") && !is_own {
            strays.push(pid);
        }
    }
    assert!(strays.is_empty(), "QEMU processes left behind: {strays:?}");
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
