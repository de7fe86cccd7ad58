//! Turns the bytes of the second serial port into lines, within bounds.

/// Longest line in bytes; a longer one is dropped whole.
pub const LINE_BYTES: usize = 64 << 10;
/// Lines kept at most.
pub const LINES: usize = 10_000;
/// What all lines may cost together, by [`cost`].
const TOTAL_COST: usize = 32 << 20;
/// Memory a JSON value may take beside its text: a map of one entry is a tree
/// node of 600 bytes, written with seven characters, three of them structural.
const STRUCTURE_COST: usize = 200;

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
    pub fn take(&mut self, line: &[u8]) -> bool {
        let left = (self.lines.checked_sub(1), self.cost.checked_sub(cost(line)));
        let (Some(lines), Some(cost)) = left else {
            return false;
        };
        *self = Self { lines, cost };
        true
    }
}

/// What a line costs in memory at most, once it is a JSON value.
fn cost(line: &[u8]) -> usize {
    let structural = |byte: &&u8| matches!(byte, b',' | b':' | b'{' | b'[');
    line.len() + line.iter().filter(structural).count() * STRUCTURE_COST
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
    fn the_budget_ends_by_number_and_by_cost() {
        let mut budget = LineBudget::default();
        assert_eq!((0..20_000).filter(|_| budget.take(b"{}")).count(), LINES);

        // The worst a guest can send: maps of one entry each.
        let worst = br#"{"":0},"#.repeat(LINE_BYTES / 7);
        let mut budget = LineBudget::default();
        let kept = (0..LINES).filter(|_| budget.take(&worst)).count();
        let values = kept * LINE_BYTES / 7;
        assert!(values * 640 < 64 << 20, "{kept} lines with {values} maps");
    }
}
