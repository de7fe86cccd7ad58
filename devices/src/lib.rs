#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod balloon;
pub mod interrupt;
pub mod mmio_bus;
pub mod serial;

mod virtio;
