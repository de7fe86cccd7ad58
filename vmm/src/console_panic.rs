//! Recognises a kernel panic in what the console prints.

/// How `panic()` in kernel/panic.c begins, whatever made it panic. The other
/// beginning, "Kernel panic: ", has been gone since Linux 2.5.
const PANIC: &[u8] = b"Kernel panic - not syncing";

/// Finds the text in a stream, however it is cut into pieces.
#[derive(Debug, Default)]
pub struct PanicScanner {
    /// How many bytes of [`PANIC`] the stream ends with.
    matched: usize,
}

impl PanicScanner {
    /// Takes the next bytes; true if the text ended in them.
    pub fn scan(&mut self, bytes: &[u8]) -> bool {
        let mut found = false;
        for byte in bytes {
            if PANIC.get(self.matched) == Some(byte) {
                self.matched += 1;
            } else {
                // 'K' occurs once in the text, at its start, so no other
                // shorter match can be left over.
                self.matched = usize::from(PANIC.first() == Some(byte));
            }
            if self.matched == PANIC.len() {
                self.matched = 0;
                found = true;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_text_is_found_cut_at_any_place() {
        let text = b"[ 1.0] Kernel panic - not syncing: Attempted to kill init!";
        for cut in 0..text.len() {
            let mut scanner = PanicScanner::default();
            let (first, second) = text.split_at(cut);
            let found = [scanner.scan(first), scanner.scan(second)];
            assert_eq!(found.iter().filter(|f| **f).count(), 1, "cut at {cut}");
        }
    }

    #[test]
    fn a_broken_start_does_not_hide_what_follows() {
        let mut scanner = PanicScanner::default();
        assert!(scanner.scan(b"Kernel paKKernel panic - not syncing"));
    }

    #[test]
    fn talk_about_panics_is_none() {
        let mut scanner = PanicScanner::default();
        assert!(!scanner.scan(b"Kernel command line: panic=-1\nkernel panic - not syncing\n"));
    }

    proptest! {
        #[test]
        fn it_agrees_with_searching_the_whole(
            pieces in prop::collection::vec(
                prop_oneof![
                    Just(&b"Kernel panic - not syncing"[..]),
                    Just(&b"Kernel panic"[..]), Just(&b" - not syncing"[..]), Just(&b"K"[..]),
                ],
                0..6,
            ),
        ) {
            let whole = pieces.concat();
            let right = whole.windows(PANIC.len()).any(|window| window == PANIC);
            let mut scanner = PanicScanner::default();
            let found = pieces.iter().fold(false, |found, piece| scanner.scan(piece) | found);
            prop_assert_eq!(found, right);
        }
    }
}
