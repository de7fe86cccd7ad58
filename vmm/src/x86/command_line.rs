//! The kernel command line in guest memory.

use thiserror::Error;
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use super::layout::{CMDLINE_MAX, CMDLINE_START};

/// `COMMAND_LINE_SIZE` of Linux on x86, without the terminating zero: what a
/// kernel takes that does not say how much it takes.
pub const LINUX_MAX: u64 = 2047;

/// Why a command line cannot be passed.
#[derive(Debug, Error)]
pub enum CommandLineError {
    /// The kernel would cut it.
    #[error("kernel.cmdline has {len} bytes, and the kernel takes at most {max}")]
    TooLong {
        /// Its length.
        len: u64,
        /// What the kernel takes.
        max: u64,
    },
    /// The kernel would stop at the zero.
    #[error("kernel.cmdline contains a zero byte")]
    HasZero,
    /// Guest RAM ends below it.
    #[error("kernel.cmdline does not fit into guest RAM: {0}")]
    Memory(#[from] GuestMemoryError),
}

/// Writes `line` at [`CMDLINE_START`]; a kernel takes up to `max` bytes.
///
/// # Errors
/// [`CommandLineError`] if the kernel would not get all of it.
pub fn write(memory: &GuestMemoryMmap, line: &str, max: u64) -> Result<(), CommandLineError> {
    let max = max.min(CMDLINE_MAX - 1);
    let len = line.len() as u64;
    if len > max {
        return Err(CommandLineError::TooLong { len, max });
    }
    if line.as_bytes().contains(&0) {
        return Err(CommandLineError::HasZero);
    }
    memory.write_slice(line.as_bytes(), GuestAddress(CMDLINE_START))?;
    memory.write_obj(0_u8, GuestAddress(CMDLINE_START + len))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap()
    }

    #[test]
    fn a_line_of_exactly_the_maximum_is_passed_whole_and_terminated() {
        let memory = memory();
        memory
            .write_slice(&[0xff; 4096], GuestAddress(CMDLINE_START))
            .unwrap();
        write(&memory, &"x".repeat(2047), LINUX_MAX).unwrap();
        let mut read = [0xff; 2048];
        memory
            .read_slice(&mut read, GuestAddress(CMDLINE_START))
            .unwrap();
        assert!(read[..2047].iter().all(|byte| *byte == b'x'));
        assert_eq!(read[2047], 0);
    }

    #[test]
    fn one_byte_more_is_refused_with_both_numbers() {
        let error = write(&memory(), &"x".repeat(2048), LINUX_MAX).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("2048") && text.contains("2047"), "{text}");
    }

    #[test]
    fn a_zero_would_hide_the_rest_and_is_refused() {
        let error = write(&memory(), "a\0b", LINUX_MAX).unwrap_err();
        assert!(matches!(error, CommandLineError::HasZero));
    }
}
