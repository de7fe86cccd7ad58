//! The frequency of the time stamp counter.
//!
//! QEMU hands this machine's counter to the emulated CPU, and its microvm has
//! no other clock a kernel could measure it with: a wrong frequency would make
//! every time in the results wrong by its factor.

// UNSAFETY: reading the counter is an intrinsic that the language calls unsafe.
#![expect(unsafe_code)]

use std::arch::x86_64::_rdtsc;
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for an error below 0.1 % (a wake-up is late by some 10 us, but
/// both clocks are read again after it).
const SPAN: Duration = Duration::from_millis(20);

/// Measures it, in kHz; takes [`SPAN`].
pub(super) fn measure_khz() -> u64 {
    let (counter, clock) = (now(), Instant::now());
    thread::sleep(SPAN);
    let (counter, clock) = (now().wrapping_sub(counter), clock.elapsed());
    let khz = u128::from(counter) * 1_000_000 / clock.as_nanos().max(1);
    u64::try_from(khz).unwrap_or(u64::MAX)
}

fn now() -> u64 {
    // SAFETY: RDTSC has no effect but its result, and every x86-64 CPU has it.
    unsafe { _rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree() {
        let (a, b) = (measure_khz(), measure_khz());
        assert!(
            a.abs_diff(b) * 100 < a,
            "{a} kHz and {b} kHz differ by more than 1 %"
        );
        assert!(
            (100_000..20_000_000).contains(&a),
            "{a} kHz is no counter of this century"
        );
    }
}
