//! A guest without a CPU: a driver that talks to the device through its
//! registers and real rings, and a host that really zeroes.

pub mod chain_rules;
pub mod driver;
pub mod host;
pub mod log_lines;
pub mod machine;
pub mod ring;

pub use driver::{Driver, Numbering, Queue};
pub use host::{FakeLine, FakeRam};
pub use machine::{Machine, full_spec, reporting_spec};
pub use ring::{Buf, Ring, readable, writable};

/// Feature bits as masks (virtio 1.3, 5.5.3 and 6).
pub const MUST_TELL_HOST: u64 = 1 << 0;
pub const STATS_VQ: u64 = 1 << 1;
pub const DEFLATE_ON_OOM: u64 = 1 << 2;
pub const FREE_PAGE_HINT: u64 = 1 << 3;
pub const PAGE_POISON: u64 = 1 << 4;
pub const PAGE_REPORTING: u64 = 1 << 5;
pub const DEVICE_INIT_REPORTED: u64 = 1 << 6;
pub const DEVICE_INIT_ON_INFLATE: u64 = 1 << 7;
pub const EVENT_IDX: u64 = 1 << 29;
pub const VERSION_1: u64 = 1 << 32;

/// Bytes of the unit of page numbers.
pub const PAGE: u64 = 4096;
/// Backing page of the fake host.
pub const HUGE: u64 = 2 << 20;

/// Guest RAM: two regions with a hole between them.
pub const LOW: std::ops::Range<u64> = 0..(16 << 20);
pub const HIGH: std::ops::Range<u64> = (32 << 20)..(48 << 20);
/// Where requests put what they pass (page numbers).
pub const SCRATCH: u64 = 0x8_0000;
/// Where inflate requests have their bitmap.
pub const BITMAP: u64 = 0x18_0000;
/// The first huge page that holds neither rings nor scratch.
pub const FREE: u64 = HUGE;
