//! The `aerostat` command.
fn main() {}
