//! Another program of the initrd.

use std::process::Command;

use rustix::time::ClockId;

use crate::failure::StepError;
use crate::lines::ExecLine;
use crate::measure::perf::now_ns;

/// Bytes of its output that are reported, from the end.
const REPORTED: usize = 512;

/// Runs it to its end; one that does not exit with 0 has failed.
pub(crate) fn exec(words: &[String]) -> Result<ExecLine, StepError> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| StepError::Missing("program".to_owned()))?;
    let start = now_ns(ClockId::Monotonic);
    let ended = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|source| StepError::File {
            action: "run",
            path: program.clone(),
            source,
        })?;
    let mut said = ended.stdout;
    said.extend_from_slice(&ended.stderr);
    let said = String::from_utf8_lossy(&said);
    let said = said.trim();
    let mut from = said.len().saturating_sub(REPORTED);
    while !said.is_char_boundary(from) {
        from += 1;
    }
    let output = said.get(from..).unwrap_or_default().to_owned();
    if !ended.status.success() {
        return Err(StepError::Exec {
            program: program.clone(),
            status: ended.status,
            output,
        });
    }
    Ok(ExecLine {
        program: program.clone(),
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<ExecLine, StepError> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        exec(&words)
    }

    #[test]
    fn what_a_program_said_and_how_it_ended() {
        assert_eq!(run(&["echo", "a", "b"]).unwrap().output, "a b");
        let error = run(&["sh", "-c", "echo why; exit 3"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh") && error.contains('3') && error.contains("why"),
            "{error}"
        );
        assert!(run(&["/nonexistent"]).is_err());
    }
}
