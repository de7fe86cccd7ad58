//! The step language: what the words after `--` on the kernel command line mean.

mod argument;
pub(crate) mod page_kind;
pub(crate) mod program;
pub(crate) mod size;
pub(crate) mod table;
