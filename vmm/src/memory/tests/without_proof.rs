//! What is left when a kernel does not do what is expected: every range still
//! reads zero, only at a higher price.

use devices::balloon::host_zeroes::{ZeroBy, ZeroGuestRange};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::guest::*;
use crate::memory::mapping::Backing;
use crate::memory::proof_of_zero::DiscardProof;
use crate::memory::residency::Residency;
use crate::memory::self_test;

fn map(backing: Backing, size: usize) -> GuestMemoryMmap {
    let region = GuestRegionMmap::new(backing.map(size).unwrap(), GuestAddress(0)).unwrap();
    GuestMemoryMmap::from_regions(vec![region]).unwrap()
}

#[test]
fn with_residency_unknown_or_discards_unproved_a_range_still_reads_zero() {
    for backed in ALL_BUT_1G {
        let Some(_held) = backed.hold(8 * MIB) else {
            return;
        };
        let backing = Backing::of(&backed.config(8 * MIB)).unwrap();
        for (known, proof, released) in [
            (true, DiscardProof::None, 0),
            (false, DiscardProof::None, 0),
            // Not known to have been there, so not counted.
            (false, DiscardProof::BySelfTest, 0),
        ] {
            let memory = map(backing, 8 << 20);
            let mut zeroer = zeroer(memory.clone(), backing);
            zeroer.discard_proof = proof;
            if !known {
                zeroer.residency = Residency::Unknown;
            }
            for by in [ZeroBy::Discarding, ZeroBy::Writing] {
                let what = format!("{backed:?}, residency known: {known}, {proof:?}, {by:?}");
                memory
                    .write_slice(&vec![DIRT; 8 << 20], GuestAddress(0))
                    .unwrap();
                let (start, end) = (MIB + 3, 6 * MIB + 5);
                let zeroed = zeroer.zero(range(start, end - start), by).unwrap();
                assert_eq!(zeroed.released(), released, "{what}");
                let mut bytes = vec![1; 8 << 20];
                memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
                let wrong = (0u64..)
                    .zip(&bytes)
                    .find(|&(at, &byte)| byte != if at >= start && at < end { 0 } else { DIRT });
                assert_eq!(wrong, None, "{what}");
            }
        }
    }
}

/// `MADV_DONTNEED` on a shared mapping returns 0 and the dirt comes back: the
/// self-test of a module that takes it for a private one must notice.
#[test]
fn the_self_test_catches_a_discard_that_does_nothing() {
    for backed in ALL_BUT_1G.into_iter().filter(|backed| backed.shared) {
        let Some(_held) = backed.hold(4 * MIB) else {
            return;
        };
        let backing = Backing::of(&backed.config(4 * MIB)).unwrap();
        let memory = map(backing, 4 << 20);
        let mistaken = Backing {
            shared: false,
            ..backing
        };
        let mut zeroer = zeroer(memory.clone(), mistaken);
        self_test::run(&mut zeroer).unwrap();
        assert_eq!(zeroer.discard_proof, DiscardProof::None, "{backed:?}");
        let mut bytes = vec![1; 4 << 20];
        memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
        assert!(
            bytes.iter().all(|&byte| byte == 0),
            "{backed:?}: nothing of it is left"
        );
    }
}

#[test]
fn the_self_test_proves_every_backing_on_this_kernel() {
    for backed in ALL_BUT_1G {
        let Some(_held) = backed.hold(4 * MIB) else {
            return;
        };
        let backing = Backing::of(&backed.config(4 * MIB)).unwrap();
        let memory = map(backing, 4 << 20);
        let mut zeroer = zeroer(memory, backing);
        self_test::run(&mut zeroer).unwrap();
        let expected = if backed.shared || backing.is_hugetlb() {
            DiscardProof::BySelfTest
        } else {
            DiscardProof::ByAbsence
        };
        assert_eq!(zeroer.discard_proof, expected, "{backed:?}");
        assert!(zeroer.residency.is_known(), "{backed:?}");
    }
}
