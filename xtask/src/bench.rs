//! `cargo xtask bench`: what the device costs on real huge pages, and the goals.

use std::fs;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde::Deserialize;

use crate::Failure;
use crate::command::{cargo, root, say};

/// Exit code of a bench that cannot run here, having said why.
pub(crate) const SKIPPED: u8 = 77;
/// What is worked on at a time, in bytes.
const BLOCK: f64 = 2.0 * 1024.0 * 1024.0;

/// A figure of the device beside the limit measured in the same run.
struct Figure {
    /// Criterion's group.
    group: &'static str,
    /// What it is, for people.
    what: &'static str,
    unit: Unit,
    /// How much longer than the limit it may take.
    goal: Option<f64>,
}

#[derive(Clone, Copy)]
enum Unit {
    /// Nanoseconds per block.
    Block,
    /// Gigabytes per second.
    Rate,
    /// Page numbers per second.
    Pages,
}

const FIGURES: &[Figure] = &[
    Figure {
        group: "discard",
        what: "report of scattered 2M blocks, discarded; madvise",
        unit: Unit::Block,
        goal: Some(1.15),
    },
    Figure {
        group: "discard_adjacent",
        what: "report of adjacent 2M blocks, discarded; one madvise",
        unit: Unit::Block,
        goal: None,
    },
    Figure {
        group: "discard_shared",
        what: "report of scattered 2M blocks, shared; hole punch",
        unit: Unit::Block,
        goal: None,
    },
    Figure {
        group: "zero",
        what: "report zeroed in place; streaming stores",
        unit: Unit::Rate,
        // 0.95 times as fast.
        goal: Some(1.0 / 0.95),
    },
    Figure {
        group: "inflate",
        what: "inflate of 2M pages by 256 page numbers, discarded",
        unit: Unit::Pages,
        goal: None,
    },
];

/// Runs the bench and prints each figure with its limit; fails if a goal is
/// missed. `Ok(false)` where it cannot run, for a reason that was given.
pub(crate) fn bench() -> Result<bool, Failure> {
    say("measuring on huge pages (criterion)");
    let status = cargo()
        .args(["bench", "-p", "benches", "--bench", "huge_pages"])
        .status()?;
    if status.code() == Some(SKIPPED.into()) {
        return Ok(false);
    }
    if !status.success() {
        return Err(format!("the bench failed: {status}").into());
    }
    let mut table = Table::new();
    table
        .load_preset(UTF8_BORDERS_ONLY)
        .set_header(["", "device", "limit", "memset", "time", "goal", ""]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut missed = Vec::new();
    for figure in FIGURES {
        let device = median(figure.group, "device").ok_or("a bench without a result")?;
        let limit = median(figure.group, "bare");
        let ratio = limit.map(|limit| device / limit);
        let met = ratio.zip(figure.goal).map(|(ratio, goal)| ratio <= goal);
        if met == Some(false) {
            missed.push(figure.what);
        }
        let show = |time: Option<f64>| time.map_or(String::new(), |time| figure.unit.show(time));
        table.add_row([
            figure.what.to_owned(),
            figure.unit.show(device),
            show(limit),
            show(median(figure.group, "memset")),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.2} x")),
            figure
                .goal
                .map_or(String::new(), |goal| format!("{goal:.2} x")),
            match met {
                Some(true) => "met",
                Some(false) => "missed",
                None => "",
            }
            .to_owned(),
        ]);
    }
    println!("{table}");
    if missed.is_empty() {
        return Ok(true);
    }
    Err(format!("missed: {}", missed.join("; ")).into())
}

impl Unit {
    /// A time per block or page number, in nanoseconds.
    fn show(self, nanoseconds: f64) -> String {
        match self {
            Self::Block => format!("{nanoseconds:.0} ns"),
            Self::Rate => format!("{:.1} GB/s", BLOCK / nanoseconds),
            Self::Pages => format!("{:.1} M/s", 1000.0 / nanoseconds),
        }
    }
}

/// What criterion keeps of a measurement (estimates.json), in nanoseconds.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

fn median(group: &str, function: &str) -> Option<f64> {
    let file = root().join(format!(
        "target/criterion/{group}/{function}/new/estimates.json"
    ));
    let estimates: Estimates = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some(estimates.median.point_estimate)
}

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn figures_are_shown_in_their_units() {
        assert_eq!(Unit::Block.show(1894.4), "1894 ns");
        // 2 MiB in 40 us.
        assert_eq!(Unit::Rate.show(40_000.0), "52.4 GB/s");
        assert_eq!(Unit::Pages.show(25.0), "40.0 M/s");
    }
}
