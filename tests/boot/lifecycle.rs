//! How a run ends, and what its exit code says.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use vmm::host::JobOptions;
use vmm::outcome::Verdict;
use vmm::run_io::RunIo;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::lab::Lab;
use crate::{Case, Failure};

pub(crate) fn cases() -> Vec<Case> {
    // Steps, overrides, exit code.
    let endings: [(&str, &str, &[&str], u8); 8] = [
        ("power_off", "poweroff", &[], 0),
        ("reboot", "reboot", &[], 0),
        ("guest_exit_code", "exit=7", &[], 7),
        ("guest_exit_code_out_of_range", "exit=200", &[], 64),
        ("guest_panic", "panic", &[], 67),
        ("run_timeout", "hang", &["timeout.run=6s"], 68),
        ("boot_timeout", "info", &["timeout.boot=50ms"], 68),
        ("pool_left_too_small", "info", &[], 66),
    ];
    let mut cases: Vec<_> = endings
        .into_iter()
        .map(|(name, steps, sets, code)| {
            Case::new(format!("end::{name}"), move |lab| {
                if name == "pool_left_too_small" {
                    return pool_too_small(lab);
                }
                lab.run(steps, sets)?.exits(code)?;
                Ok(())
            })
        })
        .collect();
    cases.push(Case::new(
        "end::stop_ends_a_hanging_guest",
        stop_ends_a_hanging_guest,
    ));
    cases.push(Case::new(
        "end::a_reader_that_stops_reading_blocks_no_vcpu",
        stuck_reader,
    ));
    cases
}

/// The pool has fewer pages than the guest needs: refused before anything runs, with
/// the numbers and the fix.
fn pool_too_small(lab: &Lab) -> Result<(), Failure> {
    let config = lab.config("info", &["memory.size=512M"])?;
    let options = JobOptions {
        pool_pages: Some(100),
    };
    let results = lab.run_with(&config, options, io(io::sink())?)?;
    assert_eq!(results.exit_code, 66, "{:?}", results.verdict);
    let Verdict::Failed { message, .. } = results.verdict else {
        return Err("no message".into());
    };
    for part in ["256", "100", "nr_hugepages"] {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
    assert_eq!(message.lines().count(), 1, "{message}");
    Ok(())
}

fn stop_ends_a_hanging_guest(lab: &Lab) -> Result<(), Failure> {
    let config = lab.config("hang", &[])?;
    let io = io(io::sink())?;
    let stop = io.stop.try_clone()?;
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_secs(4));
        stop.write(1).map(|()| Instant::now())
    });
    let results = lab.run_with(&config, JobOptions::default(), io)?;
    let ended = Instant::now();
    assert_eq!(results.exit_code, 130, "{:?}", results.verdict);
    let stopped = stopper.join().map_err(|_| "stopper panicked")??;
    let took = ended.duration_since(stopped);
    assert!(took < Duration::from_secs(5), "it took {took:?} to stop");
    Ok(())
}

/// A console that takes one write and then nothing more while the guest runs.
struct Stuck {
    taken: bool,
    until: Instant,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.taken {
            thread::sleep(self.until.saturating_duration_since(Instant::now()));
        }
        self.taken = true;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stuck_reader(lab: &Lab) -> Result<(), Failure> {
    let config = lab.config("spin_console=192K exit=9", &[])?;
    let run = || {
        let stuck = Stuck {
            taken: false,
            until: Instant::now() + Duration::from_secs(120),
        };
        let started = Instant::now();
        let results = lab.run_with(&config, JobOptions::default(), io(stuck)?)?;
        Ok((results, started.elapsed()))
    };
    let (results, took) = lab.until_the_emulator_holds(run, |(results, _)| results)?;
    assert_eq!(
        results.exit_code, 9,
        "console ends: {:#?}",
        results.console_tail
    );
    assert!(
        took < Duration::from_secs(100),
        "the guest waited for the reader"
    );
    assert!(
        results.dropped.console_bytes > 0,
        "what is not read must be counted as dropped"
    );
    Ok(())
}

fn io(output: impl Write + Send + 'static) -> Result<RunIo, Failure> {
    Ok(RunIo {
        output: Box::new(output),
        input: None,
        stop: EventFd::new(EFD_NONBLOCK)?,
        control: None,
        exec: Instant::now(),
    })
}
