//! Carries control between the clients of this machine and the inner run.

use std::os::fd::BorrowedFd;

use crate::control::port::{ControlPort, FromVm, ToVm};

/// Longest line of the inner run; one that is longer is dropped.
const MAX_LINE: usize = 1 << 20;

/// The port of this machine's clients, whose VM is in the emulated host.
pub(super) struct ControlRelay {
    port: ControlPort,
    /// An answer whose end has not come yet.
    unfinished: Vec<u8>,
}

impl ControlRelay {
    pub(super) fn new(port: ControlPort) -> Self {
        Self {
            port,
            unfinished: Vec::new(),
        }
    }

    /// Readable while a call may be waiting.
    pub(super) fn waiting(&self) -> BorrowedFd<'_> {
        self.port.waiting()
    }

    /// The lines of the calls that wait, each to be sent by itself.
    pub(super) fn calls(&self) -> Vec<Vec<u8>> {
        let calls = self.port.take_all().into_iter();
        calls
            .filter(|call| *call != ToVm::End)
            .filter_map(|call| serde_json::to_vec(&call).ok())
            .map(|mut line| {
                line.push(b'\n');
                line
            })
            .collect()
    }

    /// Takes the next bytes the inner run says.
    pub(super) fn answers(&mut self, bytes: &[u8]) {
        self.unfinished.extend_from_slice(bytes);
        while let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            match serde_json::from_slice::<FromVm>(&line) {
                Ok(said) => self.port.say(said),
                Err(error) => log::warn!("an answer of the inner run was not understood: {error}"),
            }
        }
        if self.unfinished.len() > MAX_LINE {
            self.unfinished.clear();
        }
    }
}
