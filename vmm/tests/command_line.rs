//! What the program says, where, and with which exit code.
#![expect(clippy::expect_used, reason = "all of this file is a test")]

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "command_line/control.rs"]
mod control;

/// A directory with a configuration and the files it names.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let name = format!("aerostat-cli-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("directory");
        let this = Self(path);
        this.write("kernel", "not empty");
        this.write("vm.toml", "[kernel]\nimage = \"kernel\"\n");
        this
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.0.join(name), content).expect("file");
    }

    fn aerostat(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("aerostat starts")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aerostat"));
        command.args(args).current_dir(&self.0).stdin(Stdio::null());
        command.env_remove("AEROSTAT_TEST_FAULTS");
        command
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

/// The run was refused with exit code 2 and just this line.
fn assert_refused(directory: &Directory, args: &[&str], line: &str) {
    let output = directory.aerostat(args);
    let line = line.replace("DIR", directory.0.to_str().expect("UTF-8"));
    assert_eq!(stderr(&output), format!("aerostat: {line}\n"), "{args:?}");
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert_eq!(stdout(&output), "", "{args:?}");
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let directory = Directory::new("bad");
    directory.write("empty", "");
    directory.write("big", &"x".repeat(17 << 20));
    directory.write("bytes.toml", "");
    fs::write(
        directory.0.join("bytes.toml"),
        b"[kernel]\nimage = \"\xff\"\n",
    )
    .expect("file");
    for (args, line) in [
        (&["nowhere.toml"][..], "nowhere.toml: no such file"),
        (&["."], ".: is a directory, not a configuration file"),
        (&["bytes.toml"], "bytes.toml:2:10: is not UTF-8 text"),
        (
            &["vm.toml", "--set", "kernel.image=nowhere"],
            "--set kernel.image=nowhere: key `kernel.image`: DIR/nowhere: no such file",
        ),
        (
            &["vm.toml", "--set", "kernel.image=."],
            "--set kernel.image=.: key `kernel.image`: DIR/.: is a directory, not a file",
        ),
        (
            &["vm.toml", "--set", "kernel.image=/dev/null"],
            "--set kernel.image=/dev/null: key `kernel.image`: /dev/null: is not a regular file",
        ),
        (
            &["vm.toml", "--set", "kernel.initrd=empty"],
            "--set kernel.initrd=empty: key `kernel.initrd`: DIR/empty: is empty",
        ),
        (
            &[
                "vm.toml",
                "--set",
                "kernel.initrd=big",
                "--set",
                "memory.size=16M",
            ],
            "--set kernel.initrd=big: key `kernel.initrd`: DIR/big: 17825792 bytes do not fit into guest RAM, \
             which is 16M (16777216 bytes); raise memory.size",
        ),
        (
            &["vm.toml", "--host-kernel", "nowhere"],
            "--host-kernel nowhere: key `host.kernel`: DIR/nowhere: no such file",
        ),
        (
            &["vm.toml", "--results", "no/r.json"],
            "--results no/r.json: key `results.path`: DIR/no/r.json: cannot be written: no such directory",
        ),
        (
            &["vm.toml", "--results", "."],
            "--results .: key `results.path`: DIR/.: cannot be written: is a directory",
        ),
        (
            &["vm.toml", "--set", "console.output.file=no/c"],
            "--set console.output.file=no/c: key `console.output.file`: DIR/no/c: cannot be written: no such directory",
        ),
        (
            &["vm.toml", "--set", "control.socket=no/s"],
            "--set control.socket=no/s: key `control.socket`: DIR/no/s: cannot be written: no such directory",
        ),
        (
            &["vm.toml", "--set", "memory.pgae=1G"],
            "--set memory.pgae=1G: key `memory.pgae`: unknown key; did you mean `memory.page`?",
        ),
    ] {
        assert_refused(&directory, &[&["run"], args].concat(), line);
        assert_refused(&directory, &[&["run", "--dry-run"], args].concat(), line);
    }
    let left: Vec<_> = fs::read_dir(&directory.0).expect("directory").collect();
    assert_eq!(left.len(), 5, "nothing is left behind: {left:?}");
}

#[test]
fn an_unknown_flag_is_bad_usage_too() {
    let directory = Directory::new("usage");
    for args in [
        &["run"][..],
        &["run", "vm.toml", "--hots=native"],
        &["walk"],
        &["-q", "-v", "info"],
    ] {
        let output = directory.aerostat(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn a_dry_run_prints_the_merged_configuration_and_starts_nothing() {
    let directory = Directory::new("dry");
    let args = [
        "run",
        "vm.toml",
        "--dry-run",
        "--set",
        "cpus.count=4",
        "--results",
        "r.json",
        "--set",
        "console.output.file=c",
        "--set",
        "control.socket=s",
    ];
    let files = || fs::read_dir(&directory.0).expect("directory").count();
    let before = files();
    let output = directory.aerostat(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let config = vmm::config::from_merged(stdout(&output)).expect("reads back");
    assert_eq!(config.cpus.count, 4);
    assert_eq!(config.kernel.image, directory.0.join("kernel"));
    assert_eq!(config.results.path, Some(directory.0.join("r.json")));
    assert_eq!(files(), before, "nothing is left behind");
}

#[test]
fn show_tells_where_each_value_comes_from() {
    let directory = Directory::new("show");
    let output = directory.aerostat(&[
        "config",
        "show",
        "vm.toml",
        "--origin",
        "--set",
        "cpus.count=4",
    ]);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(shown.contains("kernel\" # vm.toml:2:9\n"), "{shown}");
    assert!(
        shown.contains("count = 4 # --set cpus.count=4\n"),
        "{shown}"
    );
    assert!(shown.contains("size = \"512M\" # default\n"), "{shown}");
    vmm::config::from_merged(shown).expect("comments do not hurt");
}

#[test]
fn check_needs_the_files_and_show_does_not() {
    let directory = Directory::new("check");
    let check = directory.aerostat(&["config", "check", "vm.toml"]);
    assert_eq!(check.status.code(), Some(0));
    assert_eq!(stderr(&check), "aerostat: vm.toml: ok\n");
    fs::remove_file(directory.0.join("kernel")).expect("removed");
    let line = "vm.toml:2:9: key `kernel.image`: DIR/kernel: no such file";
    assert_refused(&directory, &["config", "check", "vm.toml"], line);
    assert_eq!(
        directory
            .aerostat(&["config", "show", "vm.toml"])
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn a_key_without_effect_warns_and_goes_on() {
    let directory = Directory::new("warn");
    let set = ["--set", "memory.backing=thp", "--set", "memory.page=2M"];
    let output = directory.aerostat(&[&["config", "check", "vm.toml"][..], &set].concat());
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    let warning = "warn: --set memory.page=2M: key `memory.page`: has no effect without memory.backing = \"hugetlb\"";
    assert!(said.contains(warning), "{said}");
    let quiet = directory.aerostat(&[&["-q", "config", "check", "vm.toml"][..], &set].concat());
    assert_eq!(stderr(&quiet), "");
}

#[test]
fn injected_faults_need_the_environment_to_agree() {
    let directory = Directory::new("faults");
    let args = [
        "config",
        "show",
        "vm.toml",
        "--set",
        "balloon.lie_about_zero=true",
    ];
    assert_eq!(directory.aerostat(&args).status.code(), Some(2));
    for (value, code) in [("0", 2), ("1", 0)] {
        let output = directory
            .command(&args)
            .env("AEROSTAT_TEST_FAULTS", value)
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    }
}

#[test]
fn info_is_one_json_document_with_the_facts_of_results() {
    let directory = Directory::new("info");
    let output = directory.aerostat(&["info", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let facts: vmm::results::HostFacts = serde_json::from_str(stdout(&output)).expect("host facts");
    assert!(facts.cpus >= 1);
    assert_eq!(stderr(&output), "");
}

#[test]
fn version_names_what_is_built_in() {
    let output = Directory::new("version").aerostat(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stdout(&output).starts_with("aerostat "),
        "{}",
        stdout(&output)
    );
    assert!(stdout(&output).contains("hugetlb"), "{}", stdout(&output));
}

#[test]
fn a_reader_that_is_gone_is_no_panic() {
    let directory = Directory::new("gone");
    for args in [&["info"][..], &["config", "show", "vm.toml"]] {
        let (reader, writer) = UnixStream::pair().expect("socket pair");
        drop(reader);
        let writer = OwnedFd::from(writer);
        let output = directory
            .command(args)
            .stdout(writer)
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert_eq!(stderr(&output), "", "{args:?}");
    }
}

#[test]
fn a_shipped_configuration_works_from_any_directory() {
    let directory = Directory::new("shipped");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/zero-skip-2m.toml");
    let output = directory.aerostat(&["config", "show", file.to_str().expect("UTF-8")]);
    let config = vmm::config::from_merged(stdout(&output)).expect("reads back");
    assert!(config.kernel.image.is_absolute());
    assert!(
        config
            .kernel
            .image
            .ends_with("configs/../guest-kernel/out/bzImage")
    );
}

#[test]
fn a_pipe_without_another_end_is_refused_and_not_waited_for() {
    let directory = Directory::new("pipe");
    let pipe = directory.0.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    assert_refused(
        &directory,
        &["run", "pipe"],
        "pipe: key `kernel.image`: missing; name a bzImage or ELF kernel in `[kernel]` as image = \"path\"",
    );
    for (args, origin, key) in [
        (["--results", "pipe"], "--results pipe", "results.path"),
        (
            ["--set", "console.output.file=pipe"],
            "--set console.output.file=pipe",
            "console.output.file",
        ),
    ] {
        let line =
            format!("{origin}: key `{key}`: DIR/pipe: cannot be written: nobody reads this pipe");
        assert_refused(
            &directory,
            &[&["run", "vm.toml"], &args[..]].concat(),
            &line,
        );
    }
}

#[test]
fn a_reader_of_stderr_that_is_stuck_is_not_waited_for() {
    let directory = Directory::new("stuck");
    let (_reader, mut writer) = UnixStream::pair().expect("socket pair");
    writer.set_nonblocking(true).expect("non-blocking");
    while writer.write(&[0; 4096]).is_ok() {}
    writer.set_nonblocking(false).expect("blocking");
    let begin = Instant::now();
    let mut command = directory.command(&["run", "missing.toml"]);
    let status = command.stderr(OwnedFd::from(writer)).status();
    assert_eq!(status.expect("starts").code(), Some(2));
    assert!(begin.elapsed() < Duration::from_secs(5), "it waited");
}
