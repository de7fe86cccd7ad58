//! Sizes as people write them in the configuration.

use std::fmt;

/// A number of bytes that prints as `2G`, `1025M`, `4K`, or plain bytes: in the
/// largest unit that divides it, so that it can be pasted into a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
            if bytes != 0 && bytes % (1 << shift) == 0 {
                return write!(f, "{}{unit}", bytes >> shift);
            }
        }
        write!(f, "{bytes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_in_the_largest_unit_that_divides_it() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1024, "1K"),
            (4097, "4097"),
            (2 << 20, "2M"),
            (1025 << 20, "1025M"),
            (1 << 30, "1G"),
            (3 << 29, "1536M"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }
}
