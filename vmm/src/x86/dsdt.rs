//! The devices a guest cannot find by itself, in ACPI's own byte code.

use acpi_tables::aml::{
    Device, EISAName, IO, Interrupt, Memory32Fixed, Name, Package, Path, ResourceTemplate, Scope,
};
use acpi_tables::{Aml, sdt::Sdt};
use devices::balloon::device::MMIO_LEN;
use devices::serial::SERIAL_PORTS;

use super::acpi::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use super::layout::{BALLOON_GSI, BALLOON_MMIO_START, COM1_GSI, COM1_PORT, COM2_GSI, COM2_PORT};
use super::power_ports::SLEEP_TYPE_OFF;

/// A 16550A-compatible serial port.
const SERIAL_ID: &str = "PNP0501";
/// A virtio device with the MMIO transport; what Linux's driver goes by.
const VIRTIO_MMIO_ID: &str = "LNRO0005";

/// The widths ACPI has for these.
#[expect(clippy::cast_possible_truncation, reason = "asserted below")]
const PORTS: u8 = SERIAL_PORTS as u8;
#[expect(clippy::cast_possible_truncation, reason = "asserted below")]
const BALLOON_WINDOW: (u32, u32) = (BALLOON_MMIO_START as u32, MMIO_LEN as u32);
const _: () = assert!(
    SERIAL_PORTS <= u8::MAX as u64 && BALLOON_MMIO_START + MMIO_LEN <= u32::MAX as u64,
    "ACPI has no room for these numbers"
);

/// The table: two serial ports, the balloon device, and the state "off".
#[must_use]
pub fn table() -> Sdt {
    let mut body = Vec::new();
    let com1 = serial("COM1", 0, COM1_PORT, COM1_GSI);
    let com2 = serial("COM2", 1, COM2_PORT, COM2_GSI);
    let balloon = virtio_mmio("BALN", 0, BALLOON_WINDOW, BALLOON_GSI);
    Scope::new("\\_SB_".into(), vec![&com1, &com2, &balloon]).to_aml_bytes(&mut body);
    // Both values are sleep types, for two sets of registers of which a
    // hardware-reduced machine has but one.
    let off = Package::new(vec![&SLEEP_TYPE_OFF, &SLEEP_TYPE_OFF]);
    Name::new("\\_S5_".into(), &off).to_aml_bytes(&mut body);

    // Revision 2 makes integers 64 bits wide.
    let mut table = Sdt::new(*b"DSDT", 36, 2, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.append_slice(&body);
    table
}

/// A device that is nothing but its AML.
struct DeviceBytes(Vec<u8>);

impl Aml for DeviceBytes {
    fn to_aml_bytes(&self, sink: &mut dyn acpi_tables::AmlSink) {
        sink.vec(&self.0);
    }
}

fn serial(name: &str, uid: u8, port: u16, gsi: u32) -> DeviceBytes {
    let ports = IO::new(port, port, 1, PORTS);
    let id = Name::new("_HID".into(), &EISAName::new(SERIAL_ID));
    device(name, &id, uid, &ports, gsi)
}

fn virtio_mmio(name: &str, uid: u8, (start, len): (u32, u32), gsi: u32) -> DeviceBytes {
    let window = Memory32Fixed::new(true, start, len);
    let id = Name::new("_HID".into(), &VIRTIO_MMIO_ID);
    device(name, &id, uid, &window, gsi)
}

fn device(name: &str, id: &Name, uid: u8, registers: &dyn Aml, gsi: u32) -> DeviceBytes {
    // Edge triggered, active high, not shared.
    let interrupt = Interrupt::new(true, true, false, false, gsi);
    let uid = Name::new("_UID".into(), &uid);
    let resources = ResourceTemplate::new(vec![registers, &interrupt]);
    let resources = Name::new("_CRS".into(), &resources);
    let mut bytes = Vec::new();
    Device::new(Path::new(name), vec![id, &uid, &resources]).to_aml_bytes(&mut bytes);
    DeviceBytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(table: &Sdt, bytes: &[u8]) -> bool {
        table.as_slice().windows(bytes.len()).any(|w| w == bytes)
    }

    #[test]
    fn each_device_has_its_registers_and_its_interrupt() {
        let table = table();
        // I/O descriptor: 16 bits decoded, minimum, maximum, alignment, length.
        assert!(contains(&table, &[0x47, 1, 0xf8, 3, 0xf8, 3, 1, 8]), "COM1");
        assert!(contains(&table, &[0x47, 1, 0xf8, 2, 0xf8, 2, 1, 8]), "COM2");
        // 32-bit fixed memory: length 9, writable, base, length.
        let window = [0x86, 9, 0, 1, 0, 0, 0, 0xd0, 0, 2, 0, 0];
        assert!(contains(&table, &window), "balloon");
        for gsi in [3, 4, 5] {
            // Extended interrupt: length 6, consumer and edge, one of them.
            let interrupt = [0x89, 6, 0, 0b11, 1, gsi, 0, 0, 0];
            assert!(contains(&table, &interrupt), "interrupt {gsi}");
        }
        assert!(contains(&table, b"LNRO0005\0"));
    }

    #[test]
    fn the_state_off_is_sleep_type_5() {
        // NameOp, path, PackageOp, length, two elements, both bytes 5.
        let s5 = [&[8][..], b"\\_S5_", &[0x12, 6, 2, 0x0a, 5, 0x0a, 5]].concat();
        assert!(contains(&table(), &s5));
    }

    #[test]
    fn its_bytes_add_up_to_zero() {
        let table = table();
        let sum = table
            .as_slice()
            .iter()
            .fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(sum, 0);
    }
}
