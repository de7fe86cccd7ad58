//! Control of a VM while it runs: JSON lines over a Unix socket.
//!
//! ```text
//! aerostat ctl ── caller ──socket── server ──calls──▶ control_thread ── ControlledVm
//!                                          ◀─answers─
//! ```
//!
//! 1. [`socket_file`] makes the socket, for its owner only, and takes it away.
//! 2. [`server`] talks with the clients, each a [`client`] within its bounds, on
//!    a thread of its own. It reads [`command`]s and writes [`reply`]s.
//! 3. [`port`] carries them to the VM and back. A VM of an emulated host has its
//!    end over there, behind [`pipes`].
//! 4. [`control_thread`] carries commands out on a [`vm::ControlledVm`], which
//!    is a running machine or a test's. It never waits for the guest.
//! 5. [`caller`] is the other end of the socket.
//!
//! `configs/README.md` documents the protocol.

pub mod balloon_goal;
pub mod caller;
pub mod client;
mod clients;
pub mod command;
pub mod control_thread;
#[cfg(test)]
mod fake_vm;
pub mod machine_control;
pub mod pipes;
pub mod port;
pub mod reply;
pub mod server;
pub mod socket_file;
pub mod vm;
