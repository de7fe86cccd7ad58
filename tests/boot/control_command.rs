//! `aerostat ctl` beside an `aerostat run`, both as their own processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::Lab;
use crate::{Case, Failure};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new(
        "ctl::results_exit_codes_and_the_end_of_the_vm",
        controls_a_run,
    )]
}

/// A run with its socket.
struct Run {
    program: PathBuf,
    socket: PathBuf,
    child: Child,
}

impl Run {
    fn start(lab: &Lab) -> Result<Self, Failure> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (config, socket) = (directory.join("ctl.toml"), directory.join("ctl.sock"));
        let artifacts = &lab.artifacts;
        let text = format!(
            "[kernel]\nimage = {:?}\ninitrd = {:?}\ncmdline = \"panic=-1 -- sleep=600\"\n\
             [memory]\nsize = \"512M\"\n[control]\nsocket = \"ctl.sock\"\n",
            artifacts.bzimage, artifacts.initrd,
        );
        std::fs::write(&config, text)?;
        let child = Command::new(&artifacts.aerostat)
            .arg("run")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            program: artifacts.aerostat.clone(),
            socket,
            child,
        })
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("ctl").arg(&self.socket);
        command.args(args.split(' ')).stdin(Stdio::null());
        command
    }

    /// Exit code, stdout, stderr.
    fn ctl(&self, args: &str) -> Result<(i32, String, String), Failure> {
        Ok(seen(&self.command(args).output()?))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Only where the test failed it runs still.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn seen(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    (code, text(&output.stdout), text(&output.stderr))
}

fn controls_a_run(lab: &Lab) -> Result<(), Failure> {
    let mut run = Run::start(lab)?;
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (code, stdout, stderr) = run.ctl("info --json")?;
        let info: Value = serde_json::from_str(&stdout).unwrap_or_default();
        if info["queue_numbering"].is_string() {
            break;
        }
        assert!(Instant::now() < until, "{code}: {stdout}{stderr}");
        thread::sleep(Duration::from_millis(100));
    }

    // What is asked for, the exit code, a part of stdout and of stderr.
    let rows = [
        ("info", 0, "memory_bytes", ""),
        ("balloon set 64M --wait", 0, "outcome", ""),
        ("balloon get", 0, "67108864 (64M)", ""),
        ("counters", 0, "inflated_pages", ""),
        (
            "balloon set 256M --wait --timeout 1s --ramp 16M",
            71,
            "timed_out_progressing",
            "did not reach 256M within 1s; it was still getting closer",
        ),
        ("balloon set 512M", 2, "", "is not less than guest RAM"),
        ("stats", 0, "values.free_bytes", ""),
        ("hint start", 2, "", "is not offered"),
        ("pause", 0, "paused", ""),
        ("stats --timeout 200ms", 68, "", "within 200ms"),
        (
            "balloon set 0 --wait --timeout 3s",
            72,
            "timed_out_stalled",
            "did not reach 0 within 3s; it had stopped getting closer",
        ),
        ("resume", 0, "running", ""),
    ];
    for (args, right, out, err) in rows {
        let (code, stdout, stderr) = run.ctl(args)?;
        assert_eq!(code, right, "{args}: {stdout}{stderr}");
        assert!(stdout.contains(out), "{args}: {stdout}");
        assert!(stderr.contains(err), "{args}: {stderr}");
        if right == 2 {
            assert_eq!(stdout, "", "{args}");
            assert_eq!(stderr.lines().count(), 1, "{args}: {stderr}");
        }
    }

    // A signal ends the run while somebody waits for something that never comes.
    run.ctl("pause")?;
    let mut waits = run.command("--json balloon set 128M --wait --timeout 10m");
    let waits = waits
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    thread::sleep(Duration::from_secs(1));
    let pid = run.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", "TERM", &pid])
            .status()?
            .success()
    );
    let (code, stdout, stderr) = seen(&waits.wait_with_output()?);
    assert_eq!((code, stdout.as_str()), (130, ""), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert_eq!(last, "aerostat: the VM ended before it answered");
    assert_eq!(run.child.wait()?.code(), Some(130));
    let (code, stdout, stderr) = run.ctl("info")?;
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(
        stderr.contains("no such socket"),
        "the socket is gone: {stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    Ok(())
}
