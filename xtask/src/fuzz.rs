//! `cargo xtask fuzz`: hostile input, guided by coverage, for a bounded time.
//!
//! The targets are functions of the package `fuzz`; here they are compiled with
//! the coverage pass of LLVM, which a stable compiler has, and driven by
//! libFuzzer.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use vmm::config::keys::KEYS;

use crate::Failure;
use crate::command::{cargo_showing, root, run, say};
use crate::packages;

/// What libFuzzer needs to see of a program (clang's SanitizerCoverage): which
/// edges were taken how often, and what was compared with what. The static
/// linking of this workspace is not asked for: libFuzzer looks symbols up.
const COVERAGE: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    --cfg fuzzing";

/// Bounds of one input: its length in bytes, its time in seconds, and the
/// memory of the program in MiB, which shows leaks.
const BOUNDS: [&str; 4] = [
    "-max_len=1024",
    "-len_control=20",
    "-timeout=10",
    "-rss_limit_mb=512",
];

/// Options of `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this target (a folder of fuzz/corpus)
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// How long each target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u32,
    /// Afterwards, add the inputs that reached new code to fuzz/corpus
    #[arg(long)]
    keep: bool,
}

/// Runs the targets one after the other; fails on a finding, and keeps its input.
pub(crate) fn fuzz(options: &Options) -> Result<(), Failure> {
    packages::install_missing()?;
    let targets: Vec<_> = targets()?
        .into_iter()
        .filter(|name| options.target.as_ref().is_none_or(|only| only == name))
        .collect();
    if targets.is_empty() {
        let all: Vec<_> = self::targets()?.into_iter().collect();
        return Err(format!("no such target; there are: {}", all.join(", ")).into());
    }
    build()?;
    let mut results = Vec::new();
    for target in &targets {
        let target = Target::new(target)?;
        results.push(target.run(options.seconds)?);
        if options.keep {
            target.keep()?;
        }
    }
    println!("{}", table(&results));
    let findings: Vec<_> = results.iter().filter_map(|r| r.finding.clone()).collect();
    if findings.is_empty() {
        return Ok(());
    }
    Err(format!(
        "findings:\n{}\nto see one again, move its input to fuzz/corpus/TARGET/ \
         and run: cargo test -p fuzz",
        findings.join("\n")
    )
    .into())
}

/// All targets for a little while, `seconds` in total.
pub(crate) fn briefly(seconds: u32) -> Result<(), Failure> {
    let count = u32::try_from(targets()?.len())?;
    say(&format!("fuzzing for {seconds} s"));
    fuzz(&Options {
        target: None,
        seconds: (seconds / count).max(1),
        keep: false,
    })
}

/// The targets by name: each has a folder of seeds.
fn targets() -> Result<BTreeSet<String>, Failure> {
    let folders = fs::read_dir(corpus())?;
    folders
        .map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn corpus() -> PathBuf {
    root().join("fuzz/corpus")
}

/// Where the instrumented programs are built, and what fuzzing leaves behind.
fn out() -> PathBuf {
    root().join("target/fuzz")
}

fn build() -> Result<(), Failure> {
    say("building the fuzz targets");
    run(cargo_showing("build")
        .args(["-p", "fuzz", "--bins", "--features", "libfuzzer"])
        .args(["--profile", "fuzz", "--target-dir"])
        .arg(out())
        .env("RUSTFLAGS", COVERAGE))
}

struct Target {
    name: String,
    program: PathBuf,
    /// Inputs in the tree.
    seeds: PathBuf,
    /// Inputs found here, now or earlier.
    found: PathBuf,
    findings: PathBuf,
    log: PathBuf,
}

/// What one run of a target came to.
struct Fuzzed {
    name: String,
    progress: Progress,
    inputs: usize,
    finding: Option<String>,
}

impl Target {
    fn new(name: &str) -> Result<Self, Failure> {
        let target = Self {
            name: name.to_owned(),
            program: out().join(format!("x86_64-unknown-linux-gnu/fuzz/fuzz-{name}")),
            seeds: corpus().join(name),
            found: out().join("found").join(name),
            findings: out().join("findings").join(name),
            log: out().join(format!("{name}.log")),
        };
        fs::create_dir_all(&target.found)?;
        fs::create_dir_all(&target.findings)?;
        Ok(target)
    }

    fn run(&self, seconds: u32) -> Result<Fuzzed, Failure> {
        say(&format!("fuzzing {} for {seconds} s", self.name));
        let dictionary = out().join("words.dict");
        fs::write(&dictionary, words())?;
        let mut fuzzer = std::process::Command::new(&self.program);
        fuzzer
            .args(BOUNDS)
            .arg(format!("-max_total_time={seconds}"))
            // A folder, so it ends with a slash.
            .arg(format!("-artifact_prefix={}/", self.findings.display()))
            .args([&self.found, &self.seeds])
            .stderr(File::create(&self.log)?)
            .current_dir(root());
        if self.name == "config_file" {
            fuzzer.arg(format!("-dict={}", dictionary.display()));
        }
        let ended = fuzzer.status()?;
        let log = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        let finding = (!ended.success()).then(|| {
            format!(
                "{}: {} (log: {})",
                self.name,
                described(&log).unwrap_or_else(|| ended.to_string()),
                self.log.display()
            )
        });
        Ok(Fuzzed {
            name: self.name.clone(),
            progress: Progress::of(&log),
            inputs: files(&self.found)?.len() + files(&self.seeds)?.len(),
            finding,
        })
    }

    /// Copies what reaches edges that the inputs in the tree do not.
    fn keep(&self) -> Result<(), Failure> {
        run(std::process::Command::new(&self.program)
            .args(["-set_cover_merge=1", "-use_counters=0"])
            .args(BOUNDS)
            .args([&self.seeds, &self.found])
            .stderr(File::create(self.log.with_extension("keep.log"))?))
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder)?;
    Ok(entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?)
}

/// Every key and table of a configuration as a libFuzzer dictionary.
fn words() -> String {
    let mut words = BTreeSet::new();
    for key in KEYS {
        let (table, leaf) = key.name.split_once('.').unwrap_or(("", key.name));
        words.insert(format!("\\x0a[{table}]\\x0a"));
        words.insert(format!("\\x0a{leaf} = "));
        words.insert(format!("\\x00{}=", key.name));
        let quoted = key.expected.split('"').skip(1).step_by(2);
        words.extend(quoted.map(|value| format!("\\\"{value}\\\"")));
    }
    words.iter().map(|word| format!("\"{word}\"\n")).collect()
}

/// The panic, or libFuzzer's own words, and the input.
fn described(log: &str) -> Option<String> {
    let mut lines = log.lines();
    let panic = lines
        .by_ref()
        .find(|line| line.contains("panicked at"))
        .and_then(|at| Some(format!("{} {}", at, lines.next()?)));
    let summary = || log.lines().find(|line| line.starts_with("SUMMARY"));
    let what = panic.or_else(|| summary().map(str::to_owned))?;
    let input = log.split("Test unit written to ").nth(1)?.lines().next()?;
    Some(format!("{what}; input: {input}"))
}

/// What libFuzzer reported while it ran.
#[derive(Debug, Default, PartialEq, Eq)]
struct Progress {
    executions: u64,
    per_second: u64,
    /// Edges reached by the inputs there were, and at the end.
    edges: (u64, u64),
    /// Edges of the whole program.
    edges_total: u64,
}

impl Progress {
    fn of(log: &str) -> Self {
        let number_after = |line: &str, word: &str| {
            let mut words = line.split_whitespace();
            words.find(|w| *w == word)?;
            words.next()?.parse().ok()
        };
        let mut progress = Self::default();
        for line in log.lines() {
            if let Some(rest) = line.strip_prefix("INFO: Loaded 1 PC tables (") {
                let count = rest.split_whitespace().next();
                progress.edges_total = count.and_then(|n| n.parse().ok()).unwrap_or(0);
            }
            let executed = line.strip_prefix('#').and_then(|rest| {
                let (number, _) = rest.split_once(|c: char| !c.is_ascii_digit())?;
                number.parse().ok()
            });
            let (Some(executed), Some(edges)) = (executed, number_after(line, "cov:")) else {
                continue;
            };
            progress.executions = executed;
            progress.per_second = number_after(line, "exec/s:").unwrap_or(0);
            if line.contains("INITED") {
                progress.edges.0 = edges;
            }
            progress.edges.1 = edges;
        }
        progress
    }
}

fn table(results: &[Fuzzed]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header([
        "target",
        "executions",
        "per second",
        "edges at start",
        "at the end",
        "of",
        "inputs",
        "finding",
    ]);
    for Fuzzed {
        name,
        progress,
        inputs,
        finding,
    } in results
    {
        table.add_row([
            name.clone(),
            progress.executions.to_string(),
            progress.per_second.to_string(),
            progress.edges.0.to_string(),
            progress.edges.1.to_string(),
            progress.edges_total.to_string(),
            inputs.to_string(),
            if finding.is_some() { "yes" } else { "none" }.to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
INFO: Loaded 1 modules   (6301 inline 8-bit counters): 6301 [0x5, 0x6),
INFO: Loaded 1 PC tables (6301 PCs): 6301 [0x5,0x6),
#342\tINITED cov: 1875 ft: 5043 corp: 283/2448b exec/s: 0 rss: 29Mb
#512\tNEW    cov: 1880 ft: 5050 corp: 284/2460b lim: 17 exec/s: 512 rss: 29Mb L: 12/12 MS: 1 ChangeByte-
#5000\tDONE   cov: 1948 ft: 5757 corp: 382/4277b lim: 21 exec/s: 2500 rss: 31Mb
";

    #[test]
    fn what_libfuzzer_reports_is_understood() {
        let progress = Progress {
            executions: 5000,
            per_second: 2500,
            edges: (1875, 1948),
            edges_total: 6301,
        };
        assert_eq!(Progress::of(LOG), progress);
        assert_eq!(Progress::of("nothing of it"), Progress::default());
    }

    #[test]
    fn a_finding_is_described_by_its_panic_and_its_input() {
        let log = "\
thread '<unnamed>' (8157) panicked at fuzz/src/session.rs:3:128:
head completed
==8157== ERROR: libFuzzer: deadly signal
SUMMARY: libFuzzer: deadly signal
artifact_prefix='./'; Test unit written to ./crash-f4a5
Base64: eFY0Enplcm8AAAAAAA==
";
        let described = described(log).unwrap();
        for part in ["session.rs:3", "head completed", "./crash-f4a5"] {
            assert!(described.contains(part), "{part} in {described}");
        }
        let timeout = "SUMMARY: libFuzzer: timeout\nTest unit written to ./timeout-1\n";
        let described = self::described(timeout).unwrap();
        assert!(described.contains("timeout") && described.contains("./timeout-1"));
        assert_eq!(self::described("all is well"), None);
    }

    #[test]
    fn the_dictionary_has_every_key_and_no_stray_quote() {
        let words = words();
        for word in ["\\x00memory.page=", "\\x0apage = ", "\\x0a[memory]\\x0a"] {
            assert!(words.contains(word), "{word}");
        }
        for line in words.lines() {
            let inner = line.strip_prefix('"').and_then(|l| l.strip_suffix('"'));
            let inner = inner.unwrap().replace("\\\"", "");
            assert!(!inner.contains('"'), "{line}");
        }
    }
}
