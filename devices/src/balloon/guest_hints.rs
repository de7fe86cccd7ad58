//! The hint queue: the guest names memory that is free at the moment, as the
//! writable buffers of chains, between two commands, which are readable ones.

use thiserror::Error;
use vm_memory::GuestMemoryMmap;

use super::guest_range::{self, GuestRange};
use super::hinting::{HintingEnd, Hints};
use super::host_zeroes::{HostWork, Scratch, ZeroBy};
use super::readable_bytes::{self, Unreadable};
use super::spec::CMD_ID_BYTES;
use super::work_unit::{UNIT, units};
use crate::virtio::chain::Buffer;

/// Why a command of the driver is none; the run is over.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BadCommand {
    #[error("a hinting command: {0}")]
    Unreadable(#[from] Unreadable),
    #[error("a hinting command is not of {CMD_ID_BYTES} bytes")]
    Length,
}

/// Handles hints; holds only room that is used again for each chain.
#[derive(Debug, Default)]
pub(crate) struct GuestHints {
    command: Vec<u8>,
    hinted: Vec<GuestRange>,
    scratch: Scratch,
}

impl GuestHints {
    /// Takes in the command of a chain, if it has one, then its hints. Memory
    /// is discarded only if `discard`, and only while the run is on that it was
    /// hinted for: not before the driver sent its id, not after its end.
    ///
    /// # Errors
    /// [`BadCommand`], which ends the run.
    pub(crate) fn handle(
        &mut self,
        chain: &[Buffer],
        hints: &Hints,
        discard: bool,
        memory: &GuestMemoryMmap,
        host: &HostWork<'_>,
    ) -> Result<(), BadCommand> {
        // The direction tells a command from a page, not the length.
        if chain.first().is_some_and(|first| !first.writable) {
            let command = self.command(chain, memory, host);
            if command.is_err() {
                hints.end(HintingEnd::BadCommand);
            }
            hints.received(command?);
        }
        if let Some(run) = hints.accepting() {
            self.read(chain, memory, host);
            let hinted = self.hinted.iter().map(|range| range.len()).sum();
            hints.count(run, hinted, 0);
            host.counters.add(|c| &mut c.hinted_bytes, hinted);
            if discard {
                self.discard(run, hints, host);
            }
        }
        Ok(())
    }

    /// The command at the start of the chain.
    fn command(
        &mut self,
        chain: &[Buffer],
        memory: &GuestMemoryMmap,
        host: &HostWork<'_>,
    ) -> Result<u32, BadCommand> {
        // One byte more, to see that there are too many.
        let limit = CMD_ID_BYTES + 1;
        readable_bytes::read(chain, limit, memory, host.ram, &mut self.command)?;
        let id = <[u8; CMD_ID_BYTES]>::try_from(self.command.as_slice());
        id.map(u32::from_le_bytes).map_err(|_| BadCommand::Length)
    }

    /// Takes the hints out of the chain.
    fn read(&mut self, chain: &[Buffer], memory: &GuestMemoryMmap, host: &HostWork<'_>) {
        self.hinted.clear();
        let pages = chain.iter().filter(|b| b.writable && b.len > 0);
        let mut not_ram = 0;
        for page in pages {
            let range = GuestRange::new(page.addr, page.len.into());
            match range.filter(|range| range.is_ram(memory)) {
                Some(range) => self.hinted.push(range),
                None => not_ram += 1,
            }
        }
        if not_ram > 0 {
            host.counters.add(|c| &mut c.not_ram, not_ram);
            host.log
                .warn(format_args!("{not_ram} hinted ranges are not guest RAM"));
        }
    }

    fn discard(&mut self, run: u32, hints: &Hints, host: &HostWork<'_>) {
        guest_range::merge(&mut self.hinted);
        let parts = self.hinted.iter();
        for unit in parts.flat_map(|range| units(*range, ZeroBy::Discarding, UNIT)) {
            // The owner may end a run at any time.
            if hints.accepting() != Some(run) {
                return;
            }
            let discarded = host.release(&[unit], &mut self.scratch);
            hints.count(run, 0, discarded);
            host.counters
                .add(|c| &mut c.hint_discarded_bytes, discarded);
        }
    }
}
