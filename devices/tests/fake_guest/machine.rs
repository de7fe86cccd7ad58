//! A device with fake RAM and a fake interrupt line.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use devices::balloon::device::{Balloon, BalloonSpec, Hinting, MMIO_LEN, Reclaim};
use devices::balloon::guest_range::GuestRange;
use devices::mmio_bus::BusDevice;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{FakeLine, FakeRam, HIGH, HUGE, LOW};

/// Nothing a test waits for takes this long.
pub const LONG: Duration = Duration::from_secs(20);

/// Device and host, as the VMM would put them together.
pub struct Machine {
    pub memory: GuestMemoryMmap,
    pub ram: Arc<FakeRam>,
    pub line: Arc<FakeLine>,
    pub balloon: Balloon,
    pub mmio: Arc<dyn BusDevice>,
}

/// Reporting with bit 6, and everything else at its default.
pub fn reporting_spec() -> BalloonSpec {
    BalloonSpec {
        reporting: true,
        device_init_reported: true,
        on_report: Reclaim::Discard,
        deflate_on_oom: true,
        ..BalloonSpec::default()
    }
}

/// Reporting with bit 6, and all the standard features (bits 0 to 5).
pub fn full_spec() -> BalloonSpec {
    BalloonSpec {
        must_tell_host: true,
        statistics: true,
        hinting: Hinting::Count,
        accept_bit6_ambiguity: true,
        page_poison: true,
        ..reporting_spec()
    }
}

impl Machine {
    pub fn new(spec: BalloonSpec) -> Self {
        let regions = [LOW, HIGH].map(|r| (GuestAddress(r.start), (r.end - r.start) as usize));
        Self::with_memory(spec, &regions)
    }

    pub fn with_memory(spec: BalloonSpec, regions: &[(GuestAddress, usize)]) -> Self {
        Self::with_pages(spec, regions, HUGE)
    }

    /// Guest RAM on backing pages of `page` bytes.
    pub fn with_pages(spec: BalloonSpec, regions: &[(GuestAddress, usize)], page: u64) -> Self {
        Self::try_with_pages(spec, regions, page).unwrap()
    }

    /// As [`Machine::new`], for a spec that may be refused.
    pub fn try_new(spec: BalloonSpec) -> io::Result<Self> {
        Self::try_with_pages(spec, &[(GuestAddress(0), 1 << 20)], 4096)
    }

    fn try_with_pages(
        spec: BalloonSpec,
        regions: &[(GuestAddress, usize)],
        page: u64,
    ) -> io::Result<Self> {
        let memory = GuestMemoryMmap::from_ranges(regions).unwrap();
        let ram = Arc::new(FakeRam::new(memory.clone(), page));
        let line = Arc::new(FakeLine::default());
        let balloon = Balloon::new(spec, memory.clone(), ram.clone(), line.clone())?;
        let mmio = balloon.mmio();
        Ok(Self {
            memory,
            ram,
            line,
            balloon,
            mmio,
        })
    }

    /// Reads a register.
    pub fn read(&self, register: u64) -> u32 {
        let mut data = [0xee; 4];
        self.mmio.read(register, &mut data);
        u32::from_le_bytes(data)
    }

    /// Writes a register.
    pub fn write(&self, register: u64, value: u32) {
        assert!(register < MMIO_LEN);
        self.mmio.write(register, &value.to_le_bytes());
    }

    /// Fills guest memory with a byte.
    pub fn fill(&self, range: Range<u64>, byte: u8) {
        let bytes = vec![byte; (range.end - range.start) as usize];
        self.memory
            .write_slice(&bytes, GuestAddress(range.start))
            .unwrap();
    }

    /// Whether all bytes of a range are `byte`.
    pub fn holds(&self, range: Range<u64>, byte: u8) -> bool {
        self.bytes(range).iter().all(|b| *b == byte)
    }

    pub fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.memory
            .read_slice(&mut bytes, GuestAddress(range.start))
            .unwrap();
        bytes
    }

    /// Writes page numbers, one after the other, and returns their bytes.
    pub fn put_pfns(&self, addr: u64, pfns: &[u32]) -> u32 {
        let bytes: Vec<u8> = pfns.iter().flat_map(|pfn| pfn.to_le_bytes()).collect();
        self.memory.write_slice(&bytes, GuestAddress(addr)).unwrap();
        bytes.len() as u32
    }
}

/// Waits until `condition`; fails loudly if it never comes.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    let mut tries = 0_u32;
    while !condition() {
        assert!(start.elapsed() < LONG, "waited in vain: {what}");
        tries = tries.saturating_add(1);
        if tries < 200 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// `start..start + len` as the range the device works on.
pub fn range(start: u64, len: u64) -> GuestRange {
    GuestRange::new(start, len).unwrap()
}
