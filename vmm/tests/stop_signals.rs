//! The first signal asks, a second one leaves at once and leaves nothing behind.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{self, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::raise;
use vmm::forced_exit::on_forced_exit;
use vmm::stop_signals;

/// Set in the process that is to be stopped; names a file it has to remove.
const STOPPED: &str = "AEROSTAT_TEST_STOPPED";

/// What a process of its own does: returns only if nothing stopped it.
fn wait_to_be_stopped(file: PathBuf) -> io::Result<()> {
    let _registration = on_forced_exit(move || drop(fs::remove_file(file)));
    let stop = stop_signals::catch()?;
    assert!(stop.read().is_err(), "nobody asked yet");
    raise(SIGTERM)?;
    // The same request, sent twice.
    raise(SIGINT)?;
    let start = Instant::now();
    while stop.read().is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "the signal never arrived"
        );
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(150));
    println!("still here after one request");
    raise(SIGINT)?;
    sleep(Duration::from_secs(10));
    Ok(())
}

#[test]
fn a_second_request_leaves_with_130_and_undoes_what_is_registered() {
    if let Some(file) = std::env::var_os(STOPPED) {
        wait_to_be_stopped(file.into()).expect("signals");
        panic!("a second request stopped nothing");
    }
    let file = std::env::temp_dir().join(format!("aerostat-stopped-{}", process::id()));
    fs::write(&file, "").expect("temporary file");
    let stopped = Command::new(std::env::current_exe().expect("this program"))
        .args(["--nocapture", "--test-threads=1"])
        .env(STOPPED, &file)
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&stopped.stdout).into_owned();
    let left = fs::remove_file(&file).is_ok();
    assert_eq!(stopped.status.code(), Some(130), "{said}");
    assert!(said.contains("still here after one request"), "{said}");
    assert!(!left, "the temporary file was left behind");
}
