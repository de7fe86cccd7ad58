//! The state in which the boot CPU enters the kernel.
//!
//! Two ways in. The 64-bit boot protocol of Linux (Documentation/arch/x86/boot.rst,
//! "64-bit Boot Protocol"): long mode, the kernel and all it is passed mapped
//! one to one, RSI points to the zero page. PVH (Xen's pvh.pandoc): 32-bit
//! protected mode without paging, EBX points to the start info.

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use super::layout::{
    BOOT_STACK_TOP, GDT_START, PD_START, PDPT_START, PML4_START, PVH_INFO_START, ZERO_PAGE_START,
};

/// Control register 0: protected mode, extension type (always 1), paging.
const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;
const CR0_PG: u64 = 1 << 31;
/// Control register 4: physical address extension.
const CR4_PAE: u64 = 1 << 5;
/// Extended feature enable register: long mode enabled and active.
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
/// Bit 1 of RFLAGS is always set; interrupts are off.
const RFLAGS_RESERVED: u64 = 1 << 1;

/// Page table entry: present, writable.
const PTE_TABLE: u64 = 0b11;
/// The same, and a 2 MiB page.
const PTE_2M: u64 = 0b11 | (1 << 7);
/// Entries of a page table.
const PTE_COUNT: u64 = 512;

/// Selectors the 64-bit protocol asks for: `__BOOT_CS` and `__BOOT_DS`.
const BOOT_CS: u16 = 0x10;
const BOOT_DS: u16 = 0x18;
const BOOT_TSS: u16 = 0x20;

/// Segment types (Intel SDM volume 3, 3.4.5.1 and 3.5).
const TYPE_CODE_READ_ACCESSED: u8 = 0xb;
const TYPE_DATA_WRITE_ACCESSED: u8 = 0x3;
const TYPE_TSS_BUSY: u8 = 0xb;

/// How and where the kernel is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// 64-bit boot protocol, at this address.
    Linux64(u64),
    /// PVH, at this address.
    Pvh(u64),
}

impl EntryState {
    /// Writes the descriptor and page tables this state needs into guest memory.
    ///
    /// # Errors
    /// If guest RAM ends below them.
    pub fn write_tables(&self, memory: &GuestMemoryMmap) -> Result<(), GuestMemoryError> {
        let (code, data, tss) = self.segments();
        // Null, unused, and the three from selector 0x10 on.
        let gdt = [0, 0, descriptor(&code), descriptor(&data), descriptor(&tss)];
        for (at, entry) in (GDT_START..).step_by(8).zip(gdt) {
            memory.write_obj(entry, GuestAddress(at))?;
        }
        if let Self::Linux64(_) = self {
            memory.write_obj(PDPT_START | PTE_TABLE, GuestAddress(PML4_START))?;
            memory.write_obj(PD_START | PTE_TABLE, GuestAddress(PDPT_START))?;
            // The first GiB: nothing the kernel looks at before it has page
            // tables of its own lies higher.
            for n in 0..PTE_COUNT {
                memory.write_obj((n << 21) | PTE_2M, GuestAddress(PD_START + n * 8))?;
            }
        }
        Ok(())
    }

    /// Puts segments and control registers into `sregs`.
    pub fn apply(&self, sregs: &mut kvm_sregs) {
        let (code, data, tss) = self.segments();
        sregs.cs = code;
        sregs.ds = data;
        sregs.es = data;
        sregs.fs = data;
        sregs.gs = data;
        sregs.ss = data;
        sregs.tr = tss;
        sregs.gdt.base = GDT_START;
        sregs.gdt.limit = 5 * 8 - 1;
        sregs.idt.base = 0;
        sregs.idt.limit = 0;
        match self {
            Self::Linux64(_) => {
                sregs.cr0 = CR0_PE | CR0_ET | CR0_PG;
                sregs.cr3 = PML4_START;
                sregs.cr4 = CR4_PAE;
                sregs.efer = EFER_LME | EFER_LMA;
            }
            Self::Pvh(_) => {
                sregs.cr0 = CR0_PE | CR0_ET;
                sregs.cr4 = 0;
                sregs.efer = 0;
            }
        }
    }

    /// General registers.
    #[must_use]
    pub fn registers(&self) -> kvm_regs {
        let common = kvm_regs {
            rflags: RFLAGS_RESERVED,
            ..Default::default()
        };
        match self {
            Self::Linux64(entry) => kvm_regs {
                rip: *entry,
                rsi: ZERO_PAGE_START,
                rsp: BOOT_STACK_TOP,
                rbp: BOOT_STACK_TOP,
                ..common
            },
            Self::Pvh(entry) => kvm_regs {
                rip: *entry,
                rbx: PVH_INFO_START,
                ..common
            },
        }
    }

    /// Code, data and task state segment.
    fn segments(&self) -> (kvm_segment, kvm_segment, kvm_segment) {
        let long = matches!(self, Self::Linux64(_));
        let flat = kvm_segment {
            base: 0,
            limit: 0xffff_ffff,
            present: 1,
            s: 1,
            g: 1,
            ..Default::default()
        };
        let code = kvm_segment {
            selector: BOOT_CS,
            type_: TYPE_CODE_READ_ACCESSED,
            l: u8::from(long),
            db: u8::from(!long),
            ..flat
        };
        let data = kvm_segment {
            selector: BOOT_DS,
            type_: TYPE_DATA_WRITE_ACCESSED,
            db: 1,
            ..flat
        };
        let tss = kvm_segment {
            selector: BOOT_TSS,
            type_: TYPE_TSS_BUSY,
            limit: 0x67,
            s: 0,
            g: 0,
            ..flat
        };
        (code, data, tss)
    }
}

/// The segment as a descriptor (Intel SDM volume 3, figure 3-8).
fn descriptor(segment: &kvm_segment) -> u64 {
    let limit = u64::from(segment.limit) >> if segment.g == 1 { 12 } else { 0 };
    let access = u64::from(segment.type_)
        | u64::from(segment.s) << 4
        | u64::from(segment.dpl) << 5
        | u64::from(segment.present) << 7;
    let flags = u64::from(segment.avl)
        | u64::from(segment.l) << 1
        | u64::from(segment.db) << 2
        | u64::from(segment.g) << 3;
    (limit & 0xffff)
        | (segment.base & 0xff_ffff) << 16
        | access << 40
        | (limit >> 16 & 0xf) << 48
        | flags << 52
        | (segment.base >> 24 & 0xff) << 56
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_the_ones_every_boot_loader_writes() {
        let (code64, data, _) = EntryState::Linux64(0).segments();
        assert_eq!(descriptor(&code64), 0x00af_9b00_0000_ffff);
        assert_eq!(descriptor(&data), 0x00cf_9300_0000_ffff);
        let (code32, _, tss) = EntryState::Pvh(0).segments();
        assert_eq!(descriptor(&code32), 0x00cf_9b00_0000_ffff);
        assert_eq!(descriptor(&tss), 0x0000_8b00_0000_0067);
    }

    #[test]
    fn linux_is_entered_in_long_mode_with_the_zero_page_in_rsi() {
        let entry = EntryState::Linux64(0x10_0200);
        let mut sregs = kvm_sregs::default();
        entry.apply(&mut sregs);
        assert_eq!(sregs.cr0, 0x8000_0011);
        assert_eq!(sregs.efer, 0x500);
        assert_eq!((sregs.cs.l, sregs.cs.db), (1, 0));
        let regs = entry.registers();
        assert_eq!((regs.rip, regs.rsi), (0x10_0200, 0x7000));
        assert_eq!(regs.rflags, 2, "interrupts are off");
    }

    #[test]
    fn pvh_is_entered_in_protected_mode_without_paging() {
        let entry = EntryState::Pvh(0x100_0000);
        let mut sregs = kvm_sregs {
            efer: 0x500,
            cr4: 0x20,
            ..Default::default()
        };
        entry.apply(&mut sregs);
        assert_eq!((sregs.cr0, sregs.cr4, sregs.efer), (0x11, 0, 0));
        assert_eq!((sregs.cs.l, sregs.cs.db), (0, 1));
        assert_eq!(entry.registers().rbx, 0x6000);
    }

    #[test]
    fn the_page_tables_map_the_first_gib_one_to_one() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        EntryState::Linux64(0).write_tables(&memory).unwrap();
        let read = |at| memory.read_obj::<u64>(GuestAddress(at)).unwrap();
        let address = 0x3fe0_1234_u64;
        let directory_pointers = read(PML4_START) & !0xfff;
        let directory = read(directory_pointers) & !0xfff;
        let entry = read(directory + (address >> 21) * 8);
        assert_eq!(entry & 0x83, 0x83, "present, writable, 2 MiB");
        assert_eq!((entry & !0xfff) + (address & 0x1f_ffff), address);
    }

    #[test]
    fn ram_that_ends_below_the_tables_is_an_error() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        assert!(EntryState::Linux64(0).write_tables(&memory).is_err());
    }
}
