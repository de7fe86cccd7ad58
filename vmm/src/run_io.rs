//! What a run is connected to.

use std::fs::File;
use std::io;
use std::time::Instant;

use vmm_sys_util::eventfd::EventFd;

use crate::control::port::ControlPort;

/// The outside ends of a run, the same for a native and an emulated host.
pub struct RunIo {
    /// Takes the console's output; may block, which never holds up a vCPU.
    pub output: Box<dyn io::Write + Send>,
    /// Console input, or none.
    pub input: Option<File>,
    /// Becomes readable when the run is to stop as soon as possible.
    pub stop: EventFd,
    /// Where it is controlled from while it runs, or not at all.
    pub control: Option<ControlPort>,
    /// When Aerostat was executed.
    pub exec: Instant,
}
