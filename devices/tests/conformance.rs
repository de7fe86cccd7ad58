//! The conformance checklist as tests, over real rings in guest memory. The
//! name of a test starts with the row it is about; one file per section.
// A test program has no public surface.
#![allow(unreachable_pub)]
// Helpers of tests may panic as tests do; clippy only knows the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod fake_guest;

mod absent_memory;
mod balloon_model;
mod features_and_init;
mod hinting;
mod hinting_end;
mod hostile_guest;
mod hostile_inflate;
mod inflate_and_deflate;
mod init_on_inflate;
mod mmio_bus;
mod new_bits;
mod own_writes;
mod page_reporting;
mod poison;
mod reset;
mod serial_port;
mod split_virtqueue;
mod statistics;
mod statistics_requests;
mod virtio_mmio;
mod virtio_mmio_state;
