//! What is measured, and the memory it is measured on.

pub(crate) mod anonymous_memory;
pub(crate) mod hugetlb_file;
pub(crate) mod meminfo;
pub(crate) mod memory;
pub(crate) mod page_settings;
pub(crate) mod perf;
pub(crate) mod shared_memory;
pub(crate) mod vmstat;
pub(crate) mod zero_scan;
