//! What the series costs where no device offers the features: the same allocations on
//! the release as it is and on the patched kernel, in turn.

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;

use crate::Failure;
use crate::artifacts;
use crate::command::say;
use crate::guest::{Guest, Lab};
use crate::kernel;

/// Each is measured in every guest, after one that warms the host's memory up.
const KINDS: [&str; 3] = ["small", "mthp=64K", "thp"];
/// 97.5 % quantile of Student's t distribution for 29 degrees of freedom, and a little
/// too wide an interval for more.
const T: f64 = 2.045;

/// Measures `pairs` pairs, prints the difference with its confidence interval, and
/// fails if it is above 0 with confidence.
pub(super) fn cost(pairs: u32) -> Result<(), Failure> {
    if pairs < 30 {
        return Err("fewer than 30 pairs show nothing".into());
    }
    let artifacts = artifacts::build()?;
    let workshop = kernel::workshop()?;
    let patches = workshop.series().patches().len();
    let mut kernels = Vec::new();
    for (name, state) in [("bare", 0), ("patched", patches)] {
        say(&format!("building: {name}"));
        workshop.at(state)?;
        let built = workshop.build(&[])?;
        // Both states are built in one place.
        let kept = built.join(format!("bzImage-{name}"));
        std::fs::rename(built.join("bzImage"), &kept)?;
        kernels.push(kept);
    }
    let measured: Vec<_> = KINDS
        .iter()
        .map(|kind| format!("populate=64M,{kind}"))
        .collect();
    let steps = format!("populate=256M,thp {0} {0} {0}", measured.join(" "));
    let mut lab = Lab::start(&artifacts)?;
    let mut differences = vec![Vec::new(); KINDS.len()];
    for pair in 0..pairs {
        let mut times = Vec::new();
        for kernel in &kernels {
            let ran = lab.run(&Guest {
                kernel: kernel.clone(),
                cmdline: String::new(),
                steps: steps.clone(),
                sets: vec![
                    "memory.size=512M".to_owned(),
                    "balloon.reporting=false".to_owned(),
                ],
            })?;
            let lines = ran.results.guest.iter().map(|line| &line.line);
            times.push(
                KINDS
                    .map(|kind| {
                        let of_kind = lines.clone().filter(|line| {
                            line.get("kind").is_some_and(|is| is == kind)
                                && line.get("size_bytes").is_some_and(|size| *size == 64 << 20)
                        });
                        let clocks = of_kind.filter_map(|line| line.get("task_clock_ns")?.as_f64());
                        // The least disturbed one.
                        clocks.reduce(f64::min)
                    })
                    .to_vec(),
            );
        }
        let [bare, patched] = times.as_slice() else {
            continue;
        };
        for ((bare, patched), all) in bare.iter().zip(patched).zip(&mut differences) {
            // A guest that the emulator failed under has no time.
            if let Some((bare, patched)) = bare.zip(*patched) {
                all.push((patched - bare) / bare * 100.0);
            }
        }
        if pair % 10 == 9 {
            say(&format!("{} pairs of {pairs}", pair + 1));
        }
    }
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header([
        "64 MiB of",
        "pairs",
        "patched minus bare, %",
        "95 % interval",
    ]);
    let mut slower = Vec::new();
    for (kind, all) in KINDS.iter().zip(&differences) {
        let (mean, half) = interval(all).ok_or("no guest was measured")?;
        if mean - half > 0.0 {
            slower.push(*kind);
        }
        table.add_row([
            (*kind).to_owned(),
            all.len().to_string(),
            format!("{mean:+.2}"),
            format!("{:+.2} to {:+.2}", mean - half, mean + half),
        ]);
    }
    println!("{table}");
    if slower.is_empty() {
        return Ok(());
    }
    Err(format!("slower with confidence: {}", slower.join(", ")).into())
}

/// Mean and half the width of its 95 % confidence interval.
fn interval(all: &[f64]) -> Option<(f64, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "some tens of samples")]
    let count = all.len() as f64;
    if all.len() < 2 {
        return None;
    }
    let mean = all.iter().sum::<f64>() / count;
    let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
    Some((mean, T * (squares / (count - 1.0) / count).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_students_t() {
        // Mean 2, standard deviation 1, standard error 1 / sqrt(3).
        let (mean, half) = interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((mean - 2.0).abs() < 1e-9);
        assert!((half - T / 3f64.sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(interval(&[1.0]), None);
    }
}
