//! An x86-64 PC with just enough in it for Linux, one noun per file.

pub mod acpi;
pub mod address_map;
pub mod bzimage_boot;
pub mod command_line;
pub mod cpu_state;
pub mod cpuid;
pub mod dsdt;
pub mod initrd;
pub mod kernel_image;
pub mod layout;
pub mod msrs;
pub mod power_ports;
pub mod pvh_boot;
pub mod reset_vector;
