//! The table of steps: one row each, with its syntax and what it does.

use std::time::Duration;

use super::argument::{
    bare, fallocate, flush, hold, needed, nothing, number, on_off, pool, populate, region, rounds,
    seconds, stress, wait_balloon, whole_pages, write,
};
use super::page_kind::PageKind;
use super::size::parse_size;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Allocate and populate, measured.
    Populate {
        /// Bytes, and the pages to ask for.
        region: Region,
        /// Write every page afterwards.
        write: bool,
        /// Read every byte afterwards and count those that are not zero.
        check: bool,
        /// Fault in each page at this offset within it, not the whole in one call.
        fault_at: Option<u64>,
        /// What is done to the file behind shared memory first.
        file: FileState,
    },
    /// Allocate the pages of a file of hugetlb pages, measured.
    Fallocate {
        /// Bytes; a multiple of `page_bytes`.
        bytes: u64,
        /// The size of its pages.
        page_bytes: u64,
        /// Read every byte afterwards and count those that are not zero.
        check: bool,
    },
    /// Allocate, fill with non-zero bytes, free.
    Dirty(Region),
    /// Allocate, fill with non-zero bytes, keep until the end.
    Fill(Region),
    /// Have another process fill memory and free it after a while.
    Hold {
        /// Bytes, and the pages to ask for.
        region: Region,
        /// How long it is held.
        duration: Duration,
    },
    /// Size the pool of hugetlb pages.
    Pool {
        /// The size of its pages.
        page_bytes: u64,
        /// How many it should have.
        pages: u64,
    },
    /// Have all free blocks reported to the host now, in at most this many passes.
    Flush(u32),
    /// Whether the kernel verifies what is claimed zero.
    Verify(bool),
    /// Whether the kernel ignores all it knows about zeroed pages.
    Off(bool),
    /// How the kernel clears huge pages, by its own number.
    ZeroMode(u32),
    /// How many pages it clears at once, or 0 for its default.
    ZeroBatch(u32),
    /// Drop clean caches.
    DropCaches,
    /// Compact all zones.
    Compact,
    /// Do nothing for so long.
    Sleep(Duration),
    /// Several threads that allocate, check, dirty and free.
    Stress {
        /// Threads.
        workers: u32,
        /// The most one thread holds, in bytes.
        bytes: u64,
        /// For how long.
        duration: Duration,
        /// Bind and unbind the driver of the balloon meanwhile.
        balloon: bool,
    },
    /// Wait until the balloon holds exactly this much.
    WaitBalloon {
        /// Bytes.
        bytes: u64,
        /// Fail after so long.
        patience: Duration,
    },
    /// Bind the driver of the balloon to its device, or unbind it, which
    /// deflates the balloon.
    Balloon(Binding),
    /// Have a process allocate this many bytes, whether they are available or not.
    Pressure(u64),
    /// Write a text to a file of the kernel.
    Write {
        /// Which file.
        path: String,
        /// The text.
        text: String,
    },
    /// Run a program of the initrd, with its arguments.
    Exec(Vec<String>),
    /// Write a text to the console.
    Print(String),
    /// Write this many bytes to the console.
    SpinConsole(u64),
    /// Report memory and balloon state.
    Info,
    /// End with this exit code.
    Exit(i32),
    /// Crash the kernel.
    Panic,
    /// Loop forever.
    Hang,
    /// End with exit code 0 by a reboot.
    Reboot,
    /// End with exit code 0 by power off.
    Poweroff,
}

/// What the file behind shared memory holds before it is populated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FileState {
    /// Nothing.
    #[default]
    Hole,
    /// Space that nobody has written to.
    Fallocated,
    /// The same, but every second page was written and punched out again.
    Punched,
}

/// What becomes of the driver of the balloon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// It takes the device, and inflates to the host's target.
    Bind,
    /// It deflates the balloon and leaves the device.
    Unbind,
}

/// How much memory of which pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    /// Bytes; a multiple of the page size of `kind`.
    pub(crate) bytes: u64,
    /// The pages to ask for.
    pub(crate) kind: PageKind,
}

/// How often the steps of a loop are repeated, at least once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// So often.
    Count(u32),
    /// Until a round ends so long after the first began.
    For(Duration),
}

/// What one word of the command line means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Word {
    /// A step.
    Step(Step),
    /// Repeat what follows, up to the matching `end`.
    Loop(Rounds),
    /// Closes the innermost `loop`.
    End,
}

/// A row of [`STEPS`].
pub(crate) struct StepSpec {
    /// What the word starts with.
    pub(crate) name: &'static str,
    /// The whole word.
    pub(crate) usage: &'static str,
    /// What it does, one line.
    pub(crate) summary: &'static str,
    parse: fn(Option<&str>) -> Result<Word, String>,
}

macro_rules! row {
    ($name:literal, $usage:literal, $summary:literal, $parse:expr) => {
        StepSpec {
            name: $name,
            usage: $usage,
            summary: $summary,
            parse: $parse,
        }
    };
}

/// All words, in the order in which they are documented.
pub(crate) const STEPS: &[StepSpec] = &[
    row!(
        "populate",
        "populate=SIZE[,KIND][,at=OFFSET][,fallocate|punch][,check][,write]",
        "allocate with MADV_POPULATE_WRITE and measure that call; `at` faults in each page at that offset instead, `fallocate` and `punch` prepare a memfd, `check` then reads every byte, `write` then writes every page",
        populate
    ),
    row!(
        "fallocate",
        "fallocate=SIZE[,hugetlb=2M|1G][,check]",
        "allocate the pages of a hugetlb file in memory and measure that call; `check` then reads every byte",
        fallocate
    ),
    row!(
        "dirty",
        "dirty=SIZE[,KIND]",
        "allocate, fill with 0xAB, free",
        |arg| Ok(Word::Step(Step::Dirty(region(arg)?)))
    ),
    row!(
        "fill",
        "fill=SIZE[,KIND]",
        "allocate, fill with 0xAB, keep until the end",
        |arg| Ok(Word::Step(Step::Fill(region(arg)?)))
    ),
    row!(
        "hold",
        "hold=SECONDS,SIZE[,KIND]",
        "have another process fill memory with 0xAB; after SECONDS it ends, and what came free is reported",
        hold
    ),
    row!(
        "pool",
        "pool=COUNT[,hugetlb=2M|1G]",
        "have COUNT hugetlb pages in the pool, or as many as the kernel gets; they stay there until the next `pool`",
        pool
    ),
    row!(
        "flush",
        "flush[=PASSES]",
        "have all free blocks reported to the host now, in at most PASSES passes; sleeps 3 s where the kernel has no such switch",
        flush
    ),
    row!(
        "verify",
        "verify=on|off",
        "whether the kernel reads every page claimed zero when it is allocated",
        |arg| Ok(Word::Step(Step::Verify(on_off(arg)?)))
    ),
    row!(
        "off",
        "off=on|off",
        "`on` makes the kernel clear every page again, `off` lets it skip",
        |arg| Ok(Word::Step(Step::Off(on_off(arg)?)))
    ),
    row!(
        "zero_mode",
        "zero_mode=N",
        "how the kernel clears huge pages: 0 converging, 1 page by page, 2 ranges, 3 ranges with the accessed page last",
        |arg| Ok(Word::Step(Step::ZeroMode(number(needed(arg)?)?)))
    ),
    row!(
        "zero_batch",
        "zero_batch=N",
        "how many pages of 4 KiB it clears at once in modes 2 and 3; 0 is its default",
        |arg| Ok(Word::Step(Step::ZeroBatch(number(needed(arg)?)?)))
    ),
    row!(
        "drop_caches",
        "drop_caches",
        "drop the page cache and reclaimable slabs",
        |arg| bare(arg, Step::DropCaches)
    ),
    row!("compact", "compact", "compact all memory", |arg| bare(
        arg,
        Step::Compact
    )),
    row!("sleep", "sleep=SECONDS", "wait", |arg| Ok(Word::Step(
        Step::Sleep(seconds(needed(arg)?)?)
    ))),
    row!(
        "stress",
        "stress=THREADS,SIZE,SECONDS[,balloon]",
        "threads allocate up to SIZE each, check for zero, dirty, free, while memory is flushed and compacted every second; with `balloon` its driver is also unbound and bound in turn",
        stress
    ),
    row!(
        "wait_balloon",
        "wait_balloon=SIZE[,SECONDS]",
        "wait until the balloon holds exactly SIZE (or 0), at most SECONDS (60)",
        wait_balloon
    ),
    row!(
        "balloon",
        "balloon=bind|unbind",
        "bind the balloon's driver, which then inflates to the host's target, or unbind it, which deflates all of it first",
        |arg| Ok(Word::Step(Step::Balloon(match arg {
            Some("bind") => Binding::Bind,
            Some("unbind") => Binding::Unbind,
            _ => return Err("must be bind or unbind".to_owned()),
        })))
    ),
    row!(
        "pressure",
        "pressure=SIZE",
        "have a process, which the kernel kills first, allocate SIZE even if that is not available",
        |arg| Ok(Word::Step(Step::Pressure(whole_pages(needed(arg)?)?)))
    ),
    row!(
        "write",
        "write=PATH,TEXT",
        "write TEXT to a file of procfs or sysfs; the step fails if the kernel does not take it",
        write
    ),
    row!(
        "exec",
        "exec=PROGRAM[,ARGUMENT...]",
        "run a program of the initrd; the step fails if it does not exit with 0",
        |arg| Ok(Word::Step(Step::Exec(
            needed(arg)?.split(',').map(str::to_owned).collect()
        )))
    ),
    row!(
        "loop",
        "loop=N|SECONDSs",
        "repeat the steps up to the matching `end` N times, or (`600s`) until so long has passed",
        |arg| Ok(Word::Loop(rounds(needed(arg)?)?))
    ),
    row!("end", "end", "end of the innermost loop", |arg| {
        nothing(arg)?;
        Ok(Word::End)
    }),
    row!(
        "info",
        "info",
        "report meminfo, vmstat, balloon and verifier",
        |arg| bare(arg, Step::Info)
    ),
    row!(
        "print",
        "print=TEXT",
        "write TEXT and a newline to the console",
        |arg| Ok(Word::Step(Step::Print(arg.unwrap_or_default().to_owned())))
    ),
    row!(
        "spin_console",
        "spin_console=SIZE",
        "write SIZE bytes to the console",
        |arg| Ok(Word::Step(Step::SpinConsole(parse_size(needed(arg)?)?)))
    ),
    row!("exit", "exit=N", "end now with exit code N", |arg| Ok(
        Word::Step(Step::Exit(
            needed(arg)?
                .parse()
                .map_err(|_| "must be a whole number, as in exit=7".to_owned())?
        ))
    )),
    row!("panic", "panic", "crash the kernel", |arg| bare(
        arg,
        Step::Panic
    )),
    row!("hang", "hang", "loop forever", |arg| bare(arg, Step::Hang)),
    row!("reboot", "reboot", "end now by a reboot", |arg| bare(
        arg,
        Step::Reboot
    )),
    row!("poweroff", "poweroff", "end now by power off", |arg| bare(
        arg,
        Step::Poweroff
    )),
];

/// What `word` means, or one line naming the word, the error and the syntax.
pub(crate) fn parse_word(word: &str) -> Result<Word, String> {
    let (name, argument) = match word.split_once('=') {
        Some((name, argument)) => (name, Some(argument)),
        None => (word, None),
    };
    let Some(spec) = STEPS.iter().find(|spec| spec.name == name) else {
        let names: Vec<_> = STEPS.iter().map(|spec| spec.name).collect();
        return Err(format!(
            "unknown step `{name}`; the steps are {}",
            names.join(", ")
        ));
    };
    (spec.parse)(argument).map_err(|error| format!("step `{word}`: {error} ({})", spec.usage))
}
