//! The guest reports, the host zeroes, the guest skips: with bit 6 and without.

use crate::lab::{Lab, Ran, percent_skipped};
use crate::{Case, Failure};

const STEPS: &str = "dirty=128M,thp flush populate=128M,thp,check \
                     verify=on flush populate=128M,thp,check flush populate=32M,small,check";

/// A row of the table: what backs the guest, and what the host does with a report.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    sets: &'static [&'static str],
    /// Whether reported memory goes back to the host.
    releases: bool,
    /// The page whose pool must grow by what is released, if it is one.
    pool_page: Option<u64>,
}

const ROWS: &[Row] = &[
    Row {
        name: "hugetlb_2m_discard",
        sets: &["memory.size=2G", "memory.page=2M"],
        releases: true,
        pool_page: Some(2 << 20),
    },
    Row {
        name: "hugetlb_2m_shared_discard",
        sets: &["memory.size=1G", "memory.page=2M", "memory.shared=true"],
        releases: true,
        pool_page: Some(2 << 20),
    },
    Row {
        name: "hugetlb_2m_zero",
        sets: &["memory.size=1G", "memory.page=2M", "balloon.on_report=zero"],
        releases: false,
        pool_page: Some(2 << 20),
    },
    Row {
        name: "hugetlb_1g_zero",
        sets: &["memory.size=2G", "memory.page=1G", "balloon.on_report=zero"],
        releases: false,
        pool_page: Some(1 << 30),
    },
    Row {
        // A report covers part of a 1G page: it cannot be discarded.
        name: "hugetlb_1g_discard",
        sets: &["memory.size=1G", "memory.page=1G"],
        releases: false,
        pool_page: Some(1 << 30),
    },
    Row {
        name: "thp_discard",
        sets: &["memory.size=1G", "memory.backing=thp"],
        releases: true,
        pool_page: None,
    },
    Row {
        name: "pages_discard",
        sets: &["memory.size=1G", "memory.backing=pages"],
        releases: true,
        pool_page: None,
    },
];

/// Rows of which a usual run has the baseline, too.
const BASELINES: [&str; 2] = ["hugetlb_2m_discard", "hugetlb_1g_zero"];

pub(crate) fn cases() -> Vec<Case> {
    let both = ROWS.iter().flat_map(|row| [(row, false), (row, true)]);
    let mut cases: Vec<_> = both
        .map(|(row, bit6)| {
            let with = if bit6 {
                "skips_with_bit_6"
            } else {
                "clears_without_bit_6"
            };
            let case = Case::new(format!("loop::{}_{with}", row.name), move |lab| {
                row.holds(lab, bit6)
            });
            // Without bit 6 the guest does the same on all of them.
            let usual = bit6 || BASELINES.contains(&row.name);
            if usual { case } else { case.long() }
        })
        .collect();
    cases.push(Case::new(
        "loop::keep_promises_nothing",
        keep_promises_nothing,
    ));
    cases.push(Case::new(
        "loop::a_host_that_lies_is_caught",
        a_liar_is_caught,
    ));
    cases.push(Case::new("loop::kill_switch_clears_all", kill_switch));
    cases.push(Case::new(
        "reporting::a_remainder_is_not_reported_again",
        a_remainder_is_not_reported_again,
    ));
    cases
}

impl Row {
    fn holds(&self, lab: &Lab, bit6: bool) -> Result<(), Failure> {
        let offer = format!("balloon.device_init_reported={bit6}");
        let mut sets = self.sets.to_vec();
        sets.push(&offer);
        let ran = lab.run(STEPS, &sets)?;
        ran.exits(0)?;

        let offered = &ran.results.features.offered;
        let name = "DEVICE_INIT_REPORTED";
        assert_eq!(
            offered.iter().any(|feature| feature.contains(name)),
            bit6,
            "{offered:?}"
        );

        self.flush_is_counted(&ran, bit6)?;
        for line in ran.lines("populate") {
            let populate = &line.line;
            let skipped = percent_skipped(populate)?;
            let thp = populate["kind"] == "thp";
            match bit6 {
                false => assert_eq!(skipped, 0.0, "skipped without bit 6: {populate}"),
                true if thp => assert!(skipped >= 95.0, "{skipped:.1} % skipped: {populate}"),
                true => assert!(skipped > 0.0, "no 4 KiB page was skipped: {populate}"),
            }
            assert_eq!(
                populate["check"]["nonzero_bytes"], 0,
                "fresh memory was not zero: {populate}"
            );
        }
        let exit = ran.lines("exit");
        assert_eq!(
            exit[0].line["pgzero_bad"], 0,
            "the verifier found a mismatch"
        );
        Ok(())
    }

    /// Around the first flush: all that was dirty is reported and zeroed, and goes
    /// back to the host or does not. Without bit 6 nothing is cleared only to be
    /// told: what a discard cannot give back stays as it is.
    fn flush_is_counted(&self, ran: &Ran, bit6: bool) -> Result<(), Failure> {
        const DIRTY: u64 = 128 << 20;
        let lines = &ran.results.guest;
        let at = lines
            .iter()
            .position(|line| line.line["type"] == "flush")
            .ok_or("no flush")?;
        let (before, after) = (&lines[at - 1], &lines[at]);
        let reported = after.counters.reported_bytes - before.counters.reported_bytes;
        let zeroed = after.counters.zeroed_bytes - before.counters.zeroed_bytes;
        let released = after.counters.released_bytes - before.counters.released_bytes;

        // Background reporting may have taken some of it before the flush did.
        let in_all = after.counters.reported_bytes;
        assert!(in_all >= DIRTY, "reported only {in_all} of {DIRTY}");
        let in_place = self.sets.contains(&"balloon.on_report=zero");
        let wanted = if bit6 || in_place { reported } else { released };
        assert_eq!(
            zeroed, wanted,
            "of {reported} reported and {released} released"
        );
        if !self.releases {
            assert_eq!(after.counters.released_bytes, 0, "nothing can go back");
        } else {
            assert!(released > 0, "nothing went back");
        }
        if let Some(page) = self.pool_page {
            let free = |line: &vmm::results::GuestLine| line.pool_free_pages.ok_or("no pool");
            let grown = free(after)?.saturating_sub(free(before)?) * page;
            // The guest runs on while it flushes, and may take a few pages back.
            let back = released.checked_sub(grown).ok_or("the pool grew by more")?;
            assert!(
                back <= 16 << 20,
                "released {released}, the pool grew by {grown}"
            );
        }
        Ok(())
    }
}

fn keep_promises_nothing(lab: &Lab) -> Result<(), Failure> {
    let ran = lab.run(STEPS, &["memory.size=1G", "balloon.on_report=keep"])?;
    ran.exits(0)?;
    let counters = ran.results.counters;
    assert!(counters.reported_bytes > 0, "it counts what is reported");
    assert_eq!(
        (
            counters.zeroed_bytes,
            counters.released_bytes,
            counters.promised_bytes
        ),
        (0, 0, 0)
    );
    for line in ran.lines("populate") {
        let populate = &line.line;
        assert_eq!(percent_skipped(populate)?, 0.0, "{populate}");
    }
    Ok(())
}

/// The device claims zero and zeroes nothing: the verifier counts it, the guest's
/// programs see zeros all the same, and the run says so in its exit code.
fn a_liar_is_caught(lab: &Lab) -> Result<(), Failure> {
    let steps = "verify=on dirty=128M,thp flush populate=128M,thp,check";
    let mut config = lab.config(steps, &["memory.size=1G"])?;
    config.balloon.lie_about_zero = true;
    let ran = lab.run_config(&config)?;
    ran.exits(69)?;
    let populate = &ran.lines("populate")[0].line;
    assert_eq!(
        populate["check"]["nonzero_bytes"], 0,
        "the guest must see zeros: {populate}"
    );
    assert!(ran.lines("exit")[0].line["pgzero_bad"].as_u64() > Some(0));
    assert!(
        ran.console.contains("not zero"),
        "the kernel must warn:\n{}",
        ran.console
    );
    Ok(())
}

/// `page_zeroed.off` gives the old behaviour back while bit 6 is on.
fn kill_switch(lab: &Lab) -> Result<(), Failure> {
    let steps = "dirty=128M,thp off=on flush populate=128M,thp,check";
    let ran = lab.run(steps, &["memory.size=1G"])?;
    ran.exits(0)?;
    let populate = &ran.lines("populate")[0].line;
    assert_eq!(percent_skipped(populate)?, 0.0, "{populate}");
    Ok(())
}

/// One huge page out of a block of 4 MiB that is reported: the other half still is.
fn a_remainder_is_not_reported_again(lab: &Lab) -> Result<(), Failure> {
    let ran = lab.run("dirty=64M,thp flush flush fill=2M,thp flush", &[])?;
    ran.exits(0)?;
    let flushes = ran.lines("flush");
    let reported = |at: usize| -> Result<u64, Failure> {
        let pages = flushes
            .get(at)
            .and_then(|flush| flush.line["pages_reported"].as_u64());
        pages.ok_or_else(|| "no flush".into())
    };
    assert!(reported(0)? > 0, "nothing was reported");
    // One block of 2 MiB comes back from elsewhere: allocating takes page tables, too.
    let again = reported(2)?;
    assert!(again <= 512, "{again} pages were reported again");
    Ok(())
}
