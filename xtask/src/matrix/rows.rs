//! What the series is run under.

/// One configuration of the kernel, and what has to come of it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Fragments of `guest-kernel/config/optional`.
    pub(crate) with: &'static [&'static str],
    /// Words for the kernel.
    pub(crate) cmdline: &'static str,
    /// Overrides of the guest's configuration.
    pub(crate) sets: &'static [&'static str],
    pub(crate) expect: Expect,
    pub(crate) work: Work,
}

/// What becomes of clearing 256 MiB after a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// At least 95 % of it is skipped.
    Skipped,
    /// None is: the feature has to stay off, or clears nothing to begin with.
    Nothing,
}

/// What the guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Huge pages, and stress with the balloon coming and going.
    Whole,
    /// The same without what a kernel lacks: huge pages.
    Small,
    /// Only the share.
    Share,
}

const VERIFY: &str = "page_zeroed.verify=1";

const fn row(name: &'static str, with: &'static [&'static str], cmdline: &'static str) -> Row {
    Row {
        name,
        with,
        cmdline,
        sets: &[],
        expect: Expect::Skipped,
        work: Work::Whole,
    }
}

const fn nothing(row: Row) -> Row {
    Row {
        expect: Expect::Nothing,
        ..row
    }
}

const fn with_sets(row: Row, sets: &'static [&'static str]) -> Row {
    Row { sets, ..row }
}

const fn work(row: Row, work: Work) -> Row {
    Row { work, ..row }
}

/// All rows; those of one kernel beside each other.
pub(crate) const ROWS: &[Row] = &[
    row("1 CPU", &[], VERIFY),
    with_sets(row("2 CPUs", &[], VERIFY), &["cpus.count=2"]),
    with_sets(row("8 CPUs", &[], VERIFY), &["cpus.count=8"]),
    with_sets(row("2 CPUs, not verified", &[], ""), &["cpus.count=2"]),
    nothing(row(
        "page_zeroed.off=1",
        &[],
        "page_zeroed.verify=1 page_zeroed.off=1",
    )),
    nothing(with_sets(
        row("no bit 6", &[], VERIFY),
        &["balloon.device_init_reported=false"],
    )),
    work(
        row(
            "reporting order 0",
            &[],
            "page_zeroed.verify=1 page_reporting.page_reporting_order=0",
        ),
        Work::Share,
    ),
    work(
        row(
            "reporting order 1",
            &[],
            "page_zeroed.verify=1 page_reporting.page_reporting_order=1",
        ),
        Work::Share,
    ),
    work(
        row(
            "reporting order 3",
            &[],
            "page_zeroed.verify=1 page_reporting.page_reporting_order=3",
        ),
        Work::Share,
    ),
    work(
        row(
            "reporting order 5",
            &[],
            "page_zeroed.verify=1 page_reporting.page_reporting_order=5",
        ),
        Work::Share,
    ),
    work(
        row(
            "reporting order 7",
            &[],
            "page_zeroed.verify=1 page_reporting.page_reporting_order=7",
        ),
        Work::Share,
    ),
    row(
        "reporting order 9",
        &[],
        "page_zeroed.verify=1 page_reporting.page_reporting_order=9",
    ),
    // DEBUG_VM with page flag checks, lockdep, page owner, poisoning, pagealloc.
    row("debug", &["debug"], VERIFY),
    row("debug, not verified", &["debug"], ""),
    nothing(row(
        "page_poison=1",
        &["debug"],
        "page_zeroed.verify=1 page_poison=1",
    )),
    nothing(row(
        "page_poison=1, not verified",
        &["debug"],
        "page_poison=1",
    )),
    row(
        "init_on_alloc=1",
        &["debug"],
        "page_zeroed.verify=1 init_on_alloc=1",
    ),
    row(
        "init_on_alloc=1, not verified",
        &["debug"],
        "init_on_alloc=1",
    ),
    // Everything is cleared when it is freed: there is nothing to skip.
    nothing(row(
        "init_on_free=1",
        &["debug"],
        "page_zeroed.verify=1 init_on_free=1",
    )),
    nothing(row(
        "init_on_alloc=1 init_on_free=1",
        &["debug"],
        "page_zeroed.verify=1 init_on_alloc=1 init_on_free=1",
    )),
    row(
        "debug_pagealloc=on, guard pages",
        &["debug"],
        "page_zeroed.verify=1 debug_pagealloc=on debug_guardpage_minorder=1",
    ),
    row(
        "page_owner=on",
        &["debug"],
        "page_zeroed.verify=1 page_owner=on",
    ),
    row("KASAN (generic)", &["kasan"], VERIFY),
    with_sets(
        row(
            "NUMA, 2 fake nodes",
            &["numa"],
            "page_zeroed.verify=1 numa=fake=2",
        ),
        &["cpus.count=2"],
    ),
    with_sets(
        row(
            "preempt=full",
            &["numa"],
            "page_zeroed.verify=1 preempt=full",
        ),
        &["cpus.count=2"],
    ),
    with_sets(
        row(
            "preempt=lazy",
            &["numa"],
            "page_zeroed.verify=1 preempt=lazy",
        ),
        &["cpus.count=2"],
    ),
    work(row("no huge pages", &["no-huge"], VERIFY), Work::Small),
    nothing(work(
        row("no page reporting", &["no-reporting"], ""),
        Work::Share,
    )),
    row("balloon driver as a module", &["module"], VERIFY),
];
