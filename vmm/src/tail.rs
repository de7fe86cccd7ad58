//! The last lines of an endless text.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much is kept.
const BYTES: usize = 16 << 10;
/// QEMU says this of each feature of the CPU model it cannot emulate, at each start.
const USUAL: &str = "TCG doesn't support requested feature";

/// Keeps the end of a text, for the day something breaks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Adds text and drops the oldest above the bound.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        let bytes = bytes
            .get(bytes.len().saturating_sub(BYTES)..)
            .unwrap_or_default();
        let excess = (kept.len() + bytes.len()).saturating_sub(BYTES);
        kept.drain(..excess);
        kept.extend(bytes);
    }

    /// Reads to the end, so that the writer never waits.
    pub(crate) fn drain(&self, mut from: impl Read) {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            self.push(chunk.get(..length).unwrap_or_default());
        }
    }

    /// The lines that say something, without control characters.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text: Vec<u8> = self.lock().iter().copied().collect();
        String::from_utf8_lossy(&text)
            .lines()
            .map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>())
            .filter(|line| !line.trim().is_empty() && !line.contains(USUAL))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_the_memory_is_bounded() {
        let tail = Tail::default();
        for line in 0..10_000 {
            tail.push(format!("line {line}\r\n\r\n").as_bytes());
        }
        tail.push(b"qemu: warning: TCG doesn't support requested feature: CPUID.0DH:EAX.xsaves\n");
        tail.push(b"\x1b[31mpanic");
        assert!(tail.lines().ends_with(&[
            "line 9998".into(),
            "line 9999".into(),
            "[31mpanic".into()
        ]));
        assert!(tail.lock().len() <= BYTES);
        tail.push(&[b'x'; 3 * BYTES]);
        assert_eq!(tail.lock().len(), BYTES);
    }
}
