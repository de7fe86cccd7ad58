//! Sizes as users write them: `4096`, `64K`, `256M`, `1G`; all binary.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Larger than any guest; keeps later additions from overflowing.
const MAX_BYTES: u64 = 1 << 50;

/// Bytes in `text`, or one line saying what is wrong with it.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, KIB),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, MIB),
            None => match text.strip_suffix(['G', 'g']) {
                Some(digits) => (digits, GIB),
                None => (text, 1),
            },
        },
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "`{text}` is not a size; write for example 64K, 256M or 1G"
        ));
    }
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| *bytes <= MAX_BYTES)
        .ok_or_else(|| format!("size `{text}` is above the limit of 1 PiB"))?;
    if bytes == 0 {
        return Err("a size must be above 0".to_owned());
    }
    Ok(bytes)
}

/// `bytes` in the largest unit that divides it; [`parse_size`] reads it back.
pub(crate) fn format_size(bytes: u64) -> String {
    for (unit, letter) in [(GIB, 'G'), (MIB, 'M'), (KIB, 'K')] {
        if bytes >= unit && bytes % unit == 0 {
            return format!("{}{letter}", bytes / unit);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_binary() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("64k", 65536),
            ("2M", 2 << 20),
            ("1G", 1 << 30),
            ("1048576G", 1 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_named() {
        for text in [
            "",
            "K",
            "0",
            "0M",
            "-1",
            "+1",
            "1.5G",
            "1T",
            "1MB",
            "1 M",
            "1048577G",
            "99999999999999999999",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_size_reads_back(bytes in 1_u64..=MAX_BYTES) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }
}
