//! The one thing of a BIOS that a kernel may call: the way to start over.
//!
//! A kernel with EFI support takes a hardware-reduced machine for one with EFI
//! (`efi_reboot_required()` in Linux) and resets through it. Where there is no
//! EFI, it falls back on a jump to where a BIOS begins, in real mode, and not on
//! the reset register of ACPI. So there is code there that writes to that register.

use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use super::layout::{POWER_PORT, RESET_VECTOR};
use super::power_ports::{RESET, RESET_VALUE};

/// Writes the code.
///
/// # Errors
/// If guest RAM ends below it.
pub fn write(memory: &GuestMemoryMmap) -> Result<(), GuestMemoryError> {
    memory.write_slice(&code(), GuestAddress(RESET_VECTOR))
}

/// 16-bit code; up to the end of the first MiB there is room for 16 bytes.
fn code() -> [u8; 9] {
    let [low, high] = (POWER_PORT + RESET).to_le_bytes();
    #[rustfmt::skip]
    let code = [
        0xba, low, high,   // mov dx, the reset register
        0xb0, RESET_VALUE, // mov al, the value it wants
        0xee,              // out dx, al
        0xf4,              // hlt
        0xeb, 0xfd,        // jmp to the hlt
    ];
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_to_the_bios_finds_code_that_resets() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        write(&memory).unwrap();
        let mut code = [0; 9];
        // Segment 0xffff, offset 0: where Linux jumps, and 8086s began.
        memory
            .read_slice(&mut code, GuestAddress(0xffff << 4))
            .unwrap();
        assert_eq!(code, [0xba, 0x02, 0x06, 0xb0, 0x01, 0xee, 0xf4, 0xeb, 0xfd]);
    }
}
