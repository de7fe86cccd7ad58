//! Routing by address.

use std::sync::{Arc, Mutex};

use devices::mmio_bus::{Bus, BusDevice, BusError};
use proptest::prelude::*;

/// Answers every read with its name, and remembers writes.
#[derive(Default)]
struct Named {
    name: u8,
    writes: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl BusDevice for Named {
    fn read(&self, _offset: u64, data: &mut [u8]) {
        data.fill(self.name);
    }
    fn write(&self, offset: u64, data: &[u8]) {
        self.writes.lock().unwrap().push((offset, data.to_vec()));
    }
}

fn named(name: u8) -> Arc<Named> {
    Arc::new(Named {
        name,
        ..Named::default()
    })
}

#[test]
fn an_access_reaches_the_device_at_its_address_with_its_offset() {
    let mut bus = Bus::default();
    let (a, b) = (named(1), named(2));
    bus.insert(0x1000, 0x200, b.clone()).unwrap();
    bus.insert(0x0e00, 0x200, a.clone()).unwrap();
    let mut byte = [0];
    assert!(bus.read(0xfff, &mut byte));
    assert_eq!(byte, [1]);
    assert!(bus.read(0x1000, &mut byte));
    assert_eq!(byte, [2]);
    assert!(bus.write(0x11ff, &[7, 8]));
    assert_eq!(*b.writes.lock().unwrap(), [(0x1ff, vec![7, 8])]);
    assert!(a.writes.lock().unwrap().is_empty());
}

#[test]
fn an_address_nobody_has_reads_ones_and_takes_nothing() {
    let mut bus = Bus::default();
    bus.insert(0x1000, 0x10, named(1)).unwrap();
    for addr in [0, 0xfff, 0x1010, u64::MAX] {
        let mut data = [0; 4];
        assert!(!bus.read(addr, &mut data), "{addr:#x}");
        assert_eq!(data, [0xff; 4], "{addr:#x}");
        assert!(!bus.write(addr, &[0]), "{addr:#x}");
    }
}

#[test]
fn ranges_that_are_empty_or_wrap_are_refused() {
    let mut bus = Bus::default();
    for (base, len) in [(0x1000, 0), (u64::MAX, 2)] {
        let refused = bus.insert(base, len, named(1)).unwrap_err();
        assert_eq!(refused, BusError::BadRange { base, len });
    }
}

proptest! {
    #[test]
    fn a_range_is_refused_exactly_if_it_overlaps_one_that_is_there(
        ranges in prop::collection::vec((0_u64..60, 1_u64..20), 1..10)
    ) {
        let mut bus = Bus::default();
        let mut taken = [0_u8; 80];
        for (name, (base, len)) in (1_u8..).zip(ranges) {
            let wanted = &mut taken[base as usize..(base + len) as usize];
            let free = wanted.iter().all(|owner| *owner == 0);
            prop_assert_eq!(bus.insert(base, len, named(name)).is_ok(), free);
            if free {
                wanted.fill(name);
            }
        }
        for (addr, owner) in (0_u64..).zip(taken) {
            let mut byte = [0];
            prop_assert_eq!(bus.read(addr, &mut byte), owner != 0);
            prop_assert!(owner == 0 || byte[0] == owner);
        }
    }
}
