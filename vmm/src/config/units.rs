//! Sizes and durations as people write them: `512M`, `30s`.

use std::time::Duration;

/// Binary units, largest first.
const SIZE_UNITS: [(char, u64); 4] = [
    ('T', 1 << 40),
    ('G', 1 << 30),
    ('M', 1 << 20),
    ('K', 1 << 10),
];

/// Time units in milliseconds, largest first.
const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a size: a decimal number of bytes, or of `K`, `M`, `G`, `T` (binary).
///
/// `None` if it is not one, or does not fit 64 bits.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = SIZE_UNITS
        .iter()
        .find_map(|&(letter, bytes)| Some((text.strip_suffix(letter)?, bytes)))
        .unwrap_or((text, 1));
    digits(number)?.checked_mul(unit)
}

/// Writes a size in the largest unit that leaves a whole number.
pub fn format_size(bytes: u64) -> String {
    SIZE_UNITS
        .iter()
        .find(|(_, unit)| bytes != 0 && bytes % unit == 0)
        .map_or_else(
            || bytes.to_string(),
            |(letter, unit)| format!("{}{letter}", bytes / unit),
        )
}

/// Reads a duration: a decimal number with its unit, `ms`, `s`, `m` or `h`.
///
/// `None` if it is not one; a number without a unit is not one.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(split)?;
    let (_, millis) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(digits(number)?.checked_mul(*millis)?))
}

/// Writes a duration, in whole milliseconds, in the largest unit that leaves a
/// whole number.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    DURATION_UNITS
        .iter()
        .find(|(_, unit)| millis % u128::from(*unit) == 0)
        .map_or_else(
            || format!("{millis}ms"),
            |(name, unit)| format!("{}{name}", millis / u128::from(*unit)),
        )
}

/// Digits only: `u64::from_str` would also take a sign.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_binary_and_strict() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("4K", Some(4096)),
            ("512M", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("1T", Some(1 << 40)),
            ("16777215T", Some(16_777_215 << 40)),
            ("16777216T", None),
            ("", None),
            ("M", None),
            ("+1M", None),
            ("-1M", None),
            ("1 M", None),
            ("1.5G", None),
            ("512m", None),
            ("512MB", None),
            ("512MiB", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, millis) in [
            ("30s", Some(30_000)),
            ("500ms", Some(500)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("0s", Some(0)),
            ("30", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("30 s", None),
            ("1d", None),
            ("18446744073709551615h", None),
        ] {
            let want = millis.map(Duration::from_millis);
            assert_eq!(parse_duration(text), want, "{text:?}");
        }
    }

    #[test]
    fn the_largest_whole_unit_is_written() {
        assert_eq!(format_size(1536 << 20), "1536M");
        assert_eq!(format_size(2 << 30), "2G");
        assert_eq!(format_size(4097), "4097");
        assert_eq!(format_size(0), "0");
        assert_eq!(format_duration(Duration::from_millis(1500)), "1500ms");
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::from_secs(120)), "2m");
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes: u64, millis: u64) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }

        #[test]
        fn no_text_breaks_the_readers(text in ".{0,40}") {
            let _ = parse_size(&text);
            let _ = parse_duration(&text);
        }
    }
}
