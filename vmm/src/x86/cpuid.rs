//! What a vCPU says it is: what KVM can give, minus what this guest cannot
//! use, plus who it is among its siblings.
//!
//! Leaves and bits: Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E;
//! Documentation/virt/kvm/x86/cpuid.rst for 0x4000_0000 and up.

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::Kvm;

use crate::results::HostKind;

/// KVM calls 0x1, sub-leaves matter (`KVM_CPUID_FLAG_SIGNIFCANT_INDEX`).
const SIGNIFICANT_INDEX: u32 = 1;

/// Levels and their type codes in leaf 0xb (ECX bits 15:8).
const LEVEL_SMT: u32 = 1;
const LEVEL_CORE: u32 = 2;

/// What KVM supports on this host; the start of every vCPU's CPUID.
///
/// # Errors
/// The error of KVM_GET_SUPPORTED_CPUID.
pub fn supported(kvm: &Kvm) -> Result<CpuId, kvm_ioctls::Error> {
    kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
}

/// What every vCPU of a machine has in common.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Number of vCPUs, one core each, in one package.
    pub cpus: u8,
    /// Whether the CPU below KVM is emulated.
    pub host: HostKind,
    /// Whether KVM's local APIC timer has TSC deadline mode, which KVM does not
    /// list among what it supports.
    pub tsc_deadline: bool,
}

/// The CPUID of vCPU `id`, made from what KVM supports.
///
/// # Errors
/// The error of the container if there are more entries than KVM takes.
pub fn of_vcpu(
    supported: &CpuId,
    machine: Machine,
    id: u8,
) -> Result<CpuId, vmm_sys_util::fam::Error> {
    let mut entries: Vec<_> = supported.as_slice().to_vec();
    entries.retain(|entry| !is_dropped(entry.function, machine.host));
    for entry in &mut entries {
        hide_nested(entry);
        if machine.host == HostKind::Emulated {
            hide_xsave(entry);
        }
        name_among_siblings(entry, machine, id);
    }
    entries.extend(topology(machine.cpus, id));
    CpuId::from_entries(&entries)
}

/// Leaves that are left out, so that they read zero.
fn is_dropped(function: u32, host: HostKind) -> bool {
    match function {
        // Topology of the host's package, which is not the guest's.
        0xb | 0x1f | 0x8000_0026 => true,
        // SVM: there are no guests of guests.
        0x8000_000a => true,
        // State components of XSAVE, and AMX and AVX10, which live in them.
        0xd | 0x1d | 0x1e | 0x24 => host == HostKind::Emulated,
        _ => false,
    }
}

/// There are no guests of guests: what is not needed is not there to attack.
fn hide_nested(entry: &mut kvm_cpuid_entry2) {
    match entry.function {
        0x1 => clear(&mut entry.ecx, &[5]),         // VMX
        0x8000_0001 => clear(&mut entry.ecx, &[2]), // SVM
        _ => {}
    }
}

/// Hides XSAVE and what needs it. QEMU's emulated CPU loses the guest's
/// extended state, and a guest that uses it dies within its first milliseconds.
fn hide_xsave(entry: &mut kvm_cpuid_entry2) {
    match (entry.function, entry.index) {
        // FMA, XSAVE, OSXSAVE, AVX, F16C.
        (0x1, _) => clear(&mut entry.ecx, &[12, 26, 27, 28, 29]),
        (0x7, 0) => {
            // AVX2; MPX; AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL.
            clear(&mut entry.ebx, &[5, 14, 16, 17, 21, 26, 27, 28, 30, 31]);
            // AVX-512 VBMI, PKU, OSPKE, VBMI2, VAES, VPCLMULQDQ, VNNI, BITALG, VPOPCNTDQ;
            // CET shadow stacks, whose state XSAVES keeps.
            clear(&mut entry.ecx, &[1, 3, 4, 6, 7, 9, 10, 11, 12, 14]);
            // AVX-512 4VNNIW, 4FMAPS, VP2INTERSECT; CET IBT; AMX BF16, FP16, TILE, INT8.
            clear(&mut entry.edx, &[2, 3, 8, 20, 22, 23, 24, 25]);
        }
        // AVX-VNNI, AVX-512 BF16, AMX FP16, AVX-IFMA and their successors.
        (0x7, 1) => {
            clear(&mut entry.eax, &[0, 1, 2, 4, 5, 21, 23]);
            clear(&mut entry.edx, &[4, 5, 8, 10, 19, 21]);
        }
        // XOP, FMA4.
        (0x8000_0001, _) => clear(&mut entry.ecx, &[11, 16]),
        _ => {}
    }
}

/// Writes the APIC id and the number of cores into the leaves that hold them
/// beside other things.
fn name_among_siblings(entry: &mut kvm_cpuid_entry2, machine: Machine, id: u8) {
    let (id, cpus) = (u32::from(id), u32::from(machine.cpus.max(1)));
    let shift = core_bits(machine.cpus);
    match entry.function {
        0x1 => {
            // Local APIC id, and how many ids the package takes.
            set(&mut entry.ebx, 24, 8, id);
            set(&mut entry.ebx, 16, 8, 1 << shift);
            // "HTT": the field above counts more than one.
            set(&mut entry.edx, 28, 1, u32::from(cpus > 1));
            set(&mut entry.ecx, 24, 1, u32::from(machine.tsc_deadline));
            // There is a hypervisor.
            set(&mut entry.ecx, 31, 1, 1);
        }
        // Caches, Intel and AMD: up to level 2 of one core, above of all. The
        // type field of a cache that does not exist is 0.
        0x4 | 0x8000_001d if entry.eax & 0x1f != 0 => {
            let shared = entry.eax >> 5 & 0b111 > 2;
            set(&mut entry.eax, 14, 12, if shared { cpus - 1 } else { 0 });
            if entry.function == 0x4 {
                set(&mut entry.eax, 26, 6, (1 << shift) - 1);
            }
        }
        // Number of cores, and how many bits of the APIC id tell them apart.
        0x8000_0008 => {
            set(&mut entry.ecx, 0, 8, cpus - 1);
            set(&mut entry.ecx, 12, 4, shift);
        }
        // Extended APIC id; core id with one thread each; node 0 of 1.
        0x8000_001e => {
            entry.eax = id;
            entry.ebx = id;
            entry.ecx = 0;
        }
        _ => {}
    }
}

/// Leaf 0xb: one thread per core, all cores in one package.
fn topology(cpus: u8, id: u8) -> [kvm_cpuid_entry2; 3] {
    let level = |index, shift, count, kind: u32| kvm_cpuid_entry2 {
        function: 0xb,
        index,
        flags: SIGNIFICANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: kind << 8 | index,
        edx: u32::from(id),
        ..Default::default()
    };
    [
        level(0, 0, 1, LEVEL_SMT),
        level(1, core_bits(cpus), u32::from(cpus), LEVEL_CORE),
        level(2, 0, 0, 0),
    ]
}

/// Bits of an APIC id that tell `cpus` cores apart.
fn core_bits(cpus: u8) -> u32 {
    u32::from(cpus.max(1)).next_power_of_two().trailing_zeros()
}

fn clear(register: &mut u32, bits: &[u32]) {
    for bit in bits {
        *register &= !(1 << bit);
    }
}

/// Puts `value` into the field of `width` bits at `shift`.
fn set(register: &mut u32, shift: u32, width: u32, value: u32) {
    let mask = ((1 << width) - 1) << shift;
    *register = *register & !mask | value << shift & mask;
}

#[cfg(test)]
#[path = "cpuid_tests.rs"]
mod tests;
