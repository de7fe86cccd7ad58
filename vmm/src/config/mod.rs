//! What a virtual machine is made of, as the user wrote it.

pub mod schema;

pub use schema::*;
