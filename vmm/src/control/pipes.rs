//! The control port of a VM in an emulated host, whose kernel has no sockets:
//! the two pipes its agent gives to the run, with one JSON value a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::thread;

use super::port::{CallSender, ControlPort, FromVm, Say, ToVm};

/// Environment variable with the paths of the pipes to read calls from and to
/// write answers to: `/proc/1/fd/5,/proc/1/fd/8`.
pub const PIPES_VARIABLE: &str = "AEROSTAT_CONTROL_PIPES";

/// The port behind the pipes that `value` of [`PIPES_VARIABLE`] names.
///
/// # Errors
/// It names none, they cannot be opened, or there is no thread.
pub fn open(value: &str) -> io::Result<ControlPort> {
    let (calls, answers) = value.split_once(',').ok_or_else(|| {
        let what = format!("{PIPES_VARIABLE} does not name two pipes");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })?;
    serve(
        File::open(calls)?,
        File::options().write(true).open(answers)?,
    )
}

/// The port whose calls come from `calls` and whose answers go to `answers`.
fn serve(calls: File, answers: File) -> io::Result<ControlPort> {
    let (port, sender) = ControlPort::new(Box::new(Lines(answers)))?;
    // Ends when the agent closes its end; not waited for.
    thread::Builder::new()
        .name("control-calls".to_owned())
        .spawn(move || pass_on(calls, &sender))?;
    Ok(port)
}

fn pass_on(calls: File, to: &CallSender) {
    for line in BufReader::new(calls).split(b'\n') {
        let Ok(line) = line else { return };
        match serde_json::from_slice::<ToVm>(&line) {
            Ok(call) => {
                if !to.send(call) {
                    return;
                }
            }
            Err(error) => log::warn!("a control call was not understood: {error}"),
        }
    }
}

/// Writes what the VM says, one line each.
struct Lines(File);

impl Say for Lines {
    fn say(&mut self, said: FromVm) {
        let Ok(mut line) = serde_json::to_vec(&said) else {
            return;
        };
        line.push(b'\n');
        // The agent reads all there is; if it is gone, so is everybody.
        let _ = self.0.write_all(&line);
    }
}
