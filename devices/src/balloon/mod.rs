//! The balloon device. Read it in this order: the guest reports
//! (`guest_reports`) or inflates (`guest_inflates`), the host zeroes
//! ([`host_zeroes`]), the guest may skip (`guest_may_skip`).

pub mod changes;
pub mod counters;
pub mod device;
pub mod guest_range;
pub mod hinting;
pub mod host_zeroes;
pub mod queue_map;
pub mod statistics;

mod balloon_pages;
mod bitmap_buffers;
mod config_space;
mod driver_view;
mod epoll_glue;
mod guest_hints;
mod guest_inflates;
mod guest_may_skip;
mod guest_reports;
mod guest_statistics;
mod negotiation;
mod pace;
mod pfn_stream;
mod poison;
mod queue_work;
mod readable_bytes;
mod requests;
mod spec;
mod work_unit;
