//! Many ranges in one go: the same as each by itself, for less.

use devices::balloon::guest_range::GuestRange;
use devices::balloon::host_zeroes::{ZeroGuestRange, Zeroed};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::guest::*;
use crate::memory::GuestRam;
use crate::memory::mapping::Backing;
use crate::memory::piece::Piece;
use crate::memory::self_test;

const RAM: u64 = 48 * MIB;

/// Ranges of guest RAM in MiB, as start and length.
fn ranges(of: &[(u64, u64)]) -> Vec<GuestRange> {
    of.iter()
        .map(|(start, len)| range(start * MIB, len * MIB))
        .collect()
}

fn discard_all(zeroer: &dyn ZeroGuestRange, of: &[GuestRange]) -> Vec<(GuestRange, u64)> {
    let mut zeroed = Vec::new();
    zeroer.discard_all(of, &mut zeroed);
    let proofs = zeroed.iter();
    proofs
        .map(|proof: &Zeroed| (proof.range(), proof.released()))
        .collect()
}

#[test]
fn whole_pages_read_zero_go_back_and_are_counted_range_by_range() {
    for backed in [HUGETLB_2M, HUGETLB_2M_SHARED] {
        let Some(held) = backed.hold(RAM) else {
            return;
        };
        let pool = held.pool.as_ref().unwrap();
        let ram = GuestRam::create(&backed.config(RAM)).unwrap();
        // The second was never touched, and of the third only the half.
        dirty(&ram, 0, 4 * MIB);
        dirty(&ram, 8 * MIB, 2 * MIB);
        dirty(&ram, 16 * MIB, 2 * MIB);
        let asked = ranges(&[(2, 2), (4, 2), (8, 4), (16, 2)]);
        let released = [2, 0, 2, 2].map(|mib| mib * MIB);
        let (free, reserved) = (pool.free(), pool.reserved());
        let proofs = discard_all(&*ram.zeroer(), &asked);
        let expected: Vec<_> = asked.iter().copied().zip(released).collect();
        assert_eq!(proofs, expected, "{backed:?}");
        assert_eq!(pool.free() - free, 3, "{backed:?}");
        assert_eq!(pool.reserved() - reserved, 3, "{backed:?}: for the guest");
        assert_only_zero(&ram, 0..4 * MIB, 2 * MIB..4 * MIB, "the first");
        assert_only_zero(&ram, 8 * MIB..12 * MIB, 0..4 * MIB, "the third");
        assert_only_zero(&ram, 16 * MIB..18 * MIB, 0..2 * MIB, "the last");
    }
}

/// From the first on: the caller asks for the rest one by one.
#[test]
fn it_stops_where_a_range_is_not_of_whole_pages_of_the_same_region() {
    let most = Piece::TOGETHER as u64;
    let ram_size = 2 * (most + 1) * MIB;
    let Some(_held) = HUGETLB_2M.hold(ram_size) else {
        return;
    };
    let ram = GuestRam::create(&HUGETLB_2M.config(ram_size)).unwrap();
    for (asked, done) in [
        (vec![range(0, 2 * MIB), range(4 * MIB, MIB)], 1),
        (vec![range(MIB, 2 * MIB), range(4 * MIB, 2 * MIB)], 0),
        (vec![range(0, 2 * MIB), range(ram_size, 2 * MIB)], 1),
        (
            (0..=most).map(|i| range(2 * i * MIB, 2 * MIB)).collect(),
            Piece::TOGETHER,
        ),
    ] {
        dirty(&ram, 0, ram_size);
        let proofs = discard_all(&*ram.zeroer(), &asked);
        assert_eq!(proofs.len(), done, "{asked:x?}");
        let mut left = ram.resident_bytes();
        left += proofs.iter().map(|(_, released)| released).sum::<u64>();
        assert_eq!(left, ram_size, "nothing else went: {asked:x?}");
    }
}

/// Two regions, each of its own mapping.
#[test]
fn regions_are_not_mixed_up() {
    let Some(_held) = HUGETLB_2M.hold(8 * MIB) else {
        return;
    };
    let backing = Backing::of(&HUGETLB_2M.config(8 * MIB)).unwrap();
    let above = 1 << 32;
    let regions = [0, above].map(|start| {
        GuestRegionMmap::new(backing.map(4 << 20).unwrap(), GuestAddress(start)).unwrap()
    });
    let memory = GuestMemoryMmap::from_regions(regions.into()).unwrap();
    let mut zeroer = zeroer(memory.clone(), backing);
    self_test::run(&mut zeroer).unwrap();
    memory.write_obj(DIRT, GuestAddress(above)).unwrap();
    let asked = [range(2 * MIB, 2 * MIB), range(above, 2 * MIB)];
    assert_eq!(discard_all(&zeroer, &asked), [(asked[0], 0)]);
    assert_eq!(discard_all(&zeroer, &asked[1..]), [(asked[1], 2 * MIB)]);
    assert_eq!(memory.read_obj::<u8>(GuestAddress(above)).unwrap(), 0);
}

/// Linux before 6.13 refuses it, and then there is a call for each.
#[test]
fn without_process_madvise_it_is_the_same() {
    let Some(_held) = HUGETLB_2M.hold(8 * MIB) else {
        return;
    };
    let backing = Backing::of(&HUGETLB_2M.config(8 * MIB)).unwrap();
    let region = GuestRegionMmap::new(backing.map(8 << 20).unwrap(), GuestAddress(0)).unwrap();
    let memory = GuestMemoryMmap::from_regions(vec![region]).unwrap();
    let mut zeroer = zeroer(memory.clone(), backing);
    self_test::run(&mut zeroer).unwrap();
    let asked = ranges(&[(0, 2), (4, 4)]);
    for together in [true, false] {
        if !together {
            zeroer.this_process = None;
        }
        for at in [0, 4 * MIB, 6 * MIB] {
            memory.write_obj(DIRT, GuestAddress(at)).unwrap();
        }
        let proofs = discard_all(&zeroer, &asked);
        assert_eq!(proofs, [(asked[0], 2 * MIB), (asked[1], 4 * MIB)]);
        for at in [0, 4 * MIB, 6 * MIB] {
            assert_eq!(memory.read_obj::<u8>(GuestAddress(at)).unwrap(), 0);
        }
    }
}

/// What has to be seen gone each time is left to the caller, and so is everything
/// where a discard is not trusted.
#[test]
fn where_a_call_proves_nothing_there_is_no_proof() {
    for backed in ALL_BUT_1G.into_iter().filter(|backed| !backed.is_hugetlb()) {
        let ram = GuestRam::create(&backed.config(8 * MIB)).unwrap();
        let proofs = discard_all(&*ram.zeroer(), &ranges(&[(0, 2), (4, 2)]));
        assert_eq!(proofs, [], "{backed:?}");
    }
}
