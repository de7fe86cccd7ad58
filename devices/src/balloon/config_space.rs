//! The configuration space: what the host asks for, what the guest says.

use super::spec::{CONFIG_ACTUAL, CONFIG_LEN, CONFIG_NUM_PAGES};

/// Two little-endian words (virtio 1.3, 5.5.4).
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ConfigSpace {
    /// Balloon size the host asks for, in 4 KiB pages.
    num_pages: u32,
    /// Balloon size the guest says it has: for display, trusted for nothing.
    actual: u32,
}

impl ConfigSpace {
    /// A space that asks for `num_pages`.
    pub(crate) fn new(num_pages: u32) -> Self {
        Self {
            num_pages,
            actual: 0,
        }
    }

    /// Asks for another size; returns whether that is a change.
    pub(crate) fn set_num_pages(&mut self, num_pages: u32) -> bool {
        std::mem::replace(&mut self.num_pages, num_pages) != num_pages
    }

    /// What the guest says it has.
    pub(crate) fn actual(&self) -> u32 {
        self.actual
    }

    /// Forgets what the guest said.
    pub(crate) fn reset(&mut self) {
        self.actual = 0;
    }

    /// Any access size at any offset; past the end reads 0.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) {
        let mut image = [0; CONFIG_LEN];
        put(&mut image, CONFIG_NUM_PAGES, self.num_pages);
        put(&mut image, CONFIG_ACTUAL, self.actual);
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let from = image.iter().skip(skipped);
        for (to, from) in data.iter_mut().zip(from) {
            *to = *from;
        }
    }

    /// Any access size at any offset; only `actual` takes what is written.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut actual = self.actual.to_le_bytes();
        for (at, byte) in (offset..).zip(data) {
            let index = usize::try_from(at).ok();
            let index = index.and_then(|at| at.checked_sub(CONFIG_ACTUAL));
            if let Some(to) = index.and_then(|index| actual.get_mut(index)) {
                *to = *byte;
            }
        }
        self.actual = u32::from_le_bytes(actual);
    }
}

fn put(image: &mut [u8; CONFIG_LEN], at: usize, word: u32) {
    for (to, from) in image.iter_mut().skip(at).zip(word.to_le_bytes()) {
        *to = from;
    }
}
