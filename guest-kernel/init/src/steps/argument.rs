//! What stands behind a step's name: read, checked, and refused by what is wrong.

use std::time::Duration;

use super::page_kind::{BASE_PAGE_BYTES, PageKind};
use super::size::{format_size, parse_size};
use super::table::{FileState, Region, Rounds, Step, Word};

/// How long `wait_balloon` waits if it is not told.
const BALLOON_PATIENCE: Duration = Duration::from_secs(60);
/// Passes a `flush` without a number may take. The kernel stops at the first
/// pass that finds nothing, so this is a bound and not a duration.
const ENOUGH_PASSES: u32 = 1000;

pub(super) fn needed(argument: Option<&str>) -> Result<&str, String> {
    argument
        .filter(|argument| !argument.is_empty())
        .ok_or_else(|| "a value is missing".to_owned())
}

pub(super) fn nothing(argument: Option<&str>) -> Result<(), String> {
    match argument {
        None => Ok(()),
        Some(argument) => Err(format!("takes no value, got `{argument}`")),
    }
}

pub(super) fn bare(argument: Option<&str>, step: Step) -> Result<Word, String> {
    nothing(argument)?;
    Ok(Word::Step(step))
}

pub(super) fn on_off(argument: Option<&str>) -> Result<bool, String> {
    match argument {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

pub(super) fn count(text: &str, max: u32) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=max).contains(number))
        .ok_or_else(|| format!("`{text}` is not a whole number from 1 to {max}"))
}

pub(super) fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a whole number"))
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=86400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is not a number of seconds from 0 to 86400"))
}

pub(super) fn rounds(text: &str) -> Result<Rounds, String> {
    match text.strip_suffix('s') {
        Some(number) => Ok(Rounds::For(seconds(number)?)),
        None => Ok(Rounds::Count(count(text, 1_000_000)?)),
    }
}

pub(super) fn region(argument: Option<&str>) -> Result<Region, String> {
    let (size, kind) = match needed(argument)?.split_once(',') {
        Some((size, kind)) => (size, kind.parse()?),
        None => (needed(argument)?, PageKind::Thp),
    };
    let bytes = parse_size(size)?;
    let page = kind.page_bytes();
    if bytes % page != 0 {
        return Err(format!(
            "{size} is not a multiple of the {} pages of {kind}; {} is",
            format_size(page),
            format_size(bytes.next_multiple_of(page)),
        ));
    }
    Ok(Region { bytes, kind })
}

pub(super) fn hold(argument: Option<&str>) -> Result<Word, String> {
    let (duration, rest) = needed(argument)?
        .split_once(',')
        .ok_or("needs a size behind the seconds")?;
    Ok(Word::Step(Step::Hold {
        region: region(Some(rest))?,
        duration: seconds(duration)?,
    }))
}

pub(super) fn populate(argument: Option<&str>) -> Result<Word, String> {
    let mut rest = needed(argument)?;
    let (mut write, mut check) = (false, false);
    let (mut fault_at, mut file) = (None, FileState::Hole);
    while let Some((front, flag)) = rest.rsplit_once(',') {
        match (flag, flag.strip_prefix("at=")) {
            ("write", _) => write = true,
            ("check", _) => check = true,
            ("fallocate", _) => file = FileState::Fallocated,
            ("punch", _) => file = FileState::Punched,
            (_, Some("0")) => fault_at = Some(0),
            (_, Some(offset)) => fault_at = Some(whole_pages(offset)?),
            _ => break,
        }
        rest = front;
    }
    let region = region(Some(rest))?;
    let page = region.kind.page_bytes();
    if fault_at.is_some_and(|offset| offset >= page) {
        return Err(format!(
            "`at` is beyond the {} of a page",
            format_size(page)
        ));
    }
    if file != FileState::Hole && !matches!(region.kind, PageKind::Memfd(_)) {
        return Err("`fallocate` and `punch` need a memfd".to_owned());
    }
    if write && region.kind.is_shared() {
        return Err("`write` needs private memory".to_owned());
    }
    Ok(Word::Step(Step::Populate {
        region,
        write,
        check,
        fault_at,
        file,
    }))
}

/// Bytes, the size of the pages, and whether to check.
pub(super) fn fallocate(argument: Option<&str>) -> Result<Word, String> {
    let argument = needed(argument)?;
    let (rest, check) = match argument.strip_suffix(",check") {
        Some(rest) => (rest, true),
        None => (argument, false),
    };
    let with_kind = match rest.contains(',') {
        true => rest.to_owned(),
        false => format!("{rest},hugetlb"),
    };
    let Region { bytes, kind } = region(Some(&with_kind))?;
    Ok(Word::Step(Step::Fallocate {
        bytes,
        page_bytes: hugetlb(kind)?,
        check,
    }))
}

pub(super) fn pool(argument: Option<&str>) -> Result<Word, String> {
    let argument = needed(argument)?;
    let (number, kind) = argument.split_once(',').unwrap_or((argument, "hugetlb"));
    Ok(Word::Step(Step::Pool {
        page_bytes: hugetlb(kind.parse()?)?,
        pages: match number {
            "0" => 0,
            _ => u64::from(count(number, 1 << 20)?),
        },
    }))
}

fn hugetlb(kind: PageKind) -> Result<u64, String> {
    match kind {
        PageKind::Hugetlb(page_bytes) => Ok(page_bytes),
        _ => Err(format!("{kind} pages have no pool")),
    }
}

pub(super) fn flush(argument: Option<&str>) -> Result<Word, String> {
    let passes = match argument {
        None => ENOUGH_PASSES,
        Some(text) => count(text, 1_000_000)?,
    };
    Ok(Word::Step(Step::Flush(passes)))
}

pub(super) fn stress(argument: Option<&str>) -> Result<Word, String> {
    let argument = needed(argument)?;
    let parts: Vec<_> = argument.split(',').collect();
    let (workers, size, duration, balloon) = match parts.as_slice() {
        [workers, size, duration] => (workers, size, duration, false),
        [workers, size, duration, "balloon"] => (workers, size, duration, true),
        _ => return Err("needs three values, and perhaps `balloon`".to_owned()),
    };
    Ok(Word::Step(Step::Stress {
        workers: count(workers, 256)?,
        bytes: whole_pages(size)?,
        duration: seconds(duration)?,
        balloon,
    }))
}

pub(super) fn wait_balloon(argument: Option<&str>) -> Result<Word, String> {
    let argument = needed(argument)?;
    let (size, patience) = match argument.split_once(',') {
        Some((size, patience)) => (size, seconds(patience)?),
        None => (argument, BALLOON_PATIENCE),
    };
    let bytes = if size == "0" { 0 } else { whole_pages(size)? };
    Ok(Word::Step(Step::WaitBalloon { bytes, patience }))
}

pub(super) fn write(argument: Option<&str>) -> Result<Word, String> {
    let (path, text) = needed(argument)?
        .split_once(',')
        .ok_or("needs a text behind the path")?;
    Ok(Word::Step(Step::Write {
        path: path.to_owned(),
        text: text.to_owned(),
    }))
}

pub(super) fn whole_pages(size: &str) -> Result<u64, String> {
    let bytes = parse_size(size)?;
    if bytes % BASE_PAGE_BYTES == 0 {
        Ok(bytes)
    } else {
        Err(format!("{size} is not a multiple of 4K"))
    }
}
