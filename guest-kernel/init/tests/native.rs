//! The program run as any other process, with the steps as its arguments.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_guest-init"))
        .arg("--no-init")
        .args(arguments)
        .output()
        .unwrap()
}

/// The lines, and the exit code of the process.
fn lines(arguments: &[&str]) -> (Vec<Value>, i32) {
    let output = run(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (lines, output.status.code().unwrap())
}

fn types(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect()
}

#[test]
fn a_run_without_steps_says_where_it_is_and_ends() {
    let (lines, code) = lines(&[]);
    assert_eq!(types(&lines), ["init", "exit"]);
    assert_eq!(code, 0);
    assert!(lines[0]["mem_total_bytes"].as_u64().unwrap() > 1 << 24);
    assert!(lines[0]["uptime_ms"].as_u64().unwrap() > 0);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(lines[0]["kernel"]["release"], release.trim());
    assert_eq!(lines[1]["steps"], 0);
    assert_eq!(lines[1]["action"], Value::Null);
}

#[test]
fn populate_counts_its_own_faults_and_finds_zeros() {
    let (lines, code) = lines(&["populate=8M,small,check,write"]);
    assert_eq!((types(&lines), code), (vec!["init", "populate", "exit"], 0));
    let line = &lines[1];
    assert_eq!(
        (&line["size_bytes"], &line["kind"]),
        (&(8 << 20).into(), &"small".into())
    );
    assert_eq!(line["pages"], 2048);
    let faults = line["minor_faults"].as_u64().unwrap();
    assert!((2048..2148).contains(&faults), "{faults}");
    assert!(line["vmstat"]["pgfault"].as_u64().unwrap() >= 2048);
    let (task, wall) = (&line["task_clock_ns"], &line["wall_ns"]);
    let (task, wall) = (task.as_u64().unwrap(), wall.as_u64().unwrap());
    // They are two clocks: allow for a tenth of difference in speed.
    assert!(task > 0 && task <= wall + wall / 10, "{task} {wall}");
    assert_eq!(line["check"]["bytes"], 8 << 20);
    assert_eq!(line["check"]["nonzero_bytes"], 0);
    assert!(line["write"]["wall_ns"].as_u64().unwrap() > 0);
    for counter in ["instructions", "cache_misses"] {
        let reading = &line[counter];
        let words = ["not supported", "not counted", "not permitted"];
        assert!(
            reading.is_u64() || reading.as_str().is_some_and(|word| words.contains(&word)),
            "{counter}: {reading}"
        );
        assert_ne!(line["instructions"], 0);
    }
    // A kernel without the counters has no number; one with them has both.
    assert_eq!(
        line["pages_cleared"].is_null(),
        line["pages_skipped"].is_null()
    );
}

#[test]
fn a_loop_numbers_its_rounds() {
    let (lines, code) = lines(&["loop=2;dirty=2M,small", "print=x;end", "info"]);
    assert_eq!(code, 0);
    let numbered: Vec<_> = lines[1..lines.len() - 1]
        .iter()
        .map(|line| {
            (
                line["type"].as_str().unwrap(),
                line["step"].as_u64().unwrap(),
                line["iteration"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        numbered,
        [
            ("dirty", 1, Some(1)),
            ("print", 2, Some(1)),
            ("dirty", 3, Some(2)),
            ("print", 4, Some(2)),
            ("info", 5, None)
        ]
    );
    assert_eq!(lines.last().unwrap()["steps"], 5);
}

#[test]
fn a_bad_step_stops_all_before_the_first_runs() {
    let (lines, code) = lines(&["print=x", "populte=1M"]);
    assert_eq!((types(&lines), code), (vec!["init", "error", "exit"], 3));
    assert_eq!(lines[1]["text"], "populte=1M");
    assert!(
        lines[1]["message"]
            .as_str()
            .unwrap()
            .contains("unknown step `populte`")
    );
    assert_eq!(lines[2]["code"], 3);
}

#[test]
fn a_failed_step_ends_the_run() {
    // 1 PiB is more than any machine this runs on has.
    let (lines, code) = lines(&["print=x", "populate=1048576G,small", "print=y"]);
    assert_eq!(
        (types(&lines), code),
        (vec!["init", "print", "error", "exit"], 4)
    );
    let message = lines[2]["message"].as_str().unwrap();
    assert!(
        message.contains("needs") && message.contains("available"),
        "{message}"
    );
    assert_eq!(
        (&lines[3]["steps"], &lines[3]["code"]),
        (&2.into(), &4.into())
    );
}

#[test]
fn what_would_stop_the_machine_is_refused_outside_a_guest() {
    for step in [
        "panic",
        "reboot",
        "poweroff",
        "balloon=unbind",
        "balloon=bind",
        "pressure=4K",
        "pool=1",
        "stress=1,4K,1,balloon",
    ] {
        let (lines, code) = lines(&[step]);
        assert_eq!(
            (types(&lines), code),
            (vec!["init", "error", "exit"], 4),
            "{step}"
        );
        assert!(
            lines[1]["message"].as_str().unwrap().starts_with("refused"),
            "{step}"
        );
    }
}

#[test]
fn an_exit_code_is_passed_on_and_ends_the_run() {
    let (lines, code) = lines(&["exit=7", "print=x"]);
    assert_eq!((types(&lines), code), (vec!["init", "exit"], 7));
    assert_eq!(lines[1]["code"], 7);
}

#[test]
fn a_kernel_without_a_switch_says_so() {
    if std::path::Path::new("/sys/module/page_zeroed").exists() {
        eprintln!("skipped: this machine runs the patched kernel");
        return;
    }
    let (lines, code) = lines(&["verify=on", "off=on"]);
    assert_eq!(code, 0);
    for line in &lines[1..3] {
        assert_eq!(
            (&line["supported"], &line["value"]),
            (&false.into(), &Value::Null)
        );
    }
    assert_eq!(lines[3]["pgzero_bad"], Value::Null);
}

#[test]
fn a_balloon_that_does_not_get_there_ends_the_run() {
    // 1 PiB is more than any machine this runs on has.
    let (lines, code) = lines(&["wait_balloon=1048576G,0.05", "print=x"]);
    assert_eq!((types(&lines), code), (vec!["init", "error", "exit"], 4));
    let message = lines[1]["message"].as_str().unwrap();
    assert!(
        message.contains("not 1125899906842624") || message.contains("no count of balloon pages"),
        "{message}"
    );
}

#[test]
fn words_for_people_stay_out_of_the_lines() {
    let output = run(&["print=hello", "spin_console=1M"]);
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(out.lines().count(), 4);
    assert!(err.contains("hello\n") && err.len() >= 1 << 20);
}

#[test]
fn help_lists_the_steps() {
    let text = String::from_utf8(run(&["--help"]).stdout).unwrap();
    assert!(text.contains("populate=SIZE[,KIND]") && text.contains("poweroff"));
}
