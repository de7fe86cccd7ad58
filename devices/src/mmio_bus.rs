//! Routes guest accesses by address, for port I/O and for MMIO alike.

use std::sync::Arc;

use thiserror::Error;

/// A device that answers reads and writes at offsets within its range.
///
/// Called on a vCPU thread; must not block and must not panic, whatever the
/// guest passes as offset or length.
pub trait BusDevice: Send + Sync {
    /// Fills `data` from `offset`; bytes nothing answers for are 0.
    fn read(&self, offset: u64, data: &mut [u8]);
    /// Takes `data` written at `offset`; what nothing takes is dropped.
    fn write(&self, offset: u64, data: &[u8]);
}

/// Why a range could not be added to a [`Bus`].
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BusError {
    /// The range is empty or passes the end of the address space.
    #[error("bus range {base:#x}+{len:#x} is empty or overflows")]
    BadRange {
        /// First address.
        base: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The range overlaps one that is already there.
    #[error("bus range {base:#x}+{len:#x} overlaps another device")]
    Overlap {
        /// First address.
        base: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Devices by address range. Filled while the machine is built, then only read.
#[derive(Default)]
pub struct Bus {
    /// Sorted by base, never overlapping.
    ranges: Vec<(u64, u64, Arc<dyn BusDevice>)>,
}

impl Bus {
    /// Adds `device` at `base..base + len`.
    ///
    /// # Errors
    /// [`BusError`] if the range is empty, overflows, or overlaps another.
    pub fn insert(
        &mut self,
        base: u64,
        len: u64,
        device: Arc<dyn BusDevice>,
    ) -> Result<(), BusError> {
        let end = base.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or(BusError::BadRange { base, len })?;
        let at = self.ranges.partition_point(|(other, ..)| *other < base);
        let before = at.checked_sub(1).and_then(|i| self.ranges.get(i));
        let overlaps = before.is_some_and(|(b, l, _)| b + l > base)
            || self.ranges.get(at).is_some_and(|(b, ..)| *b < end);
        if overlaps {
            return Err(BusError::Overlap { base, len });
        }
        self.ranges.insert(at, (base, len, device));
        Ok(())
    }

    /// Reads at `addr`. Where no device answers, fills `data` with ones, as an
    /// undecoded bus does, and returns false.
    pub fn read(&self, addr: u64, data: &mut [u8]) -> bool {
        match self.find(addr) {
            Some((offset, device)) => {
                device.read(offset, data);
                true
            }
            None => {
                data.fill(0xff);
                false
            }
        }
    }

    /// Writes at `addr`; returns false where no device answers.
    pub fn write(&self, addr: u64, data: &[u8]) -> bool {
        match self.find(addr) {
            Some((offset, device)) => {
                device.write(offset, data);
                true
            }
            None => false,
        }
    }

    fn find(&self, addr: u64) -> Option<(u64, &dyn BusDevice)> {
        let at = self.ranges.partition_point(|(base, ..)| *base <= addr);
        let (base, len, device) = self.ranges.get(at.checked_sub(1)?)?;
        let offset = addr - base;
        (offset < *len).then_some((offset, device.as_ref()))
    }
}
