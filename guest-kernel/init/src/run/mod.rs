//! Running the steps.

pub(crate) mod balloon;
pub(crate) mod command;
pub(crate) mod console;
pub(crate) mod hold;
pub(crate) mod hugetlb;
pub(crate) mod populate;
pub(crate) mod pressure;
pub(crate) mod reporting;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod stress;
