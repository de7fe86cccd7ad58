//! What a virtual machine is made of, as the user wrote it.
//!
//! TOML text and `--set` flags become one value per key with its place
//! (`entries`), are checked by one validator (`check`, over `read_key`), and
//! end as a [`Config`], which writes itself as TOML again (`write`).

pub mod error;
pub mod keys;
pub mod schema;
pub mod units;

mod check;
mod check_balloon;
mod entries;
mod load;
mod named_files;
mod read_key;
mod write;

pub use error::ConfigError;
pub use load::{Loaded, Overrides, TEST_FAULTS, from_merged, load, load_str};
pub use schema::*;

#[cfg(test)]
mod bad_input_test;
#[cfg(test)]
mod round_trip_test;
#[cfg(test)]
mod shipped_test;
