//! What the series is run under.

/// One configuration of the kernel, and what has to come of it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Fragments of `guest-kernel/config/optional`.
    pub(crate) with: &'static [&'static str],
    /// Words for the kernel.
    pub(crate) cmdline: &'static str,
    /// Steps of the guest's init, ending with `info`.
    pub(crate) steps: &'static str,
    /// Overrides of the guest's configuration.
    pub(crate) sets: &'static [&'static str],
    pub(crate) expect: Expect,
}

/// What becomes of the clearing of the first memory that is populated after a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// At least 95 % of it is skipped.
    Skipped,
    /// None is: the feature has to stay off, or there is nothing to clear.
    Nothing,
    /// About half.
    Half,
    /// None is, and the verifier finds pages that are not zero.
    Caught,
}

/// Huge pages, stress with the balloon coming and going, single pages.
const WHOLE: &str = "dirty=256M,thp flush populate=256M,thp,check \
     stress=3,64M,12,balloon wait_balloon=0 dirty=64M,small flush populate=64M,small,check info";
/// The share alone.
const SHARE: &str = "dirty=128M,thp flush populate=128M,thp,check info";
/// Without huge pages: single ones come from remainders as well.
const SMALL: &str = "dirty=256M,small flush populate=32M,small,check \
     stress=3,64M,12,balloon wait_balloon=0 info";
/// To swap and back, with memory in between that another kernel's boot or the image's
/// reading has written to. Reporting by itself is put off: nothing else sets the mark.
const HIBERNATE: &str = "exec=/bin/busybox,mkswap,/dev/pmem0 exec=/bin/busybox,swapon,/dev/pmem0 \
     write=/sys/power/resume,/dev/pmem0 dirty=500M,thp \
     write=/sys/module/page_reporting/parameters/page_reporting_delay_ms,600000 flush \
     write=/sys/power/disk,test_resume write=/sys/power/state,disk populate=500M,thp,check info";

const fn row(name: &'static str, with: &'static [&'static str], cmdline: &'static str) -> Row {
    Row {
        name,
        with,
        cmdline,
        steps: WHOLE,
        sets: &[],
        expect: Expect::Skipped,
    }
}

/// The same on a machine with other settings.
const fn on(sets: &'static [&'static str], row: Row) -> Row {
    Row { sets, ..row }
}

/// The same, where something else has to come of it.
const fn expecting(expect: Expect, row: Row) -> Row {
    Row { expect, ..row }
}

/// The same, where nothing may be skipped.
const fn nothing(row: Row) -> Row {
    expecting(Expect::Nothing, row)
}

/// The same with other steps.
const fn doing(steps: &'static str, row: Row) -> Row {
    Row { steps, ..row }
}

const FAST: &[&str] = &[];
/// DEBUG_VM with page flag checks, lockdep, page owner, poisoning, pagealloc.
const DEBUG: &[&str] = &["debug"];
const TWO: &[&str] = &["cpus.count=2"];
const VERIFY: &str = "page_zeroed.verify=1";

/// All rows; those of one kernel beside each other.
pub(crate) const ROWS: &[Row] = &[
    row("1 CPU", FAST, VERIFY),
    on(TWO, row("2 CPUs", FAST, VERIFY)),
    on(&["cpus.count=8"], row("8 CPUs", FAST, VERIFY)),
    on(TWO, row("2 CPUs, not verified", FAST, "")),
    on(
        TWO,
        row("preempt=full", FAST, "page_zeroed.verify=1 preempt=full"),
    ),
    on(TWO, row("preempt=full, not verified", FAST, "preempt=full")),
    on(
        TWO,
        row("preempt=lazy", FAST, "page_zeroed.verify=1 preempt=lazy"),
    ),
    nothing(row(
        "page_zeroed.off=1",
        FAST,
        "page_zeroed.verify=1 page_zeroed.off=1",
    )),
    nothing(on(
        &["balloon.device_init_reported=false"],
        doing(SHARE, row("bit 6 not offered", FAST, VERIFY)),
    )),
    reported_at(
        "reporting order 0",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=0",
    ),
    reported_at(
        "reporting order 1",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=1",
    ),
    reported_at(
        "reporting order 2",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=2",
    ),
    reported_at(
        "reporting order 3",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=3",
    ),
    reported_at(
        "reporting order 4",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=4",
    ),
    reported_at(
        "reporting order 5",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=5",
    ),
    reported_at(
        "reporting order 6",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=6",
    ),
    reported_at(
        "reporting order 7",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=7",
    ),
    reported_at(
        "reporting order 8",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=8",
    ),
    reported_at(
        "reporting order 9",
        "page_zeroed.verify=1 page_reporting.page_reporting_order=9",
    ),
    // No device: what is reported is answered in the guest's own kernel.
    tested(
        "test backend clears",
        "page_zeroed.verify=1 page_reporting_test.mode=clear",
    ),
    expecting(
        Expect::Half,
        tested(
            "test backend confirms half",
            "page_zeroed.verify=1 page_reporting_test.mode=partial",
        ),
    ),
    expecting(
        Expect::Caught,
        tested(
            "test backend lies",
            "page_zeroed.verify=1 page_reporting_test.mode=lie",
        ),
    ),
    // What was confirmed before the failure was filled with garbage.
    nothing(doing(
        "dirty=256M,thp sleep=5 populate=256M,thp,check info",
        tested(
            "test backend fails",
            "page_zeroed.verify=1 page_reporting_test.mode=error",
        ),
    )),
    row("debug", DEBUG, VERIFY),
    row("debug, not verified", DEBUG, ""),
    nothing(row(
        "page_poison=1",
        DEBUG,
        "page_zeroed.verify=1 page_poison=1",
    )),
    row(
        "init_on_alloc=1",
        DEBUG,
        "page_zeroed.verify=1 init_on_alloc=1",
    ),
    row("init_on_alloc=1, not verified", DEBUG, "init_on_alloc=1"),
    // Everything is cleared when it is freed: there is nothing to skip.
    nothing(row(
        "init_on_free=1",
        DEBUG,
        "page_zeroed.verify=1 init_on_free=1",
    )),
    nothing(row(
        "init_on_alloc=1 init_on_free=1",
        DEBUG,
        "page_zeroed.verify=1 init_on_alloc=1 init_on_free=1",
    )),
    row(
        "debug_pagealloc=on, guard pages",
        DEBUG,
        "page_zeroed.verify=1 debug_pagealloc=on debug_guardpage_minorder=1",
    ),
    row("page_owner=on", DEBUG, "page_zeroed.verify=1 page_owner=on"),
    row("KASAN (generic)", &["kasan"], VERIFY),
    on(
        TWO,
        row(
            "NUMA, 2 nodes (fake)",
            &["numa"],
            "page_zeroed.verify=1 numa=fake=2",
        ),
    ),
    doing(SMALL, row("neither THP nor hugetlb", &["no-huge"], VERIFY)),
    nothing(doing(
        "dirty=128M,thp populate=128M,thp,check info",
        row("no page reporting", &["no-reporting"], ""),
    )),
    row("balloon driver as a module", &["module"], VERIFY),
    // What was known is forgotten: nothing is skipped, and all of it is zero.
    nothing(doing(
        HIBERNATE,
        row("hibernation", &["hibernate"], "memmap=128M!640M"),
    )),
];

/// Huge pages, and stress without a balloon.
const fn tested(name: &'static str, cmdline: &'static str) -> Row {
    let steps = "dirty=256M,thp flush populate=256M,thp,check stress=3,64M,12 info";
    let no_device = &["balloon.reporting=false"];
    on(no_device, doing(steps, row(name, &["kunit"], cmdline)))
}

/// A large block is reported in pieces of that order.
const fn reported_at(name: &'static str, cmdline: &'static str) -> Row {
    doing(SHARE, row(name, FAST, cmdline))
}
