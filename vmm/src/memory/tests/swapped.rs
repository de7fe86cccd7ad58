//! A page in swap is neither resident nor zero.

use devices::balloon::host_zeroes::ZeroBy;
use vm_memory::GuestMemoryBackend;

use super::guest::*;
use super::swap_guard::SwapGuard;
use crate::memory::GuestRam;

#[test]
fn swapped_out_memory_reads_zero_and_is_not_called_released() {
    let Some(_swap) = SwapGuard::new() else {
        return;
    };
    for backed in &ALL_BUT_1G[2..] {
        for by in [ZeroBy::Discarding, ZeroBy::Writing] {
            let ram = GuestRam::create(&backed.config(8 * MIB)).unwrap();
            dirty(&ram, 0, 8 * MIB);
            page_out(&ram);
            let resident = ram.resident_bytes();
            assert!(
                resident < 4 * MIB,
                "{backed:?}: {resident} bytes did not go to swap"
            );
            let zeroed = ram.zeroer().zero(range(MIB + 5, 6 * MIB), by).unwrap();
            assert!(zeroed.released() <= resident, "{backed:?}, {by:?}");
            let what = format!("{backed:?}, {by:?}");
            assert_only_zero(&ram, 0..8 * MIB, MIB + 5..7 * MIB + 5, &what);
        }
    }
}

#[expect(unsafe_code, reason = "MADV_PAGEOUT is nothing a VMM does")]
fn page_out(ram: &GuestRam) {
    let region = ram.guest_memory().iter().next().unwrap();
    // SAFETY: the mapping of guest RAM; contents are kept.
    let result =
        unsafe { libc::madvise(region.as_ptr().cast(), region.size(), libc::MADV_PAGEOUT) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
