//! What arrives on the second serial port: JSON lines, stamped on arrival with
//! the time and with what the host counted at that moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use devices::balloon::counters::CountersSnapshot;
use devices::serial::SerialSink;
use serde_json::Value;

use crate::guest_lines::{LineAssembler, LineBudget};
use crate::milestones::Milestones;
use crate::results::GuestLine;

/// What the host counts when a line arrives. Called on a vCPU thread: quick,
/// and never blocking for long.
pub trait HostCounts: Send + Sync {
    /// Balloon counters.
    fn counters(&self) -> CountersSnapshot;
    /// Free pages of the pool behind guest RAM, where there is one.
    fn pool_free(&self) -> Option<u64>;
}

/// All that the guest said.
#[derive(Debug, Default)]
pub struct GuestRecord {
    /// Its lines, in order.
    pub lines: Vec<GuestLine>,
    /// Lines past the bounds.
    pub dropped: u64,
    /// The code of its last exit line.
    pub exit_code: Option<i32>,
    /// The highest count of pages its verifier found not zero.
    pub not_zero: u64,
    /// When the first line arrived, in milliseconds since exec.
    pub first_ms: Option<f64>,
    budget: LineBudget,
}

impl GuestRecord {
    /// Takes in one line. What it says about the verdict counts even if there
    /// is no room to keep it.
    fn add(&mut self, line: &[u8], at_ms: f64, host: &dyn HostCounts) {
        self.first_ms.get_or_insert(at_ms);
        let value = value_of(line);
        self.heed(&value);
        if self.budget.take(&value) {
            self.lines.push(GuestLine {
                at_ms,
                line: value,
                counters: host.counters(),
                pool_free_pages: host.pool_free(),
            });
        } else {
            self.dropped += 1;
        }
    }

    /// What a line says about the verdict: `{"type":"exit","code":N}`, which
    /// may carry `"pgzero_bad":N`, and `{"type":"verifier","bad":N}`.
    fn heed(&mut self, line: &Value) {
        let not_zero = match line.get("type").and_then(Value::as_str) {
            Some("exit") => {
                // A code that is no i32 is no success either.
                let code = line.get("code").and_then(Value::as_i64);
                let code = code.map(|code| i32::try_from(code).unwrap_or(i32::MAX));
                self.exit_code = code.or(self.exit_code);
                line.get("pgzero_bad")
            }
            Some("verifier") => line.get("bad"),
            _ => None,
        };
        let not_zero = not_zero.and_then(Value::as_u64).unwrap_or(0);
        self.not_zero = self.not_zero.max(not_zero);
    }
}

/// A line as JSON; what is none, or too deep, as a string.
pub(crate) fn value_of(line: &[u8]) -> Value {
    serde_json::from_slice(line)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(line).into_owned()))
}

/// The record, shared between the port and the run.
#[derive(Debug, Clone, Default)]
pub struct SharedRecord(Arc<Mutex<GuestRecord>>);

impl SharedRecord {
    /// The record itself.
    pub fn lock(&self) -> MutexGuard<'_, GuestRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the second serial port transmits into. Dropping it ends a line the
/// guest did not end.
pub struct ResultsSink {
    /// Where lines go.
    record: SharedRecord,
    assembler: LineAssembler,
    host: Arc<dyn HostCounts>,
    milestones: Arc<Milestones>,
    exec: Instant,
}

impl ResultsSink {
    /// Records into `record`; times count from `exec`.
    #[must_use]
    pub fn new(
        record: SharedRecord,
        host: Arc<dyn HostCounts>,
        milestones: Arc<Milestones>,
        exec: Instant,
    ) -> Self {
        Self {
            record,
            assembler: LineAssembler::default(),
            host,
            milestones,
            exec,
        }
    }
}

impl SerialSink for ResultsSink {
    fn transmit(&mut self, bytes: &[u8]) {
        let at_ms = self.exec.elapsed().as_secs_f64() * 1e3;
        self.assembler.push(bytes, |line| {
            self.record.lock().add(line, at_ms, self.host.as_ref());
            self.milestones.init_is_up();
        });
    }
}

impl Drop for ResultsSink {
    fn drop(&mut self) {
        let at_ms = self.exec.elapsed().as_secs_f64() * 1e3;
        let mut record = self.record.lock();
        self.assembler
            .finish(|line| record.add(line, at_ms, self.host.as_ref()));
        record.dropped += self.assembler.dropped();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;

    use super::*;

    /// Counts up by one report at each look.
    #[derive(Default)]
    struct Counting(AtomicU64);

    impl HostCounts for Counting {
        fn counters(&self) -> CountersSnapshot {
            CountersSnapshot {
                reports: self.0.fetch_add(1, Ordering::Relaxed),
                ..Default::default()
            }
        }
        fn pool_free(&self) -> Option<u64> {
            Some(7)
        }
    }

    fn record_of(text: &[u8]) -> (SharedRecord, Arc<Milestones>) {
        let record = SharedRecord::default();
        let milestones = Arc::new(Milestones::new().unwrap());
        let counts = Arc::new(Counting::default());
        let mut sink = ResultsSink::new(
            record.clone(),
            counts,
            Arc::clone(&milestones),
            Instant::now(),
        );
        sink.transmit(text);
        (record, milestones)
    }

    #[test]
    fn each_line_carries_what_the_host_counted_when_it_arrived() {
        let (record, milestones) = record_of(b"{\"type\":\"init\"}\n{\"n\":1}\nno json\n");
        assert!(milestones.has_init());
        let record = record.lock();
        let lines: Vec<_> = record
            .lines
            .iter()
            .map(|l| (l.counters.reports, &l.line))
            .collect();
        assert_eq!(
            lines,
            [
                (0, &json!({"type": "init"})),
                (1, &json!({"n": 1})),
                (2, &json!("no json"))
            ]
        );
        assert_eq!(record.lines[0].pool_free_pages, Some(7));
        assert_eq!(record.first_ms, Some(record.lines[0].at_ms));
    }

    #[test]
    fn silence_is_no_init() {
        let (record, milestones) = record_of(b"half a li");
        assert!(!milestones.has_init());
        assert_eq!(record.lock().lines.len(), 1, "but at the end it is a line");
    }

    #[test]
    fn the_last_exit_line_and_the_worst_verifier_line_count() {
        #[rustfmt::skip]
        let table: [(&str, Option<i32>, u64); 10] = [
            (r#"{"type":"exit","code":0}"#,                        Some(0), 0),
            (r#"{"type":"exit","code":3,"pgzero_bad":null}"#,      Some(3), 0),
            (r#"{"type":"exit","code":0,"pgzero_bad":5}"#,         Some(0), 5),
            (r#"{"type":"exit","code":-1}"#,                       Some(-1), 0),
            (r#"{"type":"exit","code":4294967296}"#,               Some(i32::MAX), 0),
            (r#"{"type":"exit"}"#,                                 None, 0),
            (r#"{"type":"exit","code":"3"}"#,                      None, 0),
            (r#"{"type":"verifier","bad":2}"#,                     None, 2),
            (r#"{"code":3,"bad":2}"#,                              None, 0),
            ("{\"type\":\"verifier\",\"bad\":9}\n{\"type\":\"verifier\",\"bad\":2}\n\
              {\"type\":\"exit\",\"code\":1}\n{\"type\":\"exit\",\"code\":2}", Some(2), 9),
        ];
        for (text, exit_code, not_zero) in table {
            let record = record_of(text.as_bytes()).0;
            let record = record.lock();
            assert_eq!(
                (record.exit_code, record.not_zero),
                (exit_code, not_zero),
                "{text}"
            );
        }
    }

    #[test]
    fn an_exit_line_past_the_bounds_still_counts() {
        let mut text = b"x\n".repeat(crate::guest_lines::LINES + 5);
        text.extend(br#"{"type":"exit","code":3}"#);
        let record = record_of(&text).0;
        let record = record.lock();
        assert_eq!(record.lines.len(), crate::guest_lines::LINES);
        assert_eq!((record.dropped, record.exit_code), (6, Some(3)));
    }

    #[test]
    fn bytes_that_are_no_text_and_json_too_deep_are_kept_as_strings() {
        let deep = b"[".repeat(10_000);
        let record = record_of(&[&b"\xff\xfe\n"[..], &deep].concat()).0;
        let record = record.lock();
        assert!(record.lines.iter().all(|line| line.line.is_string()));
        assert_eq!(record.lines.len(), 2);
    }
}
