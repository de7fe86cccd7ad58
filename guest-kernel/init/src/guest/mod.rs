//! The machine this is the init of.

pub(crate) mod cmdline;
pub(crate) mod facts;
pub(crate) mod modules;
pub(crate) mod mounts;
pub(crate) mod output;
pub(crate) mod patient_writer;
pub(crate) mod stopping;
