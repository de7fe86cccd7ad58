//! Builds the kernel as it is in the workshop and runs one test on it.

use std::fs;
use std::path::Path;

use super::list::Test;
use crate::Failure;
use crate::artifacts::{self, Artifacts, out};
use crate::command::cargo_showing;
use crate::guest::{Guest, Lab};
use crate::kernel::Workshop;
use crate::matrix;

/// What a kernel is built with here: it runs unit tests and boot tests alike.
const WITH: [&str; 1] = ["kunit"];

/// What came of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
}

/// Where kernels are built and tried.
pub(crate) struct Laboratory<'a> {
    workshop: &'a Workshop,
    artifacts: Artifacts,
}

impl<'a> Laboratory<'a> {
    pub(crate) fn new(workshop: &'a Workshop) -> Result<Self, Failure> {
        Ok(Self {
            workshop,
            artifacts: artifacts::build()?,
        })
    }

    /// Builds the kernel that a test needs from the workshop's source as it is now,
    /// and runs the test on it. A guest that does not get that far has failed it.
    pub(crate) fn run(&self, test: &Test) -> Result<Outcome, Failure> {
        match test {
            Test::Kunit(name) => self.kunit(&self.workshop.build(&WITH)?, name),
            Test::Boot(name) => self.boot(&self.workshop.build(&WITH)?, name),
            Test::Matrix(name) => {
                let row = matrix::row(name).ok_or("no such row")?;
                let built = self.workshop.build(row.with)?;
                let came = matrix::run(&self.artifacts, self.workshop, row, &built)?;
                Ok(match came {
                    Ok(_) => Outcome::Passed,
                    Err(_) => Outcome::Failed,
                })
            }
        }
    }

    fn kunit(&self, built: &Path, name: &str) -> Result<Outcome, Failure> {
        let mut lab = Lab::start(&self.artifacts)?;
        let ran = lab.run(&Guest {
            kernel: built.join("bzImage"),
            cmdline: format!("kunit.enable=1 kunit.filter_glob={name}"),
            steps: "poweroff".to_owned(),
            sets: vec!["memory.size=512M".to_owned()],
        })?;
        let case = name.rsplit('.').next().unwrap_or(name);
        Ok(match passed(&ran.console, case) {
            Some(true) if ran.results.exit_code == 0 => Outcome::Passed,
            _ => Outcome::Failed,
        })
    }

    /// On this kernel as a guest's; the host's is the one there always is.
    fn boot(&self, built: &Path, name: &str) -> Result<Outcome, Failure> {
        let artifacts = Artifacts {
            bzimage: built.join("bzImage"),
            vmlinux: built.join("vmlinux"),
            ..self.artifacts.clone()
        };
        let manifest = out().join("mutant.json");
        fs::write(&manifest, serde_json::to_string_pretty(&artifacts)?)?;
        let ended = cargo_showing("test")
            .args(["-p", "boot-tests", "--", "--include-ignored", "--exact"])
            .arg(name)
            .env("AEROSTAT_ARTIFACTS", &manifest)
            .output()?;
        let said = String::from_utf8_lossy(&ended.stdout);
        if !said.contains("running 1 test\n") {
            return Err(format!("there is no boot test {name}").into());
        }
        Ok(match ended.status.success() {
            true => Outcome::Passed,
            false => Outcome::Failed,
        })
    }
}

/// Whether a case passed, by KUnit's lines on the console: `ok 3 name` or
/// `not ok 3 name`.
fn passed(console: &str, case: &str) -> Option<bool> {
    console.lines().find_map(|line| {
        // Behind the kernel's time stamp, where there is one.
        let line = line.rsplit("] ").next().unwrap_or(line).trim();
        let (words, ok) = match line.strip_prefix("not ok ") {
            Some(rest) => (rest, false),
            None => (line.strip_prefix("ok ")?, true),
        };
        let mut words = words.split_whitespace();
        let _number = words.next()?;
        let skipped = line.contains("# SKIP");
        (words.next()? == case).then_some(ok && !skipped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kunits_lines_are_understood() {
        let console = "\
[    0.512345] KTAP version 1\n\
[    0.512345]     # Subtest: page_zeroed\r\n\
[    0.512345]     ok 1 split\r\n\
    not ok 2 merge\r\n\
    ok 3 gigantic # SKIP no memory\r\n\
ok 1 page_zeroed\n";
        assert_eq!(passed(console, "split"), Some(true));
        assert_eq!(passed(console, "merge"), Some(false));
        assert_eq!(passed(console, "gigantic"), Some(false));
        assert_eq!(passed(console, "other"), None);
    }
}
