//! The CPUID filter against a made-up host that supports everything.

use super::*;

/// All bits set, in every leaf the filter knows and some it does not.
fn everything() -> CpuId {
    let leaf = |function, index| kvm_cpuid_entry2 {
        function,
        index,
        flags: u32::from(index > 0),
        eax: u32::MAX,
        ebx: u32::MAX,
        ecx: u32::MAX,
        edx: u32::MAX,
        ..Default::default()
    };
    #[rustfmt::skip]
    let leaves = [
        leaf(0x0, 0), leaf(0x1, 0), leaf(0x4, 0), leaf(0x4, 3), leaf(0x7, 0), leaf(0x7, 1),
        leaf(0xa, 0), leaf(0xb, 0), leaf(0xb, 1), leaf(0xd, 0), leaf(0xd, 1), leaf(0x1d, 0),
        leaf(0x1e, 0), leaf(0x1f, 0), leaf(0x24, 0), leaf(0x4000_0000, 0), leaf(0x4000_0001, 0),
        leaf(0x8000_0001, 0), leaf(0x8000_0008, 0), leaf(0x8000_000a, 0), leaf(0x8000_001e, 0),
        leaf(0x8000_0026, 0),
    ];
    CpuId::from_entries(&leaves).unwrap()
}

fn machine(cpus: u8, host: HostKind) -> Machine {
    Machine {
        cpus,
        host,
        tsc_deadline: true,
    }
}

fn vcpu(cpus: u8, host: HostKind, id: u8) -> Vec<kvm_cpuid_entry2> {
    let cpuid = of_vcpu(&everything(), machine(cpus, host), id).unwrap();
    cpuid.as_slice().to_vec()
}

/// The leaf as the guest sees it: zero where there is none.
fn leaf(entries: &[kvm_cpuid_entry2], function: u32, index: u32) -> kvm_cpuid_entry2 {
    let mut found = entries
        .iter()
        .filter(|e| e.function == function && e.index == index);
    let first = found.next().copied().unwrap_or_default();
    assert!(found.next().is_none(), "leaf {function:#x}.{index} twice");
    first
}

#[test]
fn a_native_guest_keeps_xsave_and_what_lives_in_it() {
    let entries = vcpu(1, HostKind::Native, 0);
    let ecx = leaf(&entries, 0x1, 0).ecx;
    for bit in [12, 26, 27, 28, 29] {
        assert_ne!(ecx & (1 << bit), 0, "leaf 1 ECX bit {bit}");
    }
    assert_eq!(leaf(&entries, 0x7, 0).ebx, u32::MAX);
    assert_eq!(leaf(&entries, 0xd, 1).eax, u32::MAX);
}

#[test]
fn an_emulated_guest_sees_neither_xsave_nor_anything_that_needs_it() {
    let entries = vcpu(1, HostKind::Emulated, 0);
    let ecx = leaf(&entries, 0x1, 0).ecx;
    for bit in [12, 26, 27, 28, 29] {
        assert_eq!(ecx & (1 << bit), 0, "leaf 1 ECX bit {bit}");
    }
    let seven = leaf(&entries, 0x7, 0);
    assert_eq!(seven.ebx & (1 << 5 | 1 << 16 | 1 << 30), 0, "AVX2, AVX-512");
    assert_eq!(seven.ecx & (1 << 3 | 1 << 9), 0, "PKU, VAES");
    assert_ne!(seven.ebx & (1 << 9), 0, "fast REP MOVSB stays");
    for function in [0xd, 0x1d, 0x1e, 0x24] {
        assert_eq!(leaf(&entries, function, 0), kvm_cpuid_entry2::default());
    }
    assert_ne!(ecx & (1 << 20), 0, "SSE4.2 stays");
}

#[test]
fn the_guest_is_told_of_the_hypervisor_and_not_of_nested_virtualisation() {
    for host in [HostKind::Native, HostKind::Emulated] {
        let entries = vcpu(2, host, 0);
        let one = leaf(&entries, 0x1, 0).ecx;
        assert_ne!(one & (1 << 31), 0, "hypervisor");
        assert_eq!(one & (1 << 5), 0, "VMX");
        assert_eq!(leaf(&entries, 0x8000_0001, 0).ecx & (1 << 2), 0, "SVM");
        assert_eq!(leaf(&entries, 0x8000_000a, 0).edx, 0, "SVM features");
        assert_eq!(
            leaf(&entries, 0x4000_0001, 0).eax,
            u32::MAX,
            "KVM features pass"
        );
        assert_eq!(leaf(&entries, 0xa, 0).eax, u32::MAX, "the PMU passes");
    }
}

#[test]
fn tsc_deadline_follows_the_capability() {
    for tsc_deadline in [false, true] {
        let machine = Machine {
            tsc_deadline,
            ..machine(1, HostKind::Native)
        };
        let cpuid = of_vcpu(&everything(), machine, 0).unwrap();
        let bit = leaf(cpuid.as_slice(), 0x1, 0).ecx >> 24 & 1;
        assert_eq!(bit, u32::from(tsc_deadline));
    }
}

#[test]
fn each_vcpu_has_its_apic_id_everywhere() {
    for id in 0..4 {
        let entries = vcpu(4, HostKind::Native, id);
        let id = u32::from(id);
        assert_eq!(leaf(&entries, 0x1, 0).ebx >> 24, id);
        assert_eq!(leaf(&entries, 0xb, 0).edx, id);
        assert_eq!(leaf(&entries, 0xb, 1).edx, id);
        assert_eq!(leaf(&entries, 0x8000_001e, 0).eax, id);
    }
}

#[test]
fn the_topology_is_one_package_of_single_threaded_cores() {
    for (cpus, bits) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (64, 6)] {
        let entries = vcpu(cpus, HostKind::Native, 0);
        let cores = u32::from(cpus);
        let smt = leaf(&entries, 0xb, 0);
        assert_eq!((smt.eax, smt.ebx, smt.ecx), (0, 1, 0x100), "{cpus} CPUs");
        let core = leaf(&entries, 0xb, 1);
        assert_eq!(
            (core.eax, core.ebx, core.ecx),
            (bits, cores, 0x201),
            "{cpus} CPUs"
        );
        let one = leaf(&entries, 0x1, 0);
        assert_eq!(one.ebx >> 16 & 0xff, 1 << bits, "{cpus} CPUs");
        assert_eq!(
            one.edx >> 28 & 1,
            u32::from(cpus > 1),
            "HTT with {cpus} CPUs"
        );
        let size = leaf(&entries, 0x8000_0008, 0).ecx;
        assert_eq!(
            (size & 0xff, size >> 12 & 0xf),
            (cores - 1, bits),
            "{cpus} CPUs"
        );
        assert_eq!(leaf(&entries, 0x1f, 0).ebx, 0, "no second opinion");
    }
}

#[test]
fn caches_up_to_level_2_belong_to_a_core_and_the_rest_to_all() {
    let cache = |level: u32| kvm_cpuid_entry2 {
        function: 0x4,
        index: level,
        flags: 1,
        eax: 1 | level << 5 | 0xfff << 14,
        ..Default::default()
    };
    let none = kvm_cpuid_entry2 {
        function: 0x4,
        index: 9,
        flags: 1,
        ..Default::default()
    };
    let host = CpuId::from_entries(&[cache(1), cache(2), cache(3), none]).unwrap();
    let cpuid = of_vcpu(&host, machine(4, HostKind::Native), 0).unwrap();
    let sharing = |index| leaf(cpuid.as_slice(), 0x4, index).eax >> 14 & 0xfff;
    assert_eq!((sharing(1), sharing(2), sharing(3)), (0, 0, 3));
    assert_eq!(
        leaf(cpuid.as_slice(), 0x4, 9).eax,
        0,
        "no cache stays no cache"
    );
    assert_eq!(
        leaf(cpuid.as_slice(), 0x4, 1).eax >> 26,
        3,
        "cores of the package"
    );
}
