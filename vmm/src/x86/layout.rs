//! Where things are: guest physical addresses, ports and interrupt lines.
//!
//! Below 640 KiB lie the structures a kernel needs for its first steps and may
//! overwrite later; the ACPI tables lie in the BIOS area, which every memory
//! map calls reserved.

/// Global descriptor table for the first instructions of the kernel.
pub const GDT_START: u64 = 0x500;

/// PVH `hvm_start_info`.
pub const PVH_INFO_START: u64 = 0x6000;
/// PVH list of modules: one entry, the initrd.
pub const PVH_MODULES_START: u64 = 0x6040;
/// PVH memory map.
pub const PVH_MEMORY_MAP_START: u64 = 0x6080;

/// Linux `boot_params`, the "zero page", 4 KiB.
pub const ZERO_PAGE_START: u64 = 0x7000;

/// Stack top for the 64-bit entry.
pub const BOOT_STACK_TOP: u64 = 0x8ff0;

/// Page map level 4, page directory pointers and page directory of the 64-bit
/// entry: one page each.
pub const PML4_START: u64 = 0x9000;
/// See [`PML4_START`].
pub const PDPT_START: u64 = 0xa000;
/// See [`PML4_START`].
pub const PD_START: u64 = 0xb000;

/// Kernel command line with its terminating zero.
pub const CMDLINE_START: u64 = 0x2_0000;
/// Room for it; Linux takes at most 2 KiB on x86.
pub const CMDLINE_MAX: u64 = 0x1_0000;

/// First address that is not usable RAM below 1 MiB: where a PC's BIOS keeps
/// its extended data area.
pub const LOW_RAM_END: u64 = 0x9_fc00;

/// ACPI tables, beginning with the RSDP, which a kernel that was not told its
/// address looks for from here on.
pub const ACPI_START: u64 = 0xe_0000;

/// Where a BIOS begins, in the last 16 bytes of the first MiB.
pub const RESET_VECTOR: u64 = 0xf_fff0;

/// First address above the BIOS area; a kernel is loaded here or higher.
pub const HIGH_RAM_START: u64 = 0x10_0000;

/// Register window of the balloon device, in the hole below 4 GiB.
pub const BALLOON_MMIO_START: u64 = 0xd000_0000;
/// Interrupt line of the balloon device.
pub const BALLOON_GSI: u32 = 5;

/// I/O APIC, at its architectural address.
pub const IO_APIC_START: u32 = 0xfec0_0000;
/// Local APICs, at their architectural address.
pub const LOCAL_APIC_START: u32 = 0xfee0_0000;

/// Three pages that KVM on Intel needs for itself; the identity map page that
/// it puts at 0xfffb_c000 by default lies just below.
pub const KVM_TSS_START: usize = 0xfffb_d000;

/// First serial port, the console.
pub const COM1_PORT: u16 = 0x3f8;
/// Its interrupt line.
pub const COM1_GSI: u32 = 4;
/// Second serial port, for structured results.
pub const COM2_PORT: u16 = 0x2f8;
/// Its interrupt line.
pub const COM2_GSI: u32 = 3;

/// Sleep control, sleep status and reset register of ACPI, one port each.
pub const POWER_PORT: u16 = 0x600;

/// Command and status port of a keyboard controller, of which only the reset
/// line exists.
pub const KEYBOARD_PORT: u16 = 0x64;
