//! Target: reads and writes in the register window, of any size at any place.

use arbitrary::{Result, Unstructured};
use devices::balloon::device::{BalloonSpec, MMIO_LEN, Reclaim};

use crate::fake_guest::driver::{DRIVER_OK, reg};
use crate::guest::Guest;
use crate::one_line_log;

/// Accesses of one input.
const MAX_STEPS: usize = 200;
/// The largest access: more than any CPU makes.
const MAX_LEN: usize = 16;
/// What the owner asks for.
const TARGET: u32 = 17;

pub(crate) fn run(data: &[u8]) {
    one_line_log::start();
    let spec = BalloonSpec {
        reporting: true,
        device_init_reported: true,
        on_report: Reclaim::Discard,
        deflate_on_oom: true,
        must_tell_host: true,
        statistics: true,
        page_poison: true,
        target_pages: TARGET,
        ..BalloonSpec::default()
    };
    let mut guest = Guest::new(spec).expect("a sound spec");
    guest.remember();

    let mut input = Unstructured::new(data);
    let mut status = 0;
    let mut ran = false;
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        let Ok(access) = Access::read(&mut input) else {
            break;
        };
        access.make(&guest);
        if access.offset == reg::STATUS && access.data() == [0; 4] {
            status = 0;
            assert_eq!(guest.read(reg::STATUS), 0, "a reset is complete at once");
            as_powered_on(&guest);
        }
        let now = guest.read(reg::STATUS);
        assert_eq!(now & status, status, "only a reset clears status bits");
        status = now;
        ran |= status & DRIVER_OK != 0;
        if access.works {
            guest.let_device_work();
        }
        always(&guest);
    }
    guest.let_device_work();
    if !ran {
        // Rings are not touched before DRIVER_OK.
        guest.assert_only_changed(&[], &[]);
    }
    guest.write(reg::STATUS, 0);
    as_powered_on(&guest);
}

struct Access {
    offset: u64,
    write: bool,
    /// The worker has its turn after it.
    works: bool,
    len: usize,
    bytes: [u8; MAX_LEN],
}

impl Access {
    fn read(input: &mut Unstructured<'_>) -> Result<Self> {
        let [how, place]: [u8; 2] = input.arbitrary()?;
        let word = u64::from(place) * 4 % MMIO_LEN;
        let offset = match how & 3 {
            0 | 1 => word,
            2 => word + u64::from(how >> 5),
            _ => input.arbitrary()?,
        };
        let len = match how >> 2 & 3 {
            0..=2 => 4,
            _ => input.int_in_range(0..=MAX_LEN)?,
        };
        let mut bytes = [0; MAX_LEN];
        let write = how >> 4 & 1 == 0;
        if write {
            input.fill_buffer(&mut bytes[..len])?;
        }
        Ok(Self {
            offset,
            write,
            works: how >> 7 != 0,
            len,
            bytes,
        })
    }

    fn make(&self, guest: &Guest) {
        if self.write {
            guest.mmio.write(self.offset, self.data());
        } else {
            let mut data = [0xee; MAX_LEN];
            guest.mmio.read(self.offset, &mut data[..self.len]);
            let past = self.offset >= MMIO_LEN;
            let zero = data[..self.len].iter().all(|byte| *byte == 0);
            assert!(!past || zero, "nothing is behind the window");
        }
    }

    /// What is written; nothing by a read.
    fn data(&self) -> &[u8] {
        if self.write {
            &self.bytes[..self.len]
        } else {
            &[]
        }
    }
}

/// What holds in every state (virtio 1.3, 4.2.2).
fn always(guest: &Guest) {
    assert_eq!(guest.read(reg::MAGIC), 0x7472_6976);
    assert_eq!(guest.read(reg::VERSION), 2);
    assert_eq!(guest.read(reg::DEVICE_ID), 5);
    assert_eq!(guest.read(reg::CONFIG), TARGET, "num_pages is the owner's");
    assert_eq!(guest.read(reg::CONFIG + 8), 0, "no hints are wanted");
    assert_eq!(guest.read(reg::INTERRUPT_STATUS) & !3, 0);
    assert!(guest.read(reg::QUEUE_READY) <= 1);
    let max = guest.read(reg::QUEUE_SIZE_MAX);
    assert!(max == 0 || max.is_power_of_two() && max <= 1 << 15, "{max}");
}

/// What a reset forgets.
fn as_powered_on(guest: &Guest) {
    always(guest);
    assert_eq!(guest.read(reg::INTERRUPT_STATUS), 0);
    assert_eq!(guest.read(reg::CONFIG + 4), 0, "actual");
    assert_eq!(guest.read(reg::CONFIG + 12), 0, "poison_val");
    for queue in 0..8 {
        guest.write(reg::QUEUE_SEL, queue);
        assert_eq!(guest.read(reg::QUEUE_READY), 0, "queue {queue}");
    }
    guest.write(reg::QUEUE_SEL, 0);
}
