//! Control through the socket, of guests that run, hang, and stand still.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vmm::config::Config;
use vmm::control::caller::{CallError, Caller};
use vmm::control::command::Command;
use vmm::control::reply::ErrorCode;
use vmm::control::server::ControlServer;
use vmm::control::socket_file::ControlSocket;
use vmm::host::JobOptions;
use vmm::outcome::Verdict;
use vmm::results::RunResults;
use vmm::run_io::RunIo;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::lab::{Lab, Output};
use crate::{Case, Failure};

/// In which every command answers, whatever the guest does.
const BOUND: Duration = Duration::from_secs(1);
/// A balloon of 128 MiB in pages of 4 KiB.
const PAGES: u64 = 32768;
const BYTES: u64 = 128 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("control::set_is_reached_and_taken_back", set_is_reached),
        Case::new("control::statistics_and_hints", statistics_and_hints),
        Case::new(
            "control::what_was_not_negotiated_is_refused",
            lacks_statistics_and_hints,
        ),
        Case::new(
            "control::every_command_answers_while_the_guest_hangs",
            |lab| answers(lab, false),
        ),
        Case::new(
            "control::every_command_answers_while_the_guest_is_dead",
            |lab| answers(lab, true),
        ),
        Case::new(
            "control::pause_stops_resume_goes_on_stop_ends",
            pause_and_stop,
        ),
    ]
}

/// The socket of a VM, as a test's client sees it.
pub(crate) struct Socket(PathBuf);

impl Socket {
    pub(crate) fn ask(&self, command: &Command) -> Result<Value, CallError> {
        Caller::connect(&self.0)?.call(command, |_| {})
    }

    /// The result, which must come within [`BOUND`].
    fn ask_in_time(&self, command: &Command) -> Result<Value, Failure> {
        let begun = Instant::now();
        let result = self.ask(command);
        let took = begun.elapsed();
        assert!(took < BOUND, "{command:?} took {took:?}");
        result.map_err(|error| format!("{command:?}: {error}").into())
    }

    pub(crate) fn set(&self, size_bytes: u64, wait: Duration) -> Result<Value, CallError> {
        self.ask(&Command::BalloonSet {
            size_bytes,
            wait_ms: Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            ramp_bytes_per_s: None,
        })
    }

    /// Waits until the guest's driver runs the balloon.
    fn until_driver_runs(&self) -> Result<Value, Failure> {
        until("a driver", || {
            let info = self.ask(&Command::Info {}).ok()?;
            info["queue_numbering"].is_string().then_some(info)
        })
    }
}

pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > limit {
            return Err(format!("still no {what}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the run however the client ends.
struct StopAtEnd(EventFd);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        let _ = self.0.write(1);
    }
}

/// Runs a guest while `client` controls it. The guest is stopped when that returns,
/// if it runs still.
pub(crate) fn controlled(
    lab: &Lab,
    config: &Config,
    console: &Output,
    client: impl FnOnce(&Socket) -> Result<(), Failure> + Send,
) -> Result<RunResults, Failure> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("control.sock");
    let (server, port) = ControlServer::start(ControlSocket::bind(&path)?)?;
    let stop = EventFd::new(EFD_NONBLOCK)?;
    let io = RunIo {
        output: Box::new(console.clone()),
        input: None,
        stop: stop.try_clone()?,
        control: Some(port),
        exec: Instant::now(),
    };
    let (results, said) = thread::scope(|scope| {
        let client = scope.spawn(move || {
            let _stop = StopAtEnd(stop);
            client(&Socket(path)).map_err(|failure| failure.to_string())
        });
        let results = lab.run_with(config, JobOptions::default(), io);
        (results, client.join())
    });
    drop(server);
    match said {
        Ok(said) => said?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    results
}

fn statistics_and_hints(lab: &Lab) -> Result<(), Failure> {
    let stats = Command::Stats {
        timeout_ms: Some(10_000),
    };
    let sets = ["balloon.hinting=count"];
    let config = lab.config("sleep=600", &sets)?;
    controlled(lab, &config, &Output::default(), |socket| {
        let info = socket.until_driver_runs()?;
        // With all optional queues both numberings are the same.
        assert_eq!(info["queue_numbering"], "both", "{info}");
        let [first, second] = [socket.ask(&stats)?, socket.ask(&stats)?];
        let number = |sample: &Value| sample["number"].as_u64();
        assert!(number(&second) > number(&first), "{first} {second}");
        let total = second["values"]["total_bytes"].as_u64();
        // Its RAM less what its kernel takes.
        assert!(
            total.is_some_and(|total| (400 << 20..=512 << 20).contains(&total)),
            "{second}"
        );

        let idle = socket.ask(&Command::HintStatus {})?;
        assert_eq!(idle["phase"], "idle", "{idle}");
        let started = socket.ask(&Command::HintStart {})?;
        assert!(started["command_id"].is_u64(), "{started}");
        let ended = until("end of the hints", || {
            let status = socket.ask(&Command::HintStatus {}).ok()?;
            (status["phase"] == "ended").then_some(status)
        })?;
        assert_eq!(ended["ended"], "guest_done", "{ended}");
        let hinted = ended["hinted_bytes"].as_u64();
        assert!(hinted > Some(256 << 20), "most of it is free: {ended}");
        assert_eq!(ended["discarded_bytes"], 0, "it only counts: {ended}");
        let stopped = socket.ask(&Command::HintStop {})?;
        assert_eq!(stopped["phase"], "ended", "{stopped}");
        Ok(())
    })?;
    Ok(())
}

fn lacks_statistics_and_hints(lab: &Lab) -> Result<(), Failure> {
    let sets = ["balloon.statistics=false"];
    let config = lab.config("sleep=600", &sets)?;
    controlled(lab, &config, &Output::default(), |socket| {
        socket.until_driver_runs()?;
        for command in [Command::Stats { timeout_ms: None }, Command::HintStart {}] {
            match socket.ask(&command) {
                Err(CallError::Refused(error)) if error.code == ErrorCode::NotNegotiated => {}
                other => return Err(format!("{command:?}: {other:?}").into()),
            }
        }
        Ok(())
    })?;
    Ok(())
}

fn set_is_reached(lab: &Lab) -> Result<(), Failure> {
    let config = lab.config("sleep=600", &[])?;
    let results = controlled(lab, &config, &Output::default(), |socket| {
        let info = socket.until_driver_runs()?;
        assert_eq!(info["memory_bytes"], 512 << 20, "{info}");
        assert_eq!(info["state"], "running", "{info}");
        // Linux counts its queues, which shows where the hinting queue is missing.
        assert_eq!(info["queue_numbering"], "dense", "{info}");
        let before = socket.ask(&Command::Counters {})?;
        assert_eq!(before["inflated_pages"], 0, "{before}");

        let set = socket.set(BYTES, Duration::from_secs(60))?;
        assert_eq!(set["outcome"], "reached", "{set}");
        assert_eq!(set["actual_bytes"], BYTES, "{set}");
        let inflated = socket.ask(&Command::Counters {})?;
        assert_eq!(inflated["inflated_pages"], PAGES, "{inflated}");
        assert_eq!(inflated["deflated_pages"], 0, "{inflated}");

        let set = socket.set(0, Duration::from_secs(60))?;
        assert_eq!(set["outcome"], "reached", "{set}");
        let deflated = socket.ask(&Command::Counters {})?;
        assert_eq!(deflated["deflated_pages"], PAGES, "{deflated}");
        Ok(())
    })?;
    assert_eq!(results.counters.inflated_pages, PAGES);
    Ok(())
}

/// Every command but `stop`, and those that need what a guest may lack.
fn answers(lab: &Lab, dead: bool) -> Result<(), Failure> {
    let config = lab.config("hang", &[])?;
    controlled(lab, &config, &Output::default(), |socket| {
        socket.until_driver_runs()?;
        if dead {
            // Not one instruction of it runs from here on.
            socket.ask_in_time(&Command::Pause {})?;
        }
        for command in [
            Command::BalloonGet {},
            Command::Counters {},
            Command::Info {},
            Command::BalloonSet {
                size_bytes: BYTES,
                wait_ms: None,
                ramp_bytes_per_s: None,
            },
        ] {
            socket.ask_in_time(&command)?;
        }
        let stats = socket.ask(&Command::Stats { timeout_ms: None });
        if dead {
            let Err(CallError::Refused(error)) = stats else {
                return Err(format!("a dead guest told {stats:?}").into());
            };
            assert_eq!(error.code, ErrorCode::GuestTimeout, "{error:?}");
            assert!(error.message.contains("500ms"), "{error:?}");
            let set = socket.set(BYTES, Duration::from_millis(500))?;
            assert_eq!(set["outcome"], "timed_out_stalled", "{set}");
            socket.ask_in_time(&Command::Resume {})?;
            let set = socket.set(BYTES, Duration::from_secs(60))?;
            assert_eq!(set["outcome"], "reached", "{set}");
        } else {
            // Its kernel goes on, and with it the driver.
            stats?;
            socket.ask_in_time(&Command::Pause {})?;
            socket.ask_in_time(&Command::Resume {})?;
        }
        let too_much = socket.set(512 << 20, Duration::ZERO);
        let Err(CallError::Refused(error)) = too_much else {
            return Err(format!("a balloon of all its RAM: {too_much:?}").into());
        };
        assert_eq!(error.code, ErrorCode::InvalidValue, "{error:?}");
        socket.ask_in_time(&Command::Stop {})?;
        Ok(())
    })?;
    Ok(())
}

fn pause_and_stop(lab: &Lab) -> Result<(), Failure> {
    let console = Output::default();
    let seen = console.clone();
    let config = lab.config("loop=100000 print=tick end", &[])?;
    let results = controlled(lab, &config, &console, |socket| {
        let ticks = || seen.text().matches("tick\r\n").count();
        let more = |than| until("tick", || Some(ticks()).filter(|now| *now > than));
        more(3)?;
        for _ in 0..2 {
            // Each twice: the second time it changes nothing.
            for _ in 0..2 {
                let paused = socket.ask_in_time(&Command::Pause {})?;
                assert_eq!(paused["state"], "paused");
            }
            // What was on its way arrives.
            thread::sleep(Duration::from_millis(500));
            let before = ticks();
            thread::sleep(Duration::from_secs(1));
            assert_eq!(ticks(), before, "a paused guest prints nothing");
            assert_eq!(socket.ask(&Command::Info {})?["state"], "paused");
            for _ in 0..2 {
                let resumed = socket.ask_in_time(&Command::Resume {})?;
                assert_eq!(resumed["state"], "running");
            }
            more(before)?;
        }
        socket.ask_in_time(&Command::Pause {})?;
        let begun = Instant::now();
        let stopping = socket.ask_in_time(&Command::Stop {})?;
        assert_eq!(stopping["state"], "stopping");
        // The connection of a client that comes later closes, or there is none.
        until("end", || socket.ask(&Command::Info {}).err())?;
        assert!(begun.elapsed() < Duration::from_secs(5), "{begun:?}");
        Ok(())
    })?;
    assert_eq!(results.verdict, Verdict::Interrupted);
    Ok(())
}
