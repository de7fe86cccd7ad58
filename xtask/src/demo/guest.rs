//! One guest, run to its end.

use std::io;
use std::time::Instant;

use vmm::config::{self, Config};
use vmm::host::Session;
use vmm::results::RunResults;
use vmm::run_io::RunIo;
use vmm_sys_util::eventfd::EventFd;

use crate::Failure;
use crate::artifacts::Artifacts;

/// Runs our kernel with `steps` for its init and `sets` over the defaults; fails
/// unless it ends well.
pub(crate) fn run(
    session: &mut Session,
    built: &Artifacts,
    steps: &str,
    sets: &[String],
) -> Result<(RunResults, Config), Failure> {
    let text = format!(
        "[kernel]\nimage = {:?}\ninitrd = {:?}\ncmdline = {:?}\n[timeout]\nboot = \"2m\"\nrun = \"3m\"\n",
        built.bzimage,
        built.initrd,
        format!("console=ttyS0 panic=-1 quiet -- {steps}"),
    );
    let config = config::load_str(&text, "demo", ".".as_ref(), sets)?;
    let io = RunIo {
        output: Box::new(io::sink()),
        input: None,
        stop: EventFd::new(0)?,
        control: None,
        exec: Instant::now(),
    };
    let results = session.run(&config, io);
    if results.exit_code == 0 {
        return Ok((results, config));
    }
    let last = results.guest.last().map(|line| line.line.to_string());
    let last = last.unwrap_or_else(|| "nothing".to_owned());
    Err(format!(
        "a guest with {sets:?}: {}; its last line: {last}\nits console ended:\n{}",
        results.verdict,
        results.console_tail.join("\n")
    )
    .into())
}
