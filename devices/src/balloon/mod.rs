//! The balloon device. Read it in this order: the guest reports
//! (`guest_reports`), the host zeroes ([`host_zeroes`]), the guest may skip
//! (`guest_may_skip`).

pub mod counters;
pub mod device;
pub mod guest_range;
pub mod host_zeroes;
