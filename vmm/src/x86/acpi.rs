//! The ACPI tables by which any Linux finds CPUs, interrupt controllers,
//! devices, and the way to power off (ACPI specification 6.5).
//!
//! The machine is hardware-reduced (3.11.1): it has no fixed ACPI hardware, no
//! PM timer, no SCI; all it has is described.

use acpi_tables::Aml;
use acpi_tables::fadt::{FADT, FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use super::dsdt;
use super::layout::{ACPI_START, IO_APIC_START, LOCAL_APIC_START, POWER_PORT};
use super::power_ports::{RESET, RESET_VALUE, SLEEP_CONTROL, SLEEP_STATUS};

/// Who made the tables.
pub(super) const OEM_ID: [u8; 6] = *b"AEROST";
/// Which tables they are.
pub(super) const OEM_TABLE_ID: [u8; 8] = *b"AEROSTAT";
/// Which version of them.
pub(super) const OEM_REVISION: u32 = 1;

/// FADT version 6.3, whose layout `acpi_tables` writes.
const FADT_MAJOR: u8 = 6;
const FADT_MINOR: u8 = 3;
/// IA-PC boot architecture flags (table 5.10): there is no VGA to probe, no
/// CMOS clock to read. That neither 8042 nor legacy devices exist is said by
/// bits 0 and 1 being clear.
const NO_VGA: u16 = 1 << 2;
const NO_CMOS_RTC: u16 = 1 << 5;

/// Writes the tables for `cpus` CPUs, with the RSDP at [`ACPI_START`].
///
/// # Errors
/// If guest RAM ends below them.
pub fn write(memory: &GuestMemoryMmap, cpus: u8) -> Result<(), GuestMemoryError> {
    memory.write_slice(&tables(cpus), GuestAddress(ACPI_START))?;
    Ok(())
}

/// All tables as they lie from [`ACPI_START`] on.
fn tables(cpus: u8) -> Vec<u8> {
    let mut area = Area::after_rsdp();
    let dsdt = area.add(&dsdt::table());
    let fadt = area.add(&fadt(dsdt));
    let madt = area.add(&madt(cpus));
    let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = area.add(&xsdt);
    area.finish(&Rsdp::new(OEM_ID, xsdt))
}

/// Tables one after the other, behind room for the RSDP.
struct Area(Vec<u8>);

impl Area {
    /// Tables are aligned to this; nothing asks for more.
    const ALIGN: usize = 16;

    fn after_rsdp() -> Self {
        Self(vec![0; Rsdp::len()])
    }

    /// Appends `table` and returns its address.
    fn add(&mut self, table: &dyn Aml) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(Self::ALIGN), 0);
        let at = ACPI_START + self.0.len() as u64;
        table.to_aml_bytes(&mut self.0);
        at
    }

    fn finish(mut self, rsdp: &Rsdp) -> Vec<u8> {
        let mut first = Vec::with_capacity(Rsdp::len());
        rsdp.to_aml_bytes(&mut first);
        self.0.splice(..first.len(), first);
        self.0
    }
}

/// Power management and what hardware is not there.
fn fadt(dsdt: u64) -> FADT {
    let port = |offset: u16| {
        let address = u64::from(POWER_PORT + offset);
        GAS::new(
            AddressSpace::SystemIo,
            8,
            0,
            AccessSize::ByteAccess,
            address,
        )
    };
    let mut fadt = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup);
    fadt.major_version = FADT_MAJOR;
    fadt.fadt_minor_version = FADT_MINOR;
    fadt.iapc_boot_arch = (NO_VGA | NO_CMOS_RTC).into();
    fadt.reset_reg = port(RESET);
    fadt.reset_value = RESET_VALUE;
    fadt.sleep_control_reg = port(SLEEP_CONTROL);
    fadt.sleep_status_reg = port(SLEEP_STATUS);
    fadt.hypervisor_vendor_identity = u64::from_le_bytes(OEM_TABLE_ID).into();
    fadt.finalize()
}

/// CPUs and the I/O APIC.
fn madt(cpus: u8) -> MADT {
    let local = LocalInterruptController::Address(LOCAL_APIC_START);
    let mut madt = MADT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION, local);
    for id in 0..cpus {
        madt.add_structure(ProcessorLocalApic::new(id, id, EnabledStatus::Enabled));
    }
    // APIC ids of CPUs and I/O APICs are told apart by their kind.
    madt.add_structure(IoApic::new(0, IO_APIC_START, 0));
    madt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// Follows an address the way a guest does; checks signature and checksum.
    fn table<'a>(area: &'a [u8], address: u64, signature: &[u8; 4]) -> &'a [u8] {
        let at = usize::try_from(address - ACPI_START).unwrap();
        let len = usize::try_from(u32_at(area, at + 4)).unwrap();
        let table = &area[at..at + len];
        assert_eq!(&table[..4], signature);
        assert_eq!(sum(table), 0, "checksum of {signature:?}");
        table
    }

    #[test]
    fn a_guest_finds_every_table_with_a_right_checksum() {
        let area = tables(4);
        assert_eq!(&area[..8], b"RSD PTR ");
        assert_eq!((sum(&area[..20]), sum(&area[..36])), (0, 0));
        let xsdt = table(&area, u64_at(&area, 24), b"XSDT");
        assert_eq!(xsdt.len(), 36 + 2 * 8);
        let fadt = table(&area, u64_at(xsdt, 36), b"FACP");
        table(&area, u64_at(xsdt, 44), b"APIC");
        table(&area, u64_at(fadt, 140), b"DSDT");
    }

    #[test]
    fn the_fadt_points_to_the_power_ports() {
        let mut fadt = Vec::new();
        super::fadt(0).to_aml_bytes(&mut fadt);
        assert_eq!(fadt.len(), 276);
        let flags = u32_at(&fadt, 112);
        assert_ne!(flags & (1 << 20), 0, "hardware-reduced");
        assert_ne!(flags & (1 << 10), 0, "has a reset register");
        let register = |at: usize| (fadt[at..at + 4].to_vec(), u64_at(&fadt, at + 4));
        let port = |port| (vec![1, 8, 0, 1], port);
        assert_eq!(register(116), port(0x602), "reset");
        assert_eq!(fadt[128], 1, "reset value");
        assert_eq!(register(244), port(0x600), "sleep control");
        assert_eq!(register(256), port(0x601), "sleep status");
    }

    #[test]
    fn the_madt_lists_every_cpu_and_the_io_apic() {
        for cpus in [1, 4, 64] {
            let mut madt = Vec::new();
            super::madt(cpus).to_aml_bytes(&mut madt);
            let mut apic_ids = vec![];
            let mut io_apics = vec![];
            let mut at = 44;
            while at < madt.len() {
                match madt[at] {
                    0 => apic_ids.push(madt[at + 3]),
                    1 => io_apics.push(u32_at(&madt, at + 4)),
                    other => panic!("unexpected structure {other}"),
                }
                at += usize::from(madt[at + 1]);
            }
            assert_eq!(apic_ids, (0..cpus).collect::<Vec<_>>());
            assert_eq!(io_apics, [0xfec0_0000]);
        }
    }

    #[test]
    fn the_tables_for_64_cpus_end_below_the_reset_vector() {
        assert!(ACPI_START + tables(64).len() as u64 <= super::super::layout::RESET_VECTOR);
    }
}
