//! Every input kept in `corpus/` again: the seeds, and what once was a finding.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No input keeps the device busy for longer, on a plain build.
const LONGEST: Duration = Duration::from_secs(10);

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let entries = fs::read_dir(folder.join(target)).expect("a folder for each target");
    let mut inputs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs
}

#[test]
fn no_input_of_the_corpus_is_a_finding() {
    for (name, target) in fuzz::TARGETS {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "{name} has no inputs");
        for input in inputs {
            let data = fs::read(&input).unwrap();
            let begun = Instant::now();
            let done = catch_unwind(AssertUnwindSafe(|| target(&data)));
            assert!(done.is_ok(), "finding in {}", input.display());
            assert!(begun.elapsed() < LONGEST, "slow: {}", input.display());
        }
    }
}
