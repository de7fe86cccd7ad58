//! What the bytes of an input stand for.

use std::ops::Range;

use arbitrary::{Result, Unstructured};
use devices::balloon::device::{BalloonSpec, Hinting, Reclaim};

use crate::checked_host::BACKING_PAGE;
use crate::fake_guest::{PAGE, VERSION_1};
use crate::guest::{DATA, HIGH, LOW};
use crate::session::Start;

/// Where requests pass page numbers.
pub(crate) const SCRATCH: u64 = DATA.start;
/// Features an honest driver takes if they are offered: all.
pub(crate) const ALL: u64 = u64::MAX;

/// What the device offers and does.
pub(crate) fn spec(input: &mut Unstructured<'_>) -> Result<BalloonSpec> {
    let reclaim = [Reclaim::Discard, Reclaim::Zero, Reclaim::Keep];
    let hinting = [Hinting::Off, Hinting::Count, Hinting::Discard];
    // Everything is on where the bytes are zero.
    let [off, how] = input.arbitrary::<[u8; 2]>()?;
    let on = |bit: u8| off >> bit & 1 == 0;
    let nth = |shift: u8| usize::from(how >> shift & 3) % 3;
    Ok(BalloonSpec {
        reporting: on(0),
        device_init_reported: on(1),
        device_init_on_inflate: on(2),
        must_tell_host: on(3),
        statistics: on(4),
        page_poison: on(5),
        deflate_on_oom: on(6),
        on_report: reclaim[nth(0)],
        on_inflate: reclaim[nth(2)],
        hinting: hinting[nth(4)],
        accept_hint_race: true,
        accept_bit6_ambiguity: true,
        target_pages: u32::from(how >> 6),
        ..BalloonSpec::default()
    })
}

/// How the driver starts.
pub(crate) fn start(input: &mut Unstructured<'_>) -> Result<Start> {
    let [not_wanted, how] = input.arbitrary::<[u8; 2]>()?;
    let event_idx = u64::from(how >> 1 & 1) << 29;
    let places = match how >> 6 {
        3 => Some((usize::from(not_wanted) % 5, input.arbitrary()?)),
        _ => None,
    };
    let poison = match how >> 6 {
        2 => input.arbitrary()?,
        _ => 0,
    };
    Ok(Start {
        wanted: ALL & !u64::from(not_wanted) & !event_idx | VERSION_1,
        dense: how & 1 == 0,
        // 16 to 256 and then 1 to 8.
        size: 1 << ((how >> 2 & 15) + 4).rem_euclid(9),
        poison,
        places: places.map(|(at, places): (_, [u32; 3])| (at, places.map(u64::from))),
    })
}

/// Mostly pages; sometimes anything.
pub(crate) fn address(input: &mut Unstructured<'_>) -> Result<u64> {
    let [kind, number]: [u8; 2] = input.arbitrary()?;
    let number = u64::from(number);
    let pages = |r: Range<u64>| r.start + number * PAGE % (r.end - r.start);
    Ok(match kind {
        0..=79 => pages(DATA),
        80..=159 => pages(HIGH),
        160..=179 => SCRATCH + number,
        180..=199 => pages(LOW),
        200..=209 => LOW.end - 128 + number,
        210..=219 => HIGH.end - 128 + number,
        220..=239 => pages(HIGH) + u64::from(input.arbitrary::<u16>()? % 4096),
        240..=247 => input.arbitrary::<u32>()?.into(),
        _ => input.arbitrary()?,
    })
}

/// Mostly small numbers of pages.
pub(crate) fn length(input: &mut Unstructured<'_>) -> Result<u32> {
    let [kind, number]: [u8; 2] = input.arbitrary()?;
    let number = u32::from(number);
    Ok(match kind {
        0..=127 => number % 9 * PAGE as u32,
        128..=191 => number % 3 * BACKING_PAGE as u32,
        192..=239 => number * 16,
        _ => input.arbitrary()?,
    })
}
