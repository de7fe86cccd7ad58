use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use super::super::fake_vm::{FakeVm, MEMORY};
use super::super::port::Say;
use super::*;

/// A control thread over a fake VM, without a socket.
struct Fixture {
    vm: FakeVm,
    calls: CallSender,
    heard: Receiver<FromVm>,
    last: u64,
    _thread: ControlThread,
}

struct Ear(Sender<FromVm>);

impl Say for Ear {
    fn say(&mut self, said: FromVm) {
        let _ = self.0.send(said);
    }
}

impl Fixture {
    fn new(vm: FakeVm) -> Self {
        let (said, heard) = channel();
        let (port, calls) = ControlPort::new(Box::new(Ear(said))).unwrap();
        let this = Self {
            _thread: ControlThread::start(port, vm.clone()).unwrap(),
            vm,
            calls,
            heard,
            last: 0,
        };
        assert_eq!(this.hear(), FromVm::Up);
        this
    }

    fn send(&mut self, command: Command) -> u64 {
        self.last += 1;
        let call = self.last;
        assert!(self.calls.send(ToVm::Call { call, command }));
        call
    }

    fn hear(&self) -> FromVm {
        self.heard
            .recv_timeout(Duration::from_secs(10))
            .expect("an answer")
    }

    /// The last answer to the next call that ends, past all progress.
    fn end(&self) -> (u64, Body) {
        loop {
            match self.hear() {
                FromVm::Answer { call, body } if body.is_last() => return (call, body),
                FromVm::Answer { .. } => {}
                FromVm::Up => panic!("up twice"),
            }
        }
    }

    fn ask(&mut self, command: Command) -> Body {
        let sent = self.send(command);
        let (call, body) = self.end();
        assert_eq!(call, sent);
        body
    }

    fn result(&mut self, command: Command) -> Value {
        match self.ask(command) {
            Body::Done(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn error(&mut self, command: Command) -> ControlError {
        match self.ask(command) {
            Body::Failed(error) => error,
            other => panic!("{other:?}"),
        }
    }
}

fn set(size_bytes: u64) -> Command {
    set_with(size_bytes, None, None)
}

fn set_with(size_bytes: u64, wait_ms: Option<u64>, ramp_bytes_per_s: Option<u64>) -> Command {
    Command::BalloonSet {
        size_bytes,
        wait_ms,
        ramp_bytes_per_s,
    }
}

const STATS: Command = Command::Stats {
    timeout_ms: Some(100),
};

#[test]
fn each_command_does_what_it_says_and_tells_it() {
    let mut fixture = Fixture::new(FakeVm::willing());
    let rows = [
        (
            Command::BalloonGet {},
            json!({"goal_bytes": 20480, "target_bytes": 20480, "actual_bytes": 0}),
        ),
        (
            set(8192),
            json!({"outcome": "set", "goal_bytes": 8192, "target_bytes": 8192,
                   "actual_bytes": 8192}),
        ),
        (STATS, json!({"sample": 1})),
        (STATS, json!({"sample": 2})),
        (Command::HintStart {}, json!({"hinting": true})),
        (Command::HintStatus {}, json!({"hinting": true})),
        (Command::HintStop {}, json!({"hinting": false})),
        (Command::Pause {}, json!({"state": "paused"})),
        (Command::Pause {}, json!({"state": "paused"})),
        (Command::Resume {}, json!({"state": "running"})),
        (Command::Resume {}, json!({"state": "running"})),
    ];
    for (command, expected) in rows {
        assert_eq!(fixture.result(command.clone()), expected, "{command:?}");
    }
    assert_eq!(fixture.result(Command::Counters {})["reports"], 7);
    let info = fixture.result(Command::Info {});
    assert_eq!(info["features"]["offered"], json!(["PAGE_REPORTING"]));
    assert_eq!(info["queue_numbering"], "dense");
    assert_eq!(info["poison"], 0xaa);

    assert!(!fixture.vm.guest().stopped);
    let stopping = fixture.result(Command::Stop {});
    assert_eq!(stopping, json!({"state": "stopping"}));
    // It is carried out after it is answered, and before the next command.
    fixture.result(Command::BalloonGet {});
    assert!(fixture.vm.guest().stopped);
}

#[test]
fn every_command_answers_though_the_guest_does_nothing() {
    let mut fixture = Fixture::new(FakeVm::default());
    for command in [
        set(4096),
        Command::BalloonGet {},
        Command::HintStart {},
        Command::HintStatus {},
        Command::HintStop {},
        Command::Counters {},
        Command::Info {},
        Command::Pause {},
        Command::Resume {},
        Command::Stop {},
    ] {
        fixture.result(command);
    }
    let error = fixture.error(STATS);
    assert_eq!(error.code, ErrorCode::GuestTimeout);
    assert_eq!(
        error.message,
        "the guest did not tell its statistics within 100ms"
    );
}

#[test]
fn what_the_guest_did_not_negotiate_is_named_so() {
    let mut fixture = Fixture::new(FakeVm::willing());
    use io::ErrorKind::{InvalidInput, NotConnected, Unsupported};
    for (kind, command) in [
        (NotConnected, STATS),
        (InvalidInput, STATS),
        (Unsupported, Command::HintStart {}),
        (InvalidInput, Command::HintStatus {}),
        (InvalidInput, Command::HintStop {}),
    ] {
        fixture.vm.guest().lacks = Some(kind);
        let error = fixture.error(command.clone());
        assert_eq!(error.code, ErrorCode::NotNegotiated, "{command:?}");
        assert_eq!(error.message, "not negotiated");
    }
}

#[test]
fn a_balloon_as_large_as_the_guest_is_refused_and_changes_nothing() {
    let mut fixture = Fixture::new(FakeVm::willing());
    for size in [MEMORY, u64::MAX - 4095] {
        assert_eq!(fixture.error(set(size)).code, ErrorCode::InvalidValue);
    }
    assert!(fixture.vm.guest().targets.is_empty());
    let state = fixture.result(Command::BalloonGet {});
    assert_eq!(state["goal_bytes"], 20480);
    fixture.result(set(MEMORY - 4096));
}

#[test]
fn who_waits_is_told_of_progress_and_of_the_end() {
    let mut fixture = Fixture::new(FakeVm::default());
    let call = fixture.send(set_with(40960, Some(60_000), None));
    fixture.vm.guest().actual = 3;
    let state = BalloonState {
        goal_bytes: 40960,
        target_bytes: 40960,
        actual_bytes: 12288,
    };
    let progress = Body::Progress(state);
    assert_eq!(
        fixture.hear(),
        FromVm::Answer {
            call,
            body: progress
        }
    );
    // Others are answered meanwhile.
    fixture.result(Command::Info {});
    fixture.vm.guest().actual = 10;
    let (ended, body) = fixture.end();
    assert_eq!(ended, call);
    assert_eq!(
        body,
        Body::Done(json!({"outcome": "reached", "goal_bytes": 40960,
                          "target_bytes": 40960, "actual_bytes": 40960}))
    );
}

#[test]
fn a_wait_that_times_out_tells_whether_the_balloon_moved() {
    let mut fixture = Fixture::new(FakeVm::default());
    let stalled = fixture.result(set_with(40960, Some(100), None));
    assert_eq!(stalled["outcome"], "timed_out_stalled");
    assert_eq!(stalled["actual_bytes"], 0);

    fixture.send(set_with(40960, Some(300), None));
    let until = Instant::now() + Duration::from_secs(10);
    while fixture.vm.guest().targets.len() < 2 {
        assert!(Instant::now() < until, "the guest is not asked");
        thread::yield_now();
    }
    fixture.vm.guest().actual = 4;
    let (_, body) = fixture.end();
    let Body::Done(result) = body else {
        panic!("{body:?}")
    };
    assert_eq!(result["outcome"], "timed_out_progressing");
}

#[test]
fn a_size_that_is_there_already_is_reached_at_once() {
    let mut fixture = Fixture::new(FakeVm::willing());
    let begun = Instant::now();
    let reached = fixture.result(set_with(40960, Some(60_000), None));
    assert_eq!(reached["outcome"], "reached");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_ramp_goes_on_by_itself_and_ends_at_the_goal() {
    let mut fixture = Fixture::new(FakeVm::willing());
    // 1000 pages in about a quarter of a second.
    let begun = fixture.result(set_with(4_096_000, None, Some(16_384_000)));
    assert_eq!(begun["outcome"], "set");
    assert_eq!(begun["goal_bytes"], 4_096_000);
    let until = Instant::now() + Duration::from_secs(10);
    while fixture.vm.guest().actual != 1000 {
        assert!(Instant::now() < until, "{:?}", fixture.vm.guest().targets);
        thread::sleep(Duration::from_millis(5));
    }
    let targets = fixture.vm.guest().targets.clone();
    assert!(targets.len() >= 3, "it goes in steps: {targets:?}");
    assert!(targets.is_sorted(), "{targets:?}");
}

#[test]
fn a_new_size_ends_the_wait_for_the_old_one() {
    let mut fixture = Fixture::new(FakeVm::default());
    let first = fixture.send(set_with(40960, Some(60_000), None));
    let second = fixture.send(set(0));
    let (call, body) = fixture.end();
    assert_eq!(call, first);
    let Body::Failed(error) = body else {
        panic!("{body:?}")
    };
    assert_eq!(error.code, ErrorCode::Superseded);
    assert_eq!(fixture.end().0, second);
}

#[test]
fn who_is_gone_is_not_answered_and_what_it_asked_for_goes_on() {
    let mut fixture = Fixture::new(FakeVm::default());
    let waits = fixture.send(set_with(40960, Some(200), None));
    let asks = fixture.send(Command::Stats {
        timeout_ms: Some(200),
    });
    fixture.calls.send(ToVm::Gone(waits));
    fixture.calls.send(ToVm::Gone(asks));
    thread::sleep(Duration::from_millis(400));
    let state = fixture.result(Command::BalloonGet {});
    assert_eq!(state["goal_bytes"], 40960);
}
