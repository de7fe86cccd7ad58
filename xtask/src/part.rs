//! A task of ours that runs beside another one, in a process of its own.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::Failure;
use crate::command::say;

/// A task that runs; what it prints is kept for later.
pub(crate) struct Part {
    task: &'static str,
    child: Child,
    log: PathBuf,
    started: Instant,
}

impl Part {
    /// Starts `cargo xtask TASK`. `log` is where its output goes.
    pub(crate) fn start(task: &'static str, log: PathBuf) -> Result<Self, Failure> {
        let output = File::create(&log)?;
        let child = Command::new(std::env::current_exe()?)
            .arg(task)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self {
            task,
            child,
            log,
            started: Instant::now(),
        })
    }

    /// Waits for its end and shows what it printed.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        let took = self.started.elapsed().as_secs();
        io::copy(&mut File::open(&self.log)?, &mut io::stderr())?;
        say(&format!("{} was done {took} s after its start", self.task));
        match status.success() {
            true => Ok(()),
            false => Err(format!("{} failed: {status}", self.task).into()),
        }
    }
}

impl Drop for Part {
    /// It is not left behind when the other task has failed.
    fn drop(&mut self) {
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}
