//! Builds the guest kernel: a pinned release, our patches, our configuration.
//!
//! 1. [`base`]: what is pinned.
//! 2. [`key`]: everything that decides what comes out, as one short name.
//! 3. [`store`]: if a finished build of that name is there and intact, done.
//! 4. [`source`]: otherwise the pinned source is found or fetched, and verified.
//! 5. [`series`]: it is unpacked afresh and the patches are applied.
//! 6. [`config`]: the fragments are merged, and no symbol may get lost.
//! 7. [`compile`]: make; then [`store`] takes the results in.

mod base;
mod build;
mod compile;
mod config;
mod debian;
mod error;
mod files;
mod hash;
mod key;
mod options;
mod progress;
mod series;
mod source;
mod store;
pub(crate) mod tools;
mod workshop;

pub(crate) use options::{Options, build_default, run, series, workshop};
pub(crate) use series::{Patch, Series, subject};
pub(crate) use workshop::{Workshop, git};
