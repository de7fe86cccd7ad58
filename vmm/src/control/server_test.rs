use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use serde_json::{Value, json};

use super::super::caller::{CallError, Caller};
use super::super::clients::MAX_CLIENTS;
use super::super::command::{Command, MAX_LINE};
use super::super::control_thread::ControlThread;
use super::super::fake_vm::FakeVm;
use super::super::port::ToVm;
use super::super::reply::Body;
use super::*;

/// A server over a fake VM, on a socket of its own.
struct Fixture {
    path: PathBuf,
    vm: FakeVm,
    server: Option<ControlServer>,
    port: Option<ControlPort>,
    thread: Option<ControlThread>,
}

impl Fixture {
    /// The VM is up.
    fn new(vm: FakeVm) -> Self {
        let mut this = Self::starting(vm, NO_ANSWER);
        this.start_vm();
        this
    }

    /// The VM is not up yet.
    fn starting(vm: FakeVm, no_answer: Duration) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("aerostat-server-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let socket = ControlSocket::bind(&path).unwrap();
        let (server, port) = ControlServer::start_with(socket, no_answer).unwrap();
        Self {
            path,
            vm,
            server: Some(server),
            port: Some(port),
            thread: None,
        }
    }

    fn start_vm(&mut self) {
        let port = self.port.take().unwrap();
        self.thread = Some(ControlThread::start(port, self.vm.clone()).unwrap());
        // Each client finds it up from now on.
        let until = Instant::now() + Duration::from_secs(10);
        while self.ask(&Command::Info {}).is_err() {
            assert!(Instant::now() < until, "it does not come up");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn ask(&self, command: &Command) -> Result<Value, CallError> {
        Caller::connect(&self.path)?.call(command, |_| {})
    }

    fn raw(&self) -> Raw {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Raw(BufReader::new(stream))
    }
}

/// A client that sends what it likes.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(text.as_ref()).unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = self.0.read_to_end(&mut rest);
        read.is_ok() && rest.is_empty()
    }
}

const INFO: &str = "{\"command\":\"info\"}\n";

fn waiting(size_bytes: u64) -> Command {
    Command::BalloonSet {
        size_bytes,
        wait_ms: Some(60_000),
        ramp_bytes_per_s: None,
    }
}

#[test]
fn every_command_goes_through_the_socket_and_back() {
    let fixture = Fixture::new(FakeVm::willing());
    let reached = json!({"outcome": "reached", "goal_bytes": 4096, "target_bytes": 4096,
                         "actual_bytes": 4096});
    let balloon = json!({"goal_bytes": 4096, "target_bytes": 4096, "actual_bytes": 4096});
    let rows = [
        (waiting(4096), reached),
        (Command::BalloonGet {}, balloon),
        (Command::Stats { timeout_ms: None }, json!({"sample": 1})),
        (Command::HintStart {}, json!({"hinting": true})),
        (Command::HintStatus {}, json!({"hinting": true})),
        (Command::HintStop {}, json!({"hinting": false})),
        (Command::Pause {}, json!({"state": "paused"})),
        (Command::Resume {}, json!({"state": "running"})),
        (Command::Stop {}, json!({"state": "stopping"})),
    ];
    for (command, expected) in rows {
        assert_eq!(fixture.ask(&command).unwrap(), expected, "{command:?}");
    }
    assert_eq!(fixture.ask(&Command::Counters {}).unwrap()["reports"], 7);
    assert_eq!(fixture.ask(&Command::Info {}).unwrap()["cpus"], 2);
}

#[test]
fn one_connection_carries_many_requests_and_their_ids_in_order() {
    let fixture = Fixture::new(FakeVm::willing());
    let mut client = fixture.raw();
    let requests: String = (0..100)
        .map(|id| format!("{{\"id\":{id},\"command\":\"balloon_get\"}}\n"))
        .collect();
    client.send(requests);
    for id in 0..100 {
        let reply = client.line();
        assert_eq!(reply["id"], id);
        assert_eq!(reply["ok"], true);
        assert_eq!(reply["schema_version"], 1);
    }
}

#[test]
fn a_bad_line_is_answered_and_the_next_one_too() {
    let fixture = Fixture::new(FakeVm::willing());
    let too_long = "x".repeat(MAX_LINE + 1);
    let rows = [
        ("nonsense", "bad_request"),
        ("{\"command\":\"none\"}", "bad_request"),
        (
            "{\"command\":\"stats\",\"timeout_ms\":60001}",
            "invalid_value",
        ),
        (
            "{\"command\":\"info\",\"schema_version\":9}",
            "schema_version",
        ),
        (&too_long, "bad_request"),
        ("\u{0}\u{1b}[2J", "bad_request"),
    ];
    let mut client = fixture.raw();
    for (line, code) in rows {
        client.send(format!("{line}\n"));
        let reply = client.line();
        assert_eq!(reply["ok"], false, "{line:.40}");
        assert_eq!(reply["error"]["code"], code, "{line:.40}: {reply}");
        client.send(INFO);
        assert_eq!(client.line()["ok"], true, "after {line:.40}");
    }
    client.send(b"\xff\xfe\n");
    assert_eq!(client.line()["error"]["code"], "bad_request");
    assert!(!fixture.vm.guest().stopped);
}

#[test]
fn a_line_without_end_is_refused_before_it_ends_and_not_kept() {
    let fixture = Fixture::new(FakeVm::willing());
    let mut client = fixture.raw();
    client.send("x".repeat(MAX_LINE + 1));
    assert_eq!(client.line()["error"]["code"], "bad_request");
    for _ in 0..64 {
        client.send("x".repeat(MAX_LINE));
    }
    client.send(format!("\n{INFO}"));
    assert_eq!(client.line()["ok"], true);
}

#[test]
fn a_client_that_does_not_read_or_says_nothing_holds_up_nobody() {
    let fixture = Fixture::new(FakeVm::willing());
    let _silent: Vec<_> = (0..MAX_CLIENTS - 2).map(|_| fixture.raw()).collect();
    // As many requests as the server lets it send, and no reply read.
    let mut slow = fixture.raw();
    let stream = slow.0.get_mut();
    stream.set_nonblocking(true).unwrap();
    let sent = std::iter::repeat_with(|| stream.write(INFO.as_bytes()))
        .take(1 << 20)
        .take_while(Result::is_ok)
        .count();
    assert!(sent < 1 << 20, "it is not read for ever");
    for _ in 0..50 {
        let begun = Instant::now();
        fixture.ask(&Command::Info {}).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
    // It finds its replies when it reads at last.
    slow.0.get_mut().set_nonblocking(false).unwrap();
    assert_eq!(slow.line()["ok"], true);
}

#[test]
fn a_client_that_waits_does_not_hold_up_another() {
    let fixture = Fixture::new(FakeVm::default());
    let mut waits = fixture.raw();
    waits.send(serde_json::to_vec(&waiting(8192)).unwrap());
    waits.send("\n");
    assert!(waits.line()["progress"].is_object());
    let state = fixture.ask(&Command::BalloonGet {}).unwrap();
    assert_eq!(state["goal_bytes"], 8192);
    fixture.vm.guest().actual = 2;
    let end = loop {
        let line = waits.line();
        if line["progress"].is_null() {
            break line;
        }
    };
    assert_eq!(end["result"]["outcome"], "reached");
}

#[test]
fn the_longest_idle_client_makes_room_and_one_that_waits_does_not() {
    let fixture = Fixture::new(FakeVm::default());
    let mut idle = fixture.raw();
    idle.send(INFO);
    idle.line();
    let mut others: Vec<_> = (1..MAX_CLIENTS).map(|_| fixture.raw()).collect();
    for client in &mut others {
        client.send(INFO);
        client.line();
    }
    let mut one_more = fixture.raw();
    one_more.send(INFO);
    assert_eq!(one_more.line()["ok"], true);
    assert!(idle.is_closed(), "it was idle longest");

    // All wait for statistics that never come: now there is no room.
    others.push(one_more);
    for client in &mut others {
        client.send("{\"command\":\"stats\",\"timeout_ms\":60000}\n");
    }
    let refused = loop {
        let mut client = fixture.raw();
        client.send(INFO);
        let line = client.line();
        if line["ok"] == false {
            break line;
        }
    };
    assert_eq!(refused["error"]["code"], "too_many_clients");
}

#[test]
fn before_the_vm_is_up_clients_are_told_so() {
    let mut fixture = Fixture::starting(FakeVm::willing(), NO_ANSWER);
    let mut client = fixture.raw();
    client.send(INFO);
    assert_eq!(client.line()["error"]["code"], "starting");
    fixture.start_vm();
    client.send(INFO);
    assert_eq!(client.line()["ok"], true);
}

#[test]
fn a_vm_that_does_not_answer_is_told_and_a_late_answer_is_not_mixed_up() {
    let mut fixture = Fixture::starting(FakeVm::willing(), Duration::from_millis(100));
    let mut port = fixture.port.take().unwrap();
    port.say(FromVm::Up);
    let mut client = fixture.raw();
    let first = loop {
        client.send("{\"id\":1,\"command\":\"info\"}\n");
        if let Some(ToVm::Call { call, .. }) = port.next(Some(Duration::from_secs(1))) {
            break call;
        }
    };
    let mut reply = client.line();
    while reply["error"]["code"] == "starting" {
        reply = client.line();
    }
    assert_eq!(reply["error"]["code"], "no_answer");
    assert_eq!(
        port.next(Some(Duration::from_secs(9))),
        Some(ToVm::Gone(first))
    );

    client.send("{\"id\":2,\"command\":\"pause\"}\n");
    let Some(ToVm::Call { call, .. }) = port.next(Some(Duration::from_secs(9))) else {
        panic!("no second call");
    };
    for (call, text) in [(first, "late"), (call, "right")] {
        port.say(FromVm::Answer {
            call,
            body: Body::Done(json!(text)),
        });
    }
    let reply = client.line();
    assert_eq!(
        (&reply["id"], &reply["result"]),
        (&json!(2), &json!("right"))
    );
}

#[test]
fn the_vm_hears_that_a_client_hung_up_and_half_a_client_is_still_answered() {
    let mut fixture = Fixture::starting(FakeVm::willing(), NO_ANSWER);
    let mut port = fixture.port.take().unwrap();
    port.say(FromVm::Up);
    let mut client = fixture.raw();
    let call = loop {
        client.send(INFO);
        if let Some(ToVm::Call { call, .. }) = port.next(Some(Duration::from_secs(1))) {
            break call;
        }
    };
    drop(client);
    assert_eq!(
        port.next(Some(Duration::from_secs(9))),
        Some(ToVm::Gone(call))
    );

    let mut client = fixture.raw();
    client.send(INFO);
    client.0.get_mut().shutdown(Shutdown::Write).unwrap();
    let Some(ToVm::Call { call, .. }) = port.next(Some(Duration::from_secs(9))) else {
        panic!("no call");
    };
    let body = Body::Done(json!({}));
    port.say(FromVm::Answer { call, body });
    assert_eq!(client.line()["ok"], true);
    assert!(client.is_closed(), "it will ask for nothing more");
}

#[test]
fn when_the_run_ends_who_waits_sees_the_end_and_the_socket_goes() {
    let mut fixture = Fixture::new(FakeVm::default());
    let mut caller = Caller::connect(&fixture.path).unwrap();
    let waits = thread::spawn(move || caller.call(&waiting(4096), |_| {}));
    thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    drop(fixture.thread.take());
    let error = waits.join().unwrap().unwrap_err();
    assert!(matches!(error, CallError::Closed), "{error:?}");
    assert_eq!(error.to_string(), "the VM ended before it answered");
    drop(fixture.server.take());
    assert!(begun.elapsed() < Duration::from_secs(2));

    let error = fixture.ask(&Command::Info {}).unwrap_err().to_string();
    assert!(error.ends_with("no such socket; is the VM running, with this control.socket?"));
    drop(UnixListener::bind(&fixture.path).unwrap());
    let error = fixture.ask(&Command::Info {}).unwrap_err().to_string();
    assert!(error.ends_with("nobody is listening; the VM has ended"));
    fs::remove_file(&fixture.path).unwrap();
    fs::write(&fixture.path, "").unwrap();
    let error = fixture.ask(&Command::Info {}).unwrap_err().to_string();
    assert!(error.ends_with("is no socket"), "{error}");
    fs::remove_file(&fixture.path).unwrap();
}

#[test]
fn the_last_reply_is_read_though_the_run_ends_right_after_it() {
    for _ in 0..20 {
        let mut fixture = Fixture::starting(FakeVm::willing(), NO_ANSWER);
        fixture.start_vm();
        let mut caller = Caller::connect(&fixture.path).unwrap();
        let stops = thread::spawn(move || caller.call(&Command::Stop {}, |_| {}));
        let until = Instant::now() + Duration::from_secs(10);
        while !fixture.vm.guest().stopped {
            assert!(Instant::now() < until, "it is not stopped");
            thread::yield_now();
        }
        drop(fixture.thread.take());
        drop(fixture.server.take());
        assert_eq!(stops.join().unwrap().unwrap(), json!({"state": "stopping"}));
    }
}
