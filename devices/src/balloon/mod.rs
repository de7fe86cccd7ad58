//! The balloon device. Read it in this order: the guest reports
//! (`guest_reports`) or inflates (`guest_inflates`), the host zeroes
//! ([`host_zeroes`]), the guest may skip (`guest_may_skip`).

pub mod counters;
pub mod device;
pub mod guest_range;
pub mod host_zeroes;

mod balloon_pages;
mod bitmap_buffers;
mod config_space;
mod driver_view;
mod epoll_glue;
mod guest_inflates;
mod guest_may_skip;
mod guest_reports;
mod negotiation;
mod pfn_stream;
mod queue_map;
mod queue_work;
mod spec;
mod work_unit;
