//! Reading every byte of fresh memory.

use serde::Serialize;

use crate::steps::page_kind::BASE_PAGE_BYTES;

/// What reading every byte found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ZeroScan {
    /// Bytes read.
    pub(crate) bytes: u64,
    /// Bytes that were not zero.
    pub(crate) nonzero_bytes: u64,
    /// Base pages that held such a byte.
    pub(crate) nonzero_pages: u64,
    /// Where the first such byte is, from the start of the memory.
    pub(crate) first_nonzero_offset_bytes: Option<u64>,
}

impl ZeroScan {
    /// Adds what was found in the memory right behind.
    pub(crate) fn append(&mut self, next: Self) {
        let first = next.first_nonzero_offset_bytes;
        self.first_nonzero_offset_bytes = self
            .first_nonzero_offset_bytes
            .or(first.map(|offset| self.bytes + offset));
        self.bytes += next.bytes;
        self.nonzero_bytes += next.nonzero_bytes;
        self.nonzero_pages += next.nonzero_pages;
    }
}

const ZEROS: [u8; 4096] = [0; 4096];

/// Reads every byte of `memory`.
pub(crate) fn scan(memory: &[u8]) -> ZeroScan {
    let mut found = ZeroScan {
        bytes: memory.len() as u64,
        ..ZeroScan::default()
    };
    let mut offset = 0;
    for page in memory.chunks(ZEROS.len()) {
        // Comparing whole pages is as fast as memory can be read.
        if Some(page) != ZEROS.get(..page.len()) {
            let nonzero = |byte: &&u8| **byte != 0;
            found.nonzero_bytes += page.iter().filter(nonzero).count() as u64;
            found.nonzero_pages += 1;
            if found.first_nonzero_offset_bytes.is_none() {
                let within = page.iter().position(|byte| *byte != 0).unwrap_or(0) as u64;
                found.first_nonzero_offset_bytes = Some(offset + within);
            }
        }
        offset += BASE_PAGE_BYTES;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zeros_are_zero() {
        let found = scan(&[0; 10000]);
        assert_eq!((found.bytes, found.nonzero_bytes), (10000, 0));
        assert_eq!(found.first_nonzero_offset_bytes, None);
    }

    proptest! {
        #[test]
        fn every_written_byte_is_found(
            writes in prop::collection::btree_map(0_usize..20000, 1_u8.., 1..40)
        ) {
            let mut memory = vec![0_u8; 20000];
            for (offset, value) in &writes {
                memory[*offset] = *value;
            }
            let found = scan(&memory);
            let pages: std::collections::BTreeSet<_> = writes.keys().map(|at| at / 4096).collect();
            prop_assert_eq!(found.nonzero_bytes, writes.len() as u64);
            prop_assert_eq!(found.nonzero_pages, pages.len() as u64);
            prop_assert_eq!(
                found.first_nonzero_offset_bytes,
                writes.keys().next().map(|at| *at as u64)
            );
        }

        #[test]
        fn parts_add_up_to_the_whole(
            writes in prop::collection::vec(0_usize..20000, 0..4),
            pages in 0_usize..5,
        ) {
            let mut memory = vec![0_u8; 20000];
            for offset in writes {
                memory[offset] = 1;
            }
            let (front, back) = memory.split_at(pages * 4096);
            let mut found = scan(front);
            found.append(scan(back));
            prop_assert_eq!(found, scan(&memory));
        }
    }
}
