//! The configuration space: what the host asks for, what the guest says.

use super::spec::{CONFIG_ACTUAL, CONFIG_CMD_ID, CONFIG_LEN, CONFIG_NUM_PAGES, CONFIG_POISON};

/// Four little-endian words (virtio 1.3, 5.5.4).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigSpace {
    /// Balloon size the host asks for, in 4 KiB pages.
    num_pages: u32,
    /// Balloon size the guest says it has: for display, trusted for nothing.
    actual: u32,
    /// The hinting command for the guest.
    cmd_id: u32,
    /// What the guest says it fills free pages with.
    poison_val: u32,
    /// Whether that can be said at all, and whether now.
    poison: PoisonField,
}

/// Whether the guest may write poison_val.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoisonField {
    /// Page poison is not offered: it means nothing, and reads 0.
    Absent,
    /// Until DRIVER_OK.
    Open,
    /// From DRIVER_OK on: the value was taken.
    Taken,
}

/// What a write did, beside taking bytes in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// `actual` is another one now.
    pub(crate) new_actual: bool,
    /// It was for poison_val, too late, and dropped.
    pub(crate) late_poison: bool,
}

impl ConfigSpace {
    /// A space that asks for `num_pages`; `poison_offered` is whether the guest
    /// may say what it fills free pages with.
    pub(crate) fn new(num_pages: u32, poison_offered: bool) -> Self {
        Self {
            num_pages,
            actual: 0,
            cmd_id: 0,
            poison_val: 0,
            poison: if poison_offered {
                PoisonField::Open
            } else {
                PoisonField::Absent
            },
        }
    }

    /// Asks for another size; returns whether that is a change.
    pub(crate) fn set_num_pages(&mut self, num_pages: u32) -> bool {
        std::mem::replace(&mut self.num_pages, num_pages) != num_pages
    }

    /// Shows another hinting command; returns whether that is a change.
    pub(crate) fn set_cmd_id(&mut self, cmd_id: u32) -> bool {
        std::mem::replace(&mut self.cmd_id, cmd_id) != cmd_id
    }

    /// What the guest says it has.
    pub(crate) fn actual(&self) -> u32 {
        self.actual
    }

    /// Takes what the guest says it fills free pages with; it cannot change
    /// that any more before a reset.
    pub(crate) fn take_poison(&mut self) -> u32 {
        if self.poison == PoisonField::Open {
            self.poison = PoisonField::Taken;
        }
        self.poison_val
    }

    /// Forgets what the guest said, and what it was told to hint at.
    pub(crate) fn reset(&mut self) {
        let poison_offered = self.poison != PoisonField::Absent;
        *self = Self::new(self.num_pages, poison_offered);
    }

    /// Any access size at any offset; past the end reads 0.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) {
        let mut image = [0; CONFIG_LEN];
        put(&mut image, CONFIG_NUM_PAGES, self.num_pages);
        put(&mut image, CONFIG_ACTUAL, self.actual);
        put(&mut image, CONFIG_CMD_ID, self.cmd_id);
        put(&mut image, CONFIG_POISON, self.poison_val);
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let from = image.iter().skip(skipped);
        for (to, from) in data.iter_mut().zip(from) {
            *to = *from;
        }
    }

    /// Any access size at any offset; only `actual` takes what is written, and
    /// poison_val until DRIVER_OK.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Written {
        let actual = patched(self.actual, CONFIG_ACTUAL, offset, data);
        let new_actual = actual.is_some_and(|new| new != self.actual);
        self.actual = actual.unwrap_or(self.actual);

        let poison = patched(self.poison_val, CONFIG_POISON, offset, data);
        if self.poison == PoisonField::Open {
            self.poison_val = poison.unwrap_or(self.poison_val);
        }
        Written {
            new_actual,
            late_poison: poison.is_some() && self.poison == PoisonField::Taken,
        }
    }
}

/// The word at `place` after a write, or `None` if that does not reach it.
fn patched(word: u32, place: usize, offset: u64, data: &[u8]) -> Option<u32> {
    let mut bytes = word.to_le_bytes();
    let mut reached = false;
    for (at, byte) in (offset..).zip(data) {
        let index = usize::try_from(at).ok();
        let index = index.and_then(|at| at.checked_sub(place));
        if let Some(to) = index.and_then(|index| bytes.get_mut(index)) {
            *to = *byte;
            reached = true;
        }
    }
    reached.then(|| u32::from_le_bytes(bytes))
}

fn put(image: &mut [u8; CONFIG_LEN], at: usize, word: u32) {
    for (to, from) in image.iter_mut().skip(at).zip(word.to_le_bytes()) {
        *to = from;
    }
}
