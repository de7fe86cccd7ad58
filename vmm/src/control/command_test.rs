use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn every_command_has_its_line() {
    let set = |size_bytes, wait_ms, ramp_bytes_per_s| Command::BalloonSet {
        size_bytes,
        wait_ms,
        ramp_bytes_per_s,
    };
    let rows = [
        (
            r#"{"command":"balloon_set","size_bytes":4096}"#,
            set(4096, None, None),
        ),
        (
            r#"{"command":"balloon_set","size_bytes":0,"wait_ms":5,"ramp_bytes_per_s":7}"#,
            set(0, Some(5), Some(7)),
        ),
        (r#"{"command":"balloon_get"}"#, Command::BalloonGet {}),
        (
            r#"{"command":"stats"}"#,
            Command::Stats { timeout_ms: None },
        ),
        (
            r#"{"command":"stats","timeout_ms":60000}"#,
            Command::Stats {
                timeout_ms: Some(60_000),
            },
        ),
        (r#"{"command":"hint_start"}"#, Command::HintStart {}),
        (r#"{"command":"hint_status"}"#, Command::HintStatus {}),
        (r#"{"command":"hint_stop"}"#, Command::HintStop {}),
        (r#"{"command":"counters"}"#, Command::Counters {}),
        (r#"{"command":"info"}"#, Command::Info {}),
        (r#"{"command":"pause"}"#, Command::Pause {}),
        (r#"{"command":"resume"}"#, Command::Resume {}),
        (
            r#" {"schema_version": 1, "command":"stop"} "#,
            Command::Stop {},
        ),
    ];
    for (line, command) in rows {
        let request = parse(line.as_bytes()).unwrap_or_else(|bad| panic!("{line}: {bad:?}"));
        assert_eq!(
            request,
            Request {
                id: None,
                command: command.clone()
            },
            "{line}"
        );
        // What our own client writes is what the server reads.
        let written = serde_json::to_vec(&command).unwrap();
        assert_eq!(parse(&written).unwrap().command, command);
    }
}

#[test]
fn what_is_wrong_with_a_line_is_said() {
    use ErrorCode::{BadRequest, InvalidValue, SchemaVersion};
    let rows: [(&str, ErrorCode, &str); 21] = [
        ("", BadRequest, "not JSON"),
        ("info", BadRequest, "not JSON"),
        ("{\"command\":\"info\"", BadRequest, "not JSON"),
        ("\u{0}", BadRequest, "not JSON"),
        ("[]", BadRequest, "JSON object"),
        ("\"info\"", BadRequest, "JSON object"),
        ("{}", BadRequest, "command"),
        (r#"{"command":7}"#, BadRequest, "7"),
        (r#"{"command":"halt"}"#, BadRequest, "halt"),
        (r#"{"command":"info","now":true}"#, BadRequest, "now"),
        (r#"{"command":"balloon_set"}"#, BadRequest, "size_bytes"),
        (
            r#"{"command":"balloon_set","size_bytes":"1G"}"#,
            BadRequest,
            "u64",
        ),
        (
            r#"{"command":"balloon_set","size_bytes":-4096}"#,
            BadRequest,
            "-4096",
        ),
        (
            r#"{"command":"balloon_set","size_bytes":1e400}"#,
            BadRequest,
            "not JSON",
        ),
        (
            r#"{"command":"balloon_set","size_bytes":4097}"#,
            InvalidValue,
            "multiple of 4096",
        ),
        (
            r#"{"command":"balloon_set","size_bytes":0,"ramp_bytes_per_s":0}"#,
            InvalidValue,
            "ramp",
        ),
        (
            r#"{"command":"balloon_set","size_bytes":0,"wait_ms":86400001}"#,
            InvalidValue,
            "86400000",
        ),
        (
            r#"{"command":"stats","timeout_ms":60001}"#,
            InvalidValue,
            "60000",
        ),
        (r#"{"command":"info","id":[1]}"#, BadRequest, "id"),
        (
            r#"{"command":"info","schema_version":2}"#,
            SchemaVersion,
            "schema_version 1",
        ),
        (
            r#"{"command":"info","schema_version":"1"}"#,
            SchemaVersion,
            "schema_version 1",
        ),
    ];
    for (line, code, part) in rows {
        let error = parse(line.as_bytes()).expect_err(line).error;
        assert_eq!(error.code, code, "{line}: {error:?}");
        assert!(error.message.contains(part), "{line}: {error:?}");
        assert_eq!(error.message.lines().count(), 1, "{line}: {error:?}");
    }
}

#[test]
fn an_id_comes_back_from_a_bad_request_too() {
    for id in [json!("a"), json!(7), json!(-1.5)] {
        let line = json!({"id": id, "command": "info"}).to_string();
        assert_eq!(parse(line.as_bytes()).unwrap().id, Some(id.clone()));
        let line = json!({"id": id, "command": "none"}).to_string();
        assert_eq!(parse(line.as_bytes()).unwrap_err().id, Some(id));
    }
    let long = json!({"id": "x".repeat(257), "command": "info"}).to_string();
    let bad = parse(long.as_bytes()).unwrap_err();
    assert_eq!((bad.id, bad.error.code), (None, ErrorCode::BadRequest));
}

#[test]
fn nesting_without_end_is_refused_and_not_followed() {
    let deep = "[".repeat(MAX_LINE);
    let bad = parse(deep.as_bytes()).unwrap_err();
    assert_eq!(bad.error.code, ErrorCode::BadRequest);
}

proptest! {
    #[test]
    fn no_line_breaks_the_reader(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(bad) = parse(&line) {
            prop_assert!(!bad.error.message.contains('\n'));
        }
    }

    #[test]
    fn what_is_taken_is_within_its_bounds(size: u64, wait: Option<u64>, ramp: Option<u64>) {
        let command = Command::BalloonSet {
            size_bytes: size,
            wait_ms: wait,
            ramp_bytes_per_s: ramp,
        };
        let line = serde_json::to_vec(&command).unwrap();
        let sound = size % 4096 == 0
            && wait.is_none_or(|wait| wait <= 24 * 3600 * 1000)
            && ramp != Some(0);
        prop_assert_eq!(parse(&line).is_ok(), sound);
    }
}
