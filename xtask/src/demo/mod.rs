//! `cargo xtask demo`: baseline and optimized VMs on 2M and 1G pages, and the loop
//! they show as one table.

mod boot;
pub(crate) mod guest;
mod machine;
mod show;
mod verdict;

pub(crate) use show::{Options, demo};
