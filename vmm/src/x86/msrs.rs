//! Model-specific registers that firmware would have set.

use kvm_bindings::{Msrs, kvm_msr_entry};

/// IA32_MISC_ENABLE (Intel SDM volume 4, 2.1).
const MISC_ENABLE: u32 = 0x1a0;
/// Fast string operations on, as after power-up.
const MISC_ENABLE_FAST_STRING: u64 = 1 << 0;

/// IA32_MTRR_DEF_TYPE (Intel SDM volume 3, 12.11.2.1).
const MTRR_DEF_TYPE: u32 = 0x2ff;
/// MTRRs on, and everything write-back by default. Left off, as at reset, all
/// memory would be uncached.
const MTRR_DEF_TYPE_WRITE_BACK: u64 = (1 << 11) | 6;

/// What each vCPU starts with.
///
/// # Errors
/// The error of the container if there were more than a u32 counts.
pub fn at_boot() -> Result<Msrs, vmm_sys_util::fam::Error> {
    let entry = |index, data| kvm_msr_entry {
        index,
        data,
        ..Default::default()
    };
    Msrs::from_entries(&[
        entry(MISC_ENABLE, MISC_ENABLE_FAST_STRING),
        entry(MTRR_DEF_TYPE, MTRR_DEF_TYPE_WRITE_BACK),
    ])
}
