//! Turns the bytes of the second serial port into lines, within bounds.

use serde_json::Value;

/// Longest line in bytes; a longer one is dropped whole.
pub const LINE_BYTES: usize = 64 << 10;
/// Lines kept at most.
pub const LINES: usize = 10_000;
/// What all lines may cost together, by [`cost`].
const TOTAL_COST: usize = 32 << 20;
/// Memory of a value beside its contents, its share of a list that grew by
/// doubling, and the comma, line end and quotes it is written with.
const VALUE_COST: usize = 96;
/// A map of one entry is a tree node of 600 bytes; so is each further one of
/// up to eleven entries, at least half full.
const MAP_COST: usize = 640;
/// Two spaces a level: a results document is written indented.
const INDENT: usize = 2;
/// Levels around a line in a results document.
const DEPTH: usize = 3;

/// Collects bytes until a line is complete.
#[derive(Debug, Default)]
pub struct LineAssembler {
    line: Vec<u8>,
    /// The current line is too long; skip to its end.
    overlong: bool,
    dropped: u64,
}

impl LineAssembler {
    /// Takes bytes and hands each complete line to `on_line`, without its line
    /// end. Empty lines are none.
    pub fn push(&mut self, bytes: &[u8], mut on_line: impl FnMut(&[u8])) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end_line(&mut on_line);
            } else if self.line.len() == LINE_BYTES {
                self.overlong = true;
            } else {
                self.line.push(*byte);
            }
        }
    }

    /// Takes what is left as a line, as if the guest had ended it.
    pub fn finish(&mut self, mut on_line: impl FnMut(&[u8])) {
        self.end_line(&mut on_line);
    }

    fn end_line(&mut self, on_line: &mut impl FnMut(&[u8])) {
        let line = self.line.trim_ascii_end();
        if self.overlong {
            self.dropped += 1;
        } else if !line.is_empty() {
            on_line(line);
        }
        self.overlong = false;
        self.line.clear();
    }

    /// Lines dropped because they were too long.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// How much may still be kept.
#[derive(Debug)]
pub struct LineBudget {
    lines: usize,
    cost: usize,
}

impl Default for LineBudget {
    fn default() -> Self {
        Self {
            lines: LINES,
            cost: TOTAL_COST,
        }
    }
}

impl LineBudget {
    /// Charges for keeping `line`; false if it must not be kept.
    pub fn take(&mut self, line: &Value) -> bool {
        let cost = cost(line, DEPTH);
        let left = (self.lines.checked_sub(1), self.cost.checked_sub(cost));
        let (Some(lines), Some(cost)) = left else {
            return false;
        };
        *self = Self { lines, cost };
        true
    }
}

/// What a value `depth` levels down costs at most, in bytes: of memory, and
/// written into a results document. The parser bounds how deep it gets.
fn cost(value: &Value, depth: usize) -> usize {
    let inner = depth + 1;
    let contents = match value {
        Value::String(text) => written(text),
        Value::Array(items) => items.iter().map(|item| cost(item, inner)).sum::<usize>(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| MAP_COST / 11 + written(key) + cost(value, inner))
            .sum::<usize>()
            .max(MAP_COST),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    // Twice: the closing bracket has a line of its own.
    VALUE_COST + 2 * INDENT * depth + contents
}

/// Length of a string in a JSON document, without quotes.
fn written(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' => 2,
            // Most are written as \u0000.
            0..b' ' => 6,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, u64) {
        let mut assembler = LineAssembler::default();
        let mut lines = vec![];
        for piece in pieces {
            assembler.push(piece, |line| lines.push(line.to_vec()));
        }
        assembler.finish(|line| lines.push(line.to_vec()));
        (lines, assembler.dropped())
    }

    #[test]
    fn line_ends_of_a_terminal_are_taken_off_and_empty_lines_are_none() {
        let (lines, dropped) = lines_of(&[b"one\r\n\r\n\ntw", b"o\nthree"]);
        assert_eq!(lines, [&b"one"[..], b"two", b"three"]);
        assert_eq!(dropped, 0);
    }

    #[test]
    fn a_line_of_the_maximum_is_kept_and_one_byte_more_drops_it_whole() {
        let longest = vec![b'x'; LINE_BYTES];
        let (lines, dropped) = lines_of(&[&longest, b"\nnext\n"]);
        assert_eq!((lines.len(), dropped), (2, 0));
        let (lines, dropped) = lines_of(&[&longest, b"x\nnext\n"]);
        assert_eq!((lines, dropped), (vec![b"next".to_vec()], 1));
    }

    #[test]
    fn a_line_that_never_ends_takes_no_more_than_the_maximum() {
        let mut assembler = LineAssembler::default();
        for _ in 0..1000 {
            assembler.push(&[b'x'; 4096], |_| panic!("no line ended"));
        }
        assert!(assembler.line.capacity() <= 2 * LINE_BYTES);
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_cut_the_lines_are_the_same(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), 32..127_u8], 0..400),
            cuts in prop::collection::vec(0..400_usize, 0..20),
        ) {
            let mut pieces = vec![];
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (piece, left) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = left;
            }
            pieces.push(rest);
            let right: Vec<Vec<u8>> = bytes
                .split(|byte| *byte == b'\n')
                .map(|line| line.trim_ascii_end().to_vec())
                .filter(|line| !line.is_empty())
                .collect();
            prop_assert_eq!(lines_of(&pieces).0, right);
        }
    }

    #[test]
    fn the_budget_ends_by_number() {
        let mut budget = LineBudget::default();
        let line = serde_json::json!({});
        assert_eq!((0..20_000).filter(|_| budget.take(&line)).count(), LINES);
    }

    /// As many as fit into one line.
    fn full(start: &str, item: &str, end: &str) -> Vec<u8> {
        let room = LINE_BYTES - start.len() - end.len();
        let items = item.repeat(room / item.len());
        let items = items.strip_suffix(',').unwrap_or(&items);
        [start, items, end].concat().into_bytes()
    }

    #[test]
    fn whatever_lines_a_guest_sends_the_document_stays_bounded() {
        // An emulated host hands over at most 64 MiB.
        const DOCUMENT: usize = 40 << 20;
        let (open, close) = ("[".repeat(125), "]".repeat(125));
        let table = [
            ("control characters", vec![1; LINE_BYTES]),
            ("no UTF-8", vec![0xff; LINE_BYTES]),
            ("quotes", vec![b'"'; LINE_BYTES]),
            ("letters", vec![b'x'; LINE_BYTES]),
            ("numbers", full("[", "1e9,", "]")),
            ("maps", full("[", "{\"\":0},", "]")),
            ("deep values", full(&open, "0,", &close)),
            ("deep lists", full(&open, "[0],", &close)),
            ("deep maps", full(&open, "{\"\":0},", &close)),
            ("many keys", full("{", "\"a\":0,", "}")),
            ("small lines", b"{}".to_vec()),
        ];
        for (name, line) in table {
            let value = crate::results_port::value_of(&line);
            let mut budget = LineBudget::default();
            let kept = (0..=LINES).take_while(|_| budget.take(&value)).count();
            assert!(kept > 0, "{name}: one is kept");
            let one = serde_json::to_string_pretty(&[[[&value]]]).unwrap().len();
            assert!(one * kept < DOCUMENT, "{name}: {kept} lines of {one} bytes");
        }
    }
}
