//! The VMM's own memory, told apart from the guest's.

use std::fs;

use crate::results::Footprint;

/// Measures this process. `guest_resident_bytes` is how much of guest RAM is
/// resident, in bytes; `guest_in_rss` is whether the kernel counts it in the
/// resident set, which it does for all but pages of a hugetlb pool.
///
/// `None` where the kernel has no such files.
#[must_use]
pub fn measure(guest_resident_bytes: u64, guest_in_rss: bool) -> Option<Footprint> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    // The roll-up is exact; the counter in `status` may lag by some pages for
    // each thread, and is what a kernel without the roll-up has.
    let smaps = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    footprint(&smaps, &status, guest_resident_bytes, guest_in_rss)
}

fn footprint(
    smaps: &str,
    status: &str,
    guest_resident_bytes: u64,
    guest_in_rss: bool,
) -> Option<Footprint> {
    let rss = field(smaps, "Rss:").or_else(|| field(status, "VmRSS:"))?;
    let counted = if guest_in_rss {
        guest_resident_bytes
    } else {
        0
    };
    Some(Footprint {
        vmm_rss_bytes: rss.saturating_sub(counted),
        guest_resident_bytes,
        page_tables_bytes: field(status, "VmPTE:")?,
    })
}

/// The value of a field in kB, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "5581-7ffd ---p 00000000 00:00 0    [rollup]\n\
        Rss:                5000 kB\nPss:                 4000 kB\nPrivate_Hugetlb:  524288 kB\n";
    const STATUS: &str = "Name:\taerostat\nVmRSS:\t    4800 kB\nVmPTE:\t      96 kB\n";

    #[test]
    fn pool_pages_are_not_in_the_resident_set() {
        let footprint = footprint(SMAPS, STATUS, 512 << 20, false).unwrap();
        assert_eq!(footprint.vmm_rss_bytes, 5000 << 10);
        assert_eq!(footprint.guest_resident_bytes, 512 << 20);
        assert_eq!(footprint.page_tables_bytes, 96 << 10);
    }

    #[test]
    fn ordinary_pages_of_the_guest_are_taken_out_of_it() {
        let footprint = footprint(SMAPS, STATUS, 3000 << 10, true).unwrap();
        assert_eq!(footprint.vmm_rss_bytes, 2000 << 10);
    }

    #[test]
    fn without_a_roll_up_the_counter_serves_and_without_that_nothing_is_made_up() {
        assert_eq!(
            footprint("", STATUS, 0, false).unwrap().vmm_rss_bytes,
            4800 << 10
        );
        assert_eq!(footprint("", "", 0, false), None);
    }

    #[test]
    fn this_process_has_a_footprint() {
        let footprint = measure(0, false).unwrap();
        assert!(footprint.vmm_rss_bytes > 0 && footprint.page_tables_bytes > 0);
    }
}
