//! What is said of a control socket, and by `aerostat ctl`.

use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn a_control_socket_that_cannot_be_is_told_before_anything_starts() {
    let directory = Directory::new("socket");
    directory.write("taken", "precious");
    let long = "x".repeat(120);
    let listener = UnixListener::bind(directory.0.join("live")).expect("a socket");
    for (name, reason) in [
        (
            "taken",
            "is there already and no socket; remove it or name another path",
        ),
        ("live", "another VM is listening there; name another socket"),
        (
            &long,
            "is longer than 107 bytes, which no socket's path can be",
        ),
    ] {
        let set = format!("control.socket={name}");
        assert_refused(
            &directory,
            &["run", "vm.toml", "--set", &set],
            &format!("--set {set}: key `control.socket`: DIR/{name}: {reason}"),
        );
    }
    drop(listener);
    let taken = fs::read_to_string(directory.0.join("taken")).expect("the file");
    assert_eq!(taken, "precious");
}

#[test]
fn ctl_says_in_one_line_what_is_wrong_with_what_it_was_given() {
    let directory = Directory::new("ctl");
    directory.write("file", "");
    drop(UnixListener::bind(directory.0.join("dead")).expect("a socket"));
    for (args, line) in [
        (
            &["nowhere", "info"][..],
            "nowhere: no such socket; is the VM running, with this control.socket?",
        ),
        (
            &["dead", "info"],
            "dead: nobody is listening; the VM has ended",
        ),
        (&["file", "info"], "file: is no socket"),
        (
            &["nowhere", "balloon", "set", "lots"],
            "SIZE \"lots\" is no size; write 256M, 2G or a number of bytes",
        ),
        (
            &["nowhere", "balloon", "set", "1M", "--ramp", "fast"],
            "--ramp \"fast\" is no size; write 256M, 2G or a number of bytes",
        ),
        (
            &[
                "nowhere",
                "balloon",
                "set",
                "1M",
                "--wait",
                "--timeout",
                "9",
            ],
            "--timeout \"9\" is no duration; write 500ms, 30s or 2m",
        ),
        (
            &["nowhere", "stats", "--timeout", "soon"],
            "--timeout \"soon\" is no duration; write 500ms, 30s or 2m",
        ),
        (
            &["nowhere", "balloon", "set", "4097"],
            "SIZE 4097 is not a multiple of 4096",
        ),
        (
            &["nowhere", "balloon", "set", "1M", "--ramp", "0"],
            "--ramp 0 would never get there",
        ),
        (
            &["nowhere", "stats", "--timeout", "2m"],
            "--timeout, in milliseconds, 120000 is more than 60000",
        ),
    ] {
        assert_refused(&directory, &[&["ctl"], args].concat(), line);
    }
}
