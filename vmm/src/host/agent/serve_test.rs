use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::*;
use crate::host::protocol::{FileStart, FileStored, Job};

/// An agent in a directory, with a shell script in place of the inner run.
struct Agent {
    root: PathBuf,
    stream: UnixStream,
    decoder: Decoder,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Agent {
    fn new(name: &str, script: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("aerostat-agent-{}-{name}", std::process::id()));
        let places = Places {
            files: root.join("files"),
            job: root.join("job"),
            program: root.join("program"),
            pools: Pools::at(root.join("hugepages"), root.join("vm")),
        };
        for directory in [&places.files, &places.job] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(
            &places.program,
            format!("#!/bin/sh\ncd {}\n{script}\n", places.job.display()),
        )
        .unwrap();
        fs::set_permissions(&places.program, fs::Permissions::from_mode(0o755)).unwrap();
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let outbox = Outbox::new(theirs.try_clone().unwrap());
        let thread = std::thread::spawn(move || serve(theirs, &outbox, places));
        Self {
            root,
            stream,
            decoder: Decoder::default(),
            thread: Some(thread),
        }
    }

    fn send(&self, message: &Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame).unwrap();
        io::Write::write_all(&mut &self.stream, &frame).unwrap();
    }

    fn receive(&mut self) -> Message {
        let mut chunk = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Message::decode(&frame).unwrap();
            }
            let length = self
                .stream
                .read(&mut chunk)
                .expect("the agent answers in time");
            assert_ne!(length, 0, "the agent hung up");
            self.decoder.feed(&chunk[..length]);
        }
    }

    fn start(&self, input: bool) {
        self.start_with(input, false);
    }

    fn start_with(&self, input: bool, control: bool) {
        self.send(&Message::Job(Job {
            config: "the = 'configuration'\n".into(),
            pool: None,
            plain_bytes: 0,
            input,
            control,
            debug: false,
        }));
    }

    /// Collects (stdout, stderr, results, input taken, end) of the running job.
    fn finish(&mut self) -> Seen {
        let mut seen = Seen::default();
        loop {
            match self.receive() {
                Message::Output(bytes) => seen.output.extend(bytes),
                Message::Log(bytes) => seen.log.extend(bytes),
                Message::Results(bytes) => seen.results.extend(bytes),
                Message::InputTaken(bytes) => seen.taken += bytes,
                Message::Answers(bytes) => seen.answers.extend(bytes),
                Message::Done(done) => {
                    assert_eq!(done.leaks, []);
                    seen.ended = Some(done.ended);
                    return seen;
                }
                other => panic!("{other:?} during a job"),
            }
        }
    }

    fn until_output(&mut self) {
        while !matches!(self.receive(), Message::Output(_)) {}
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Seen {
    output: Vec<u8>,
    log: Vec<u8>,
    results: Vec<u8>,
    answers: Vec<u8>,
    taken: u32,
    ended: Option<Ended>,
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A killed process is gone a moment after its files are closed.
fn wait_until_gone(pid: &str) {
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "process {pid} is left behind");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_job_is_the_program_with_its_configuration_and_its_pipes() {
    let mut agent = Agent::new(
        "whole",
        "echo \"$@\" | sed s,/.*/,,; echo $AEROSTAT_HOST_KIND; cat config.toml; cat\n\
         echo trouble >&2; echo '{}' > results.json; exit 7",
    );
    agent.start(true);
    agent.send(&Message::Input(b"typed".to_vec()));
    agent.send(&Message::InputEnd);
    let seen = agent.finish();
    assert_eq!(
        text(&seen.output),
        "run --host native config.toml\nemulated\nthe = 'configuration'\ntyped"
    );
    assert_eq!(text(&seen.log), "trouble\n");
    assert_eq!(text(&seen.results), "{}\n");
    assert_eq!(seen.taken, 5);
    assert_eq!(seen.ended, Some(Ended::Exited(7)));
}

#[test]
fn one_agent_runs_many_jobs_and_no_result_is_inherited() {
    let mut agent = Agent::new(
        "many",
        "test -e ran || echo first > results.json; touch ran; cat",
    );
    for expected in ["first\n", "", ""] {
        agent.start(false);
        let seen = agent.finish();
        assert_eq!(
            (text(&seen.results), seen.ended),
            (expected, Some(Ended::Exited(0)))
        );
    }
}

#[test]
fn a_stop_reaches_the_child_and_a_kill_ends_it() {
    let mut agent = Agent::new(
        "stop",
        "trap 'echo stopped; exit 3' TERM; echo up; while :; do sleep 0.01; done",
    );
    agent.start(false);
    agent.until_output();
    agent.send(&Message::Stop);
    let seen = agent.finish();
    assert_eq!(
        (text(&seen.output), seen.ended),
        ("stopped\n", Some(Ended::Exited(3)))
    );

    let mut agent = Agent::new(
        "kill",
        "trap '' TERM; echo up; while :; do sleep 0.01; done",
    );
    agent.start(false);
    agent.until_output();
    agent.send(&Message::Stop);
    agent.send(&Message::Kill);
    assert_eq!(agent.finish().ended, Some(Ended::Signalled(9)));
}

#[test]
fn a_child_that_crashes_is_told_from_one_that_exits() {
    let mut agent = Agent::new("crash", "kill -SEGV $$");
    agent.start(false);
    assert_eq!(agent.finish().ended, Some(Ended::Signalled(11)));
}

#[test]
fn what_a_child_left_behind_holds_nobody_up() {
    let mut agent = Agent::new("orphan", "sleep 60 & echo $!");
    let start = Instant::now();
    agent.start(false);
    let seen = agent.finish();
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "the orphan held the pipes open"
    );
    wait_until_gone(text(&seen.output));
}

#[test]
fn input_nobody_reads_is_bounded_and_blocks_nothing() {
    let mut agent = Agent::new(
        "unread",
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done",
    );
    agent.start(true);
    agent.until_output();
    for _ in 0..64 {
        agent.send(&Message::Input(vec![b'x'; 64 << 10]));
    }
    agent.send(&Message::Stop);
    assert_eq!(agent.finish().ended, Some(Ended::Exited(0)));
}

#[test]
fn calls_reach_the_run_and_its_answers_come_back_to_the_last_one() {
    let mut agent = Agent::new(
        "control",
        "calls=${AEROSTAT_CONTROL_PIPES%,*}; answers=${AEROSTAT_CONTROL_PIPES#*,}
         exec < $calls; echo up > $answers; read a; read b; echo \"$a and $b\" > $answers",
    );
    agent.start_with(false, true);
    assert_eq!(agent.receive(), Message::Answers(b"up\n".to_vec()));
    agent.send(&Message::Calls(b"one\n".to_vec()));
    agent.send(&Message::Calls(b"two\n".to_vec()));
    let seen = agent.finish();
    assert_eq!(text(&seen.answers), "one and two\n");
    assert_eq!(seen.ended, Some(Ended::Exited(0)), "{}", text(&seen.log));
}

#[test]
fn calls_nobody_reads_are_bounded_and_block_nothing() {
    let mut agent = Agent::new(
        "uncalled",
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done",
    );
    agent.start_with(false, true);
    agent.until_output();
    for _ in 0..256 {
        agent.send(&Message::Calls(vec![b'x'; 64 << 10]));
    }
    agent.send(&Message::Stop);
    assert_eq!(agent.finish().ended, Some(Ended::Exited(0)));
}

#[test]
fn a_second_job_is_refused_while_one_runs() {
    let mut agent = Agent::new(
        "second",
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done",
    );
    agent.start(false);
    agent.until_output();
    agent.start(false);
    assert!(matches!(agent.finish().ended, Some(Ended::Refused { .. })));
    agent.send(&Message::Stop);
    assert_eq!(agent.finish().ended, Some(Ended::Exited(0)));
}

#[test]
fn a_pool_the_host_cannot_have_is_a_memory_verdict() {
    let mut agent = Agent::new("pool", "echo never");
    let pool = Some(crate::host::protocol::Pool {
        page_bytes: 2 << 20,
        pages: 1,
    });
    agent.send(&Message::Job(Job {
        config: String::new(),
        pool,
        plain_bytes: 0,
        input: false,
        control: false,
        debug: false,
    }));
    let seen = agent.finish();
    assert_eq!(text(&seen.output), "");
    assert!(
        matches!(&seen.ended, Some(Ended::Refused { class: FailureClass::Memory, message })
            if message.contains("no pool of 2 MiB pages")),
        "{seen:?}"
    );
}

#[test]
fn the_other_side_going_away_ends_the_job_and_the_agent() {
    let mut agent = Agent::new("gone", "echo $$; while :; do sleep 0.01; done");
    agent.start(false);
    let pid = loop {
        if let Message::Output(bytes) = agent.receive() {
            break text(&bytes).to_owned();
        }
    };
    agent.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(agent.thread.take().unwrap().join().unwrap().is_ok());
    wait_until_gone(&pid);
}

#[test]
fn files_are_kept_and_what_is_no_protocol_ends_the_agent() {
    let mut agent = Agent::new("files", "");
    let mut hasher = crate::host::content_id::ContentHasher::default();
    std::hash::Hasher::write(&mut hasher, b"content");
    agent.send(&Message::FileStart(FileStart {
        id: hasher.id(),
        bytes: 7,
    }));
    agent.send(&Message::FileData(b"content".to_vec()));
    assert_eq!(
        agent.receive(),
        Message::FileStored(FileStored {
            id: hasher.id(),
            error: None
        })
    );
    assert_eq!(
        fs::read(agent.root.join("files").join(hasher.id())).unwrap(),
        b"content"
    );

    io::Write::write_all(&mut &agent.stream, b"GET / HTTP/1.1\r\n").unwrap();
    assert!(agent.thread.take().unwrap().join().unwrap().is_err());
}
