//! Calls that return 0 and do nothing, shown to do so on this kernel, and the
//! module that does not fall for them.

use devices::balloon::host_zeroes::ZeroBy;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use super::guest::*;
use crate::memory::GuestRam;
use crate::memory::piece::{Advice, Piece};

/// Part of guest RAM, to call the kernel on directly.
fn piece(ram: &GuestRam, start: u64, len: u64) -> Piece<'_> {
    let region = ram.guest_memory().find_region(GuestAddress(start)).unwrap();
    let start = usize::try_from(start).unwrap();
    Piece::whole(region)
        .part(start, start + usize::try_from(len).unwrap())
        .unwrap()
}

fn byte_at(ram: &GuestRam, address: u64) -> u8 {
    ram.guest_memory().read_obj(GuestAddress(address)).unwrap()
}

#[test]
fn dontneed_of_less_than_a_huge_page_returns_0_and_the_dirt_stays() {
    let Some(_held) = HUGETLB_2M.hold(4 * MIB) else {
        return;
    };
    let ram = GuestRam::create(&HUGETLB_2M.config(4 * MIB)).unwrap();
    dirty(&ram, 0, 4 * MIB);
    piece(&ram, 0, 4 * KIB).advise(Advice::DontNeed).unwrap();
    assert_eq!(byte_at(&ram, 0), DIRT, "the kernel's success says nothing");

    let zeroed = ram
        .zeroer()
        .zero(range(0, 4 * KIB), ZeroBy::Discarding)
        .unwrap();
    assert_eq!(zeroed.released(), 0);
    assert_only_zero(&ram, 0..4 * MIB, 0..4 * KIB, "after zeroing");
}

#[test]
fn dontneed_drops_the_tail_of_a_length_and_the_dirt_stays() {
    let Some(_held) = HUGETLB_2M.hold(4 * MIB) else {
        return;
    };
    let ram = GuestRam::create(&HUGETLB_2M.config(4 * MIB)).unwrap();
    dirty(&ram, 0, 4 * MIB);
    piece(&ram, 0, 2 * MIB + 4 * KIB)
        .advise(Advice::DontNeed)
        .unwrap();
    assert_eq!(byte_at(&ram, 0), 0);
    assert_eq!(
        byte_at(&ram, 2 * MIB),
        DIRT,
        "the tail was dropped silently"
    );

    dirty(&ram, 0, 4 * MIB);
    let zeroed = ram
        .zeroer()
        .zero(range(0, 2 * MIB + 4 * KIB), ZeroBy::Discarding)
        .unwrap();
    assert_eq!(zeroed.released(), 2 * MIB);
    assert_only_zero(&ram, 0..4 * MIB, 0..2 * MIB + 4 * KIB, "after zeroing");
}

#[test]
fn dontneed_of_a_shared_mapping_returns_0_and_the_dirt_comes_back() {
    for backed in ALL_BUT_1G.into_iter().filter(|backed| backed.shared) {
        let Some(_held) = backed.hold(4 * MIB) else {
            return;
        };
        let ram = GuestRam::create(&backed.config(4 * MIB)).unwrap();
        dirty(&ram, 0, 4 * MIB);
        piece(&ram, 0, 2 * MIB).advise(Advice::DontNeed).unwrap();
        assert_eq!(
            ram.resident_bytes(),
            2 * MIB,
            "{backed:?}: gone from the page table"
        );
        assert_eq!(
            byte_at(&ram, 0),
            DIRT,
            "{backed:?}: and the file still holds it"
        );

        // Absent from the page table, and not zero: neither way may believe it.
        for by in [ZeroBy::Writing, ZeroBy::Discarding] {
            dirty(&ram, 0, 4 * MIB);
            piece(&ram, 0, 4 * MIB).advise(Advice::DontNeed).unwrap();
            let zeroed = ram.zeroer().zero(range(MIB, 2 * MIB), by).unwrap();
            assert_eq!(zeroed.range(), range(MIB, 2 * MIB));
            let what = format!("{backed:?}, {by:?}");
            assert_only_zero(&ram, 0..4 * MIB, MIB..3 * MIB, &what);
        }
    }
}

/// A discard that is refused (here: locked memory) is no reason to fail.
#[test]
fn memory_that_cannot_be_discarded_is_written() {
    let backed = ALL_BUT_1G[4];
    let ram = GuestRam::create(&backed.config(4 * MIB)).unwrap();
    dirty(&ram, 0, 4 * MIB);
    lock(piece(&ram, 0, 2 * MIB));
    piece(&ram, 0, 2 * MIB)
        .advise(Advice::DontNeed)
        .unwrap_err();

    let zeroed = ram
        .zeroer()
        .zero(range(0, 2 * MIB), ZeroBy::Discarding)
        .unwrap();
    assert_eq!(zeroed.released(), 0, "nothing went back");
    assert_only_zero(&ram, 0..4 * MIB, 0..2 * MIB, "and yet it reads zero");
}

#[expect(unsafe_code, reason = "mlock has no safe wrapper here")]
fn lock(piece: Piece<'_>) {
    // SAFETY: a part of a mapping that outlives the call.
    let result = unsafe { libc::mlock(piece.host_address() as *const _, piece.len()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
