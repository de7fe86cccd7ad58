//! What the demo must show, checked: a table of wrong figures exits with an error.

use super::machine::{Figures, Machine};

/// Of the pages reported and allocated again, the share that must be skipped.
const MUST_SKIP_PERCENT: f64 = 95.0;

/// What does not hold, each in one line; empty if the loop works.
pub(crate) fn complaints(machine: &Machine, figures: &Figures) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            wrong.push(format!("{machine}: {what}"));
        }
    };

    for (name, thp) in [
        ("THP", &figures.thp),
        ("THP with the verifier on", &figures.verified_thp),
    ] {
        let skipped = percent(thp.skipped, thp.pages);
        if machine.optimized {
            must(
                skipped >= MUST_SKIP_PERCENT,
                format!("{name}: {skipped:.1} % skipped"),
            );
        } else {
            must(
                thp.skipped == 0,
                format!("{name}: {skipped:.1} % skipped without bit 6"),
            );
        }
    }
    must(
        figures.mismatches == 0,
        format!("{} pages were not zero", figures.mismatches),
    );

    let flush = figures.flush;
    must(flush.zeroed > 0, "nothing was zeroed".to_owned());
    if machine.on_report == "discard" {
        must(flush.released > 0, "nothing was released".to_owned());
        // The guest runs on while it flushes, and may take a page or two back.
        let kept_back = i64::try_from(flush.released).unwrap_or(i64::MAX) - flush.pool_growth;
        must(
            (0..=16 << 20).contains(&kept_back),
            format!(
                "released {}, but the pool grew by {}",
                flush.released, flush.pool_growth
            ),
        );
    } else {
        must(flush.released == 0, format!("{} released", flush.released));
        must(
            flush.pool_growth == 0,
            format!("the pool grew by {}", flush.pool_growth),
        );
    }
    wrong
}

/// `part` of `whole` in percent; 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    // Page counts are far below 2^52, where an f64 stops being exact.
    #[expect(clippy::cast_precision_loss)]
    let share = part as f64 / whole as f64;
    share * 100.0
}
