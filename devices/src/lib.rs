//! An in-process virtio-balloon device over virtio-mmio, and the few small
//! devices a microVM needs beside it.
//!
//! The crate knows neither KVM nor how guest memory is backed: interrupts go
//! out through [`interrupt::Interrupt`], effects on guest memory through
//! [`balloon::host_zeroes::ZeroGuestRange`].
#![forbid(unsafe_code)]

pub mod balloon;
pub mod interrupt;
pub mod mmio_bus;
pub mod serial;

mod virtio;
