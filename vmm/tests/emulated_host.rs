//! The emulated host from outside: it boots, runs guests, breaks and leaves
//! nothing behind.
//!
//! `AEROSTAT_HOST_KERNEL` names the kernel of the host, which is the guest's too.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "all of this file is a test"
)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use vmm::config::{self, Config};
use vmm::host::{HostChoice, HostOptions, JobOptions, Session, choose};
use vmm::outcome::{FailureClass, Verdict};
use vmm::results::{HostKind, RunResults};
use vmm::run_io::RunIo;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const KERNEL_VARIABLE: &str = "AEROSTAT_HOST_KERNEL";
const AEROSTAT: &str = env!("CARGO_BIN_EXE_aerostat");

/// The kernel and, with it, everything else that is needed; or says what is not.
fn kernel() -> Option<PathBuf> {
    let missing = match std::env::var_os(KERNEL_VARIABLE) {
        None => format!("{KERNEL_VARIABLE} names no kernel (cargo xtask kernel builds one)"),
        Some(_) if choose::look(&choose::Places::default()).qemu.is_none() => {
            "there is no qemu-system-x86_64 (apt-get install qemu-system-x86)".to_owned()
        }
        Some(kernel) => return Some(kernel.into()),
    };
    assert!(std::env::var_os("AEROSTAT_REQUIRE").is_none(), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}

fn config(kernel: &Path, sets: &[&str]) -> Config {
    let text = format!(
        "[kernel]\nimage = {kernel:?}\ncmdline = \"console=ttyS0 panic=-1 quiet\"\n\
         [memory]\nsize = \"256M\"\n[console]\ninput = false\n"
    );
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    config::load_str(&text, "test.toml", Path::new("/"), &sets).expect("a valid configuration")
}

fn options(kernel: &Path) -> HostOptions {
    HostOptions {
        host_kernel: Some(kernel.into()),
        agent: Some(AEROSTAT.into()),
        ..HostOptions::default()
    }
}

/// Collects what a guest prints.
#[derive(Clone, Default)]
struct Console(Arc<Mutex<Vec<u8>>>);

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Console {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

fn io(console: &Console, stop: &EventFd) -> RunIo {
    RunIo {
        output: Box::new(console.clone()),
        input: None,
        stop: stop.try_clone().unwrap(),
        control: None,
        exec: Instant::now(),
    }
}

fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

fn failure(results: &RunResults) -> (FailureClass, &str) {
    match &results.verdict {
        Verdict::Failed { class, message } => (*class, message),
        verdict => panic!("{verdict:?} instead of a failure"),
    }
}

fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until_gone(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while is_running(pid) {
        assert!(Instant::now() < deadline, "process {pid} is left behind");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn one_host_runs_many_guests_and_tells_their_ends_apart() {
    let Some(kernel) = kernel() else { return };
    // On a thread of its own, whose end must not be the host's.
    let (options, stop) = (options(&kernel), event());
    let (asked, own_stop) = (options.clone(), stop.try_clone().unwrap());
    let mut session = thread::spawn(move || Session::start(HostChoice::Emulated, &asked, own_stop))
        .join()
        .unwrap()
        .expect("a host");
    assert_eq!(session.kind(), HostKind::Emulated);
    let pid = session.qemu_pid().unwrap();

    // A guest without an init panics: that is the guest's verdict, not ours.
    let console = Console::default();
    let results = session.run(&config(&kernel, &[]), io(&console, &stop));
    assert_eq!(results.verdict, Verdict::GuestPanic, "{}", console.text());
    assert_eq!(results.host.kind, HostKind::Emulated);
    assert!(
        console.text().contains("Kernel panic"),
        "{}",
        console.text()
    );
    assert_eq!(
        results.config["kernel"]["image"],
        kernel.to_str().unwrap(),
        "the user's path, not the host's"
    );
    let pool = results
        .host
        .pools
        .iter()
        .find(|pool| pool.page_bytes == 2 << 20)
        .expect("a pool");
    assert_eq!(pool.total, 128, "exactly guest RAM");

    // What is sent once is kept.
    let sent = session.sent();
    assert_eq!(sent.bytes, fs::metadata(&kernel).unwrap().len());
    eprintln!(
        "host ready after {:.0} ms; {} bytes sent at {:.0} MB/s",
        session.boot_ms().unwrap(),
        sent.bytes,
        sent.bytes as f64 / sent.time.as_secs_f64() / 1e6
    );

    // A pool too small on purpose is a memory verdict.
    let short = JobOptions {
        pool_pages: Some(100),
    };
    let results = session.run_with(&config(&kernel, &[]), &short, io(&console, &stop));
    assert_eq!(
        failure(&results).0,
        FailureClass::Memory,
        "{:?}",
        results.verdict
    );

    // So is a guest that is larger than the host.
    for backing in ["hugetlb", "pages"] {
        let sets = ["memory.size=64G", &format!("memory.backing={backing}")];
        let results = session.run(&config(&kernel, &sets), io(&console, &stop));
        let (class, message) = failure(&results);
        assert_eq!(class, FailureClass::Memory, "{message}");
        assert!(message.contains("host.memory"), "{message}");
    }

    // A broken kernel is the user's, under the name the user gave it.
    let broken =
        std::env::temp_dir().join(format!("aerostat-broken-kernel-{}", std::process::id()));
    fs::write(&broken, "no kernel at all").unwrap();
    let results = session.run(&config(&broken, &[]), io(&console, &stop));
    fs::remove_file(&broken).unwrap();
    let (class, message) = failure(&results);
    assert_eq!(class, FailureClass::Usage, "{message}");
    assert!(message.contains(broken.to_str().unwrap()), "{message}");

    // After all that it still runs guests, and nothing has leaked.
    let results = session.run(&config(&kernel, &[]), io(&Console::default(), &stop));
    assert_eq!(results.verdict, Verdict::GuestPanic);
    assert_eq!(session.sent().bytes, sent.bytes + 16);
    assert_eq!(session.leaked_pages(), 0);

    drop(session);
    wait_until_gone(pid);
}

#[test]
fn a_stop_ends_a_guest_and_the_host_lives_on() {
    let Some(kernel) = kernel() else { return };
    let mut session =
        Session::start(HostChoice::Emulated, &options(&kernel), event()).expect("a host");
    let (console, stop) = (Console::default(), event());
    // Keeps the guest running: a panic without a reboot waits for ever.
    let waiting = config(
        &kernel,
        &["kernel.cmdline=console=ttyS0 panic=0 earlyprintk=ttyS0"],
    );
    let stopper = stop.try_clone().unwrap();
    let seen = console.clone();
    let asked = thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !seen.text().contains("Linux version") && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        stopper.write(1).unwrap();
        Instant::now()
    });
    let results = session.run(&waiting, io(&console, &stop));
    assert_eq!(results.verdict, Verdict::Interrupted, "{}", console.text());
    assert!(asked.join().unwrap().elapsed() < Duration::from_secs(5));

    let results = session.run(&config(&kernel, &[]), io(&Console::default(), &event()));
    assert_eq!(results.verdict, Verdict::GuestPanic);
    assert_eq!(session.leaked_pages(), 0);
}

#[test]
fn a_stop_during_the_hosts_boot_ends_it() {
    let Some(kernel) = kernel() else { return };
    let stop = event();
    stop.write(1).unwrap();
    let start = Instant::now();
    match Session::start(HostChoice::Emulated, &options(&kernel), stop) {
        Err(verdict) => assert_eq!(verdict, Verdict::Interrupted),
        Ok(_) => panic!("it booted all the same"),
    }
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_host_that_breaks_is_an_internal_error_soon() {
    let Some(kernel) = kernel() else { return };
    let mut session =
        Session::start(HostChoice::Emulated, &options(&kernel), event()).expect("a host");
    let pid = rustix::process::Pid::from_raw(i32::try_from(session.qemu_pid().unwrap()).unwrap())
        .unwrap();
    let console = Console::default();
    let seen = console.clone();
    let killer = thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_secs(60);
        while seen.text().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        Instant::now()
    });
    let waiting = config(&kernel, &["kernel.cmdline=console=ttyS0 panic=0"]);
    let results = session.run(&waiting, io(&console, &event()));
    assert!(killer.join().unwrap().elapsed() < Duration::from_secs(3));
    let (class, message) = failure(&results);
    assert_eq!(class, FailureClass::Internal);
    assert!(message.contains("SIGKILL"), "{message}");

    let results = session.run(&config(&kernel, &[]), io(&console, &event()));
    assert!(
        failure(&results).1.starts_with("the emulated host is gone"),
        "{:?}",
        results.verdict
    );
}

#[test]
fn a_host_that_cannot_be_is_refused_with_the_reason() {
    let Some(kernel) = kernel() else { return };
    let start = |options: &HostOptions| match Session::start(HostChoice::Emulated, options, event())
    {
        Err(verdict @ Verdict::Failed { .. }) => (verdict.exit_code(), verdict.to_string()),
        Err(verdict) => panic!("{verdict:?}"),
        Ok(_) => panic!("it booted"),
    };
    let mut wrong = options(&kernel);
    wrong.host_kernel = Some(AEROSTAT.into());
    let (code, message) = start(&wrong);
    assert_eq!(code, 70, "{message}");
    assert!(
        message.contains("the emulated host broke down"),
        "{message}"
    );

    wrong.host_kernel = Some("/etc/hostname".into());
    let (code, message) = start(&wrong);
    assert_eq!(code, 2, "{message}");
    assert!(
        message.contains("neither an ELF kernel nor a bzImage"),
        "{message}"
    );

    wrong.host_kernel = Some("/nonexistent/kernel".into());
    assert_eq!(start(&wrong).0, 2);

    let mut wrong = options(&kernel);
    wrong.memory = Some(64 << 40);
    let (code, message) = start(&wrong);
    assert_eq!(code, 66, "{message}");
    assert!(message.contains("67108864 MiB of RAM"), "{message}");

    let mut wrong = options(&kernel);
    wrong.agent = Some("/bin/sh".into());
    let (code, message) = start(&wrong);
    assert_eq!(code, 70);
    assert!(message.contains("linked dynamically"), "{message}");
}

/// The command with a guest that never ends by itself, up to its first output.
fn running_command(kernel: &Path) -> (Child, u32) {
    let path = std::env::temp_dir().join(format!(
        "aerostat-{}-{:?}.toml",
        std::process::id(),
        thread::current().id()
    ));
    fs::write(
        &path,
        format!("[kernel]\nimage = {kernel:?}\ncmdline = \"console=ttyS0 panic=0\"\n[memory]\nsize = \"256M\"\n"),
    )
    .unwrap();
    let mut child = Command::new(AEROSTAT)
        .args(["run", "--host", "emulated"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create("/dev/null").unwrap())
        .spawn()
        .unwrap();
    let mut byte = [0];
    io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).expect("output of the guest");
    fs::remove_file(&path).unwrap();
    let children = fs::read_dir(format!("/proc/{}/task", child.id()))
        .unwrap()
        .flatten();
    let qemu = children
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .find_map(|list| list.split_whitespace().next()?.parse().ok())
        .expect("a QEMU below the command");
    (child, qemu)
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn an_interrupted_command_exits_with_its_code_and_leaves_no_qemu() {
    let Some(kernel) = kernel() else { return };
    let (mut child, qemu) = running_command(&kernel);
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!is_running(qemu), "QEMU is left behind");
}

#[test]
fn a_command_whose_output_nobody_reads_stops() {
    let Some(kernel) = kernel() else { return };
    let (mut child, qemu) = running_command(&kernel);
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!is_running(qemu), "QEMU is left behind");
}

#[test]
fn a_killed_command_takes_its_qemu_along() {
    let Some(kernel) = kernel() else { return };
    let (mut child, qemu) = running_command(&kernel);
    assert!(is_running(qemu));
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    wait_until_gone(qemu);
}
