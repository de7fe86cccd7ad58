//! Target: the queues of the balloon, served for a driver that does what its
//! input says.

use std::ops::Range;

use arbitrary::{Result, Unstructured};
use devices::balloon::device::{BalloonSpec, Hinting, Reclaim};
use vm_memory::{Bytes, GuestAddress};

use crate::checked_host::BACKING_PAGE;
use crate::fake_guest::driver::reg;
use crate::fake_guest::ring::{NEXT, WRITE, readable, writable};
use crate::fake_guest::{PAGE, VERSION_1};
use crate::guest::{DATA, Guest, HIGH, LOW};
use crate::one_line_log;
use crate::session::{Session, Start};

/// Steps of one input: what a slow device would make of more is no news.
const MAX_STEPS: usize = 40;
/// Where requests pass page numbers.
const SCRATCH: u64 = DATA.start;
/// Offered features an honest driver takes: all.
const ALL: u64 = u64::MAX;

pub(crate) fn run(data: &[u8]) {
    one_line_log::start();
    let mut input = Unstructured::new(data);
    let Some((mut guest, session)) = begin(&mut input).ok().flatten() else {
        return;
    };
    let mut play = Play {
        input,
        guest: &mut guest,
        session,
    };
    for _ in 0..MAX_STEPS {
        if play.input.is_empty() || play.step().is_err() {
            break;
        }
    }
    play.session.settle(&mut guest);
    serves_an_honest_driver(&mut guest);
}

fn begin(input: &mut Unstructured<'_>) -> Result<Option<(Guest, Session)>> {
    let Some(guest) = Guest::new(spec(input)?) else {
        return Ok(None);
    };
    let start = start(input)?;
    let session = Session::start(&guest, start);
    session.driver_ok(&guest);
    Ok(Some((guest, session)))
}

fn spec(input: &mut Unstructured<'_>) -> Result<BalloonSpec> {
    let reclaim = [Reclaim::Discard, Reclaim::Zero, Reclaim::Keep];
    let hinting = [Hinting::Off, Hinting::Count, Hinting::Discard];
    // Everything is on where the bytes are zero.
    let [off, how] = input.arbitrary::<[u8; 2]>()?;
    let on = |bit: u8| off >> bit & 1 == 0;
    let nth = |shift: u8| usize::from(how >> shift & 3) % 3;
    Ok(BalloonSpec {
        reporting: on(0),
        device_init_reported: on(1),
        device_init_on_inflate: on(2),
        must_tell_host: on(3),
        statistics: on(4),
        page_poison: on(5),
        deflate_on_oom: on(6),
        on_report: reclaim[nth(0)],
        on_inflate: reclaim[nth(2)],
        hinting: hinting[nth(4)],
        target_pages: u32::from(how >> 6),
        ..BalloonSpec::default()
    })
}

fn start(input: &mut Unstructured<'_>) -> Result<Start> {
    let [not_wanted, how] = input.arbitrary::<[u8; 2]>()?;
    let event_idx = u64::from(how >> 1 & 1) << 29;
    let places = match how >> 6 {
        3 => Some((usize::from(not_wanted) % 5, input.arbitrary()?)),
        _ => None,
    };
    Ok(Start {
        wanted: ALL & !u64::from(not_wanted) & !event_idx | VERSION_1,
        dense: how & 1 == 0,
        // 16 to 256 and then 1 to 8.
        size: 1 << ((how >> 2 & 15) + 4).rem_euclid(9),
        places: places.map(|(at, places): (_, [u32; 3])| (at, places.map(u64::from))),
    })
}

struct Play<'a, 'i> {
    input: Unstructured<'i>,
    guest: &'a mut Guest,
    session: Session,
}

impl Play<'_, '_> {
    /// One thing that the guest, its owner or its host does. The numbers are
    /// part of every input in `corpus/`: new ones go to the end.
    fn step(&mut self) -> Result<()> {
        match self.input.arbitrary::<u8>()? {
            0..=39 => self.give_pages()?,
            40..=79 => self.name_pages()?,
            80..=99 => self.write_descriptor()?,
            100..=119 => self.make_available()?,
            120..=139 => self.kick()?,
            140..=149 => self.store()?,
            150..=159 => self.start_over()?,
            160..=169 => self.host_fails()?,
            170..=179 => self.store_meanwhile()?,
            180..=184 => self.publish_noise()?,
            185..=189 => self.interrupt_wish()?,
            190..=194 => self.write_register()?,
            195..=199 => self.owner_asks()?,
            _ => {}
        }
        Ok(())
    }

    /// A chain of writable buffers on any queue, as reports and hints are.
    fn give_pages(&mut self) -> Result<()> {
        let count = self.input.int_in_range(1..=8_u8)?;
        let mut chain = Vec::new();
        for _ in 0..count {
            chain.push(writable(self.address()?, self.length()?));
        }
        self.submit(&chain)
    }

    /// Page numbers, the buffers they are cut into, and a buffer for a bitmap.
    fn name_pages(&mut self) -> Result<()> {
        let [first, stride, count, cut]: [u8; 4] = self.input.arbitrary()?;
        let base = if first & 1 == 0 { DATA } else { HIGH }.start / PAGE;
        let number = |i: u64| base + u64::from(first / 2 % 16) + i * u64::from(stride) % 32;
        let mut pfns: Vec<_> = (0..u64::from(count % 70))
            .map(|i| number(i) as u32)
            .collect();
        if count >= 200 {
            pfns.push(self.input.arbitrary()?);
        }
        let bytes: Vec<u8> = pfns.iter().flat_map(|pfn| pfn.to_le_bytes()).collect();
        self.put(SCRATCH, &bytes);
        let len = bytes.len() as u32;
        let cut = u32::from(cut).min(len);
        let mut chain = vec![
            readable(SCRATCH, cut),
            readable(SCRATCH + u64::from(cut), len - cut),
        ];
        for _ in 0..self.input.int_in_range(0..=2_u8)? {
            chain.push(writable(
                self.address()?,
                self.input.arbitrary::<u8>()?.into(),
            ));
        }
        self.submit(&chain)
    }

    fn write_descriptor(&mut self) -> Result<()> {
        let (addr, len) = (self.address()?, self.length()?);
        let [index, flags, next]: [u8; 3] = self.input.arbitrary()?;
        // Mostly what a driver could mean.
        let flags = match flags {
            0..=199 => u16::from(flags) & (NEXT | WRITE),
            _ => u16::from(flags) << 8 | u16::from(flags),
        };
        let Some(queue) = self.queue()? else {
            return Ok(());
        };
        let queue = &self.session.queues[queue];
        let index = u16::from(index) % queue.ring.size;
        let next = u16::from(next) % queue.ring.size.saturating_mul(2);
        queue.ring.write_descriptor(index, addr, len, flags, next);
        Ok(())
    }

    /// What is in the table already, without a kick.
    fn make_available(&mut self) -> Result<()> {
        let head = u16::from(self.input.arbitrary::<u8>()?);
        if let Some(queue) = self.queue()? {
            let head = head % self.session.queues[queue].ring.size;
            self.offer(queue, head);
        }
        Ok(())
    }

    fn kick(&mut self) -> Result<()> {
        if let Some(queue) = self.queue()? {
            self.tell(queue);
            self.session.settle(self.guest);
        }
        Ok(())
    }

    fn store(&mut self) -> Result<()> {
        let (addr, len) = (self.address()?, self.input.int_in_range(1..=32_usize)?);
        let bytes = self.input.bytes(len)?.to_vec();
        self.put(addr, &bytes);
        Ok(())
    }

    fn start_over(&mut self) -> Result<()> {
        let start = start(&mut self.input)?;
        self.session = Session::start(self.guest, start);
        let early = self.input.ratio(1_u8, 4_u8)?;
        if early && let Some(queue) = self.queue()? {
            // Linux does that with its statistics queue.
            self.offer(queue, 0);
            self.tell(queue);
            self.guest.let_device_work();
            let used = self.session.queues[queue].ring.used_index();
            assert_eq!(used, 0, "nothing is used before DRIVER_OK");
        }
        self.session.driver_ok(self.guest);
        Ok(())
    }

    fn host_fails(&mut self) -> Result<()> {
        let (start, len) = (self.address()?, u64::from(self.length()?));
        let range = start..start.saturating_add(len);
        let which = self.input.int_in_range(0..=3_u8)?;
        let mut host = self.guest.host.state();
        match which {
            0 => host.failing.push(range),
            1 => host.absent.push(range),
            2 => host.failing.clear(),
            _ => host.absent.clear(),
        }
        Ok(())
    }

    /// Another CPU of the guest stores while the device is at work.
    fn store_meanwhile(&mut self) -> Result<()> {
        let (addr, len) = (self.address()?, self.input.int_in_range(1..=32_usize)?);
        let bytes = self.input.bytes(len)?.to_vec();
        self.session
            .guest_wrote(&(addr..addr.saturating_add(bytes.len() as u64)));
        self.guest.host.state().meanwhile = Some((addr, bytes));
        Ok(())
    }

    fn publish_noise(&mut self) -> Result<()> {
        let index = self.input.arbitrary()?;
        if let Some(queue) = self.queue()? {
            self.session.distrust();
            self.session.queues[queue].ring.publish(index);
            self.tell(queue);
            self.session.settle(self.guest);
        }
        Ok(())
    }

    fn interrupt_wish(&mut self) -> Result<()> {
        let [flags, event] = self.input.arbitrary::<[u16; 2]>()?;
        if let Some(queue) = self.queue()? {
            let ring = &self.session.queues[queue].ring;
            ring.set_available_flags(flags);
            ring.set_used_event(event);
        }
        Ok(())
    }

    /// Anything but a reset, which `start_over` does, to any register.
    fn write_register(&mut self) -> Result<()> {
        let register = u64::from(self.input.arbitrary::<u8>()?) * 4;
        let value: u32 = self.input.arbitrary()?;
        if register == reg::STATUS && value == 0 {
            return Ok(());
        }
        if [reg::STATUS, reg::QUEUE_READY].contains(&register) {
            self.session.distrust();
        }
        self.guest.write(register, value);
        Ok(())
    }

    /// The owner of the VM wants something of its balloon.
    fn owner_asks(&mut self) -> Result<()> {
        let pages = self.input.arbitrary::<u8>()?;
        let ram = (LOW.end + HIGH.end - HIGH.start) / PAGE;
        let asked = self.guest.balloon.set_target_pages(pages.into());
        assert_eq!(asked.is_ok(), u64::from(pages) <= ram, "{pages} pages");
        assert!(self.guest.balloon.actual_pages() <= ram);
        Ok(())
    }

    /// Writes `chain` at a descriptor, makes it available, and mostly kicks.
    fn submit(&mut self, chain: &[crate::fake_guest::Buf]) -> Result<()> {
        let [head, quiet]: [u8; 2] = self.input.arbitrary()?;
        let Some(queue) = self.queue()? else {
            return Ok(());
        };
        let size = usize::from(self.session.queues[queue].ring.size);
        let chain = &chain[..chain.len().min(size)];
        let head = usize::from(head) % (size - chain.len() + 1);
        let head = head as u16;
        self.session.queues[queue].ring.write_chain(head, chain);
        self.offer(queue, head);
        if quiet < 192 {
            self.tell(queue);
            self.session.settle(self.guest);
        }
        Ok(())
    }

    /// Makes `head` available; a driver has no more outstanding than fit.
    fn offer(&mut self, queue: usize, head: u16) {
        let queue = &mut self.session.queues[queue];
        if queue.pending.len() < usize::from(queue.ring.size) {
            queue.ring.make_available(head);
            queue.pending.push_back(head);
        }
    }

    fn tell(&mut self, queue: usize) {
        let queue = &mut self.session.queues[queue];
        queue.kicked = true;
        self.guest.write(reg::QUEUE_NOTIFY, queue.index);
    }

    fn put(&mut self, addr: u64, bytes: &[u8]) {
        let end = addr.saturating_add(bytes.len() as u64);
        self.session.guest_wrote(&(addr..end));
        // What does not fit into RAM is not stored.
        let _ = self.guest.memory.write(bytes, GuestAddress(addr));
    }

    /// One of the queues there are.
    fn queue(&mut self) -> Result<Option<usize>> {
        let count = self.session.queues.len();
        let number = usize::from(self.input.arbitrary::<u8>()?);
        Ok((count > 0).then(|| number % count))
    }

    /// Mostly pages; sometimes anything.
    fn address(&mut self) -> Result<u64> {
        let [kind, number]: [u8; 2] = self.input.arbitrary()?;
        let number = u64::from(number);
        let pages = |r: Range<u64>| r.start + number * PAGE % (r.end - r.start);
        Ok(match kind {
            0..=79 => pages(DATA),
            80..=159 => pages(HIGH),
            160..=179 => SCRATCH + number,
            180..=199 => pages(LOW),
            200..=209 => LOW.end - 128 + number,
            210..=219 => HIGH.end - 128 + number,
            220..=239 => pages(HIGH) + u64::from(self.input.arbitrary::<u16>()? % 4096),
            240..=247 => self.input.arbitrary::<u32>()?.into(),
            _ => self.input.arbitrary()?,
        })
    }

    /// Mostly small numbers of pages.
    fn length(&mut self) -> Result<u32> {
        let [kind, number]: [u8; 2] = self.input.arbitrary()?;
        let number = u32::from(number);
        Ok(match kind {
            0..=127 => number % 9 * PAGE as u32,
            128..=191 => number % 3 * BACKING_PAGE as u32,
            192..=239 => number * 16,
            _ => self.input.arbitrary()?,
        })
    }
}

/// Whatever happened, a reset makes the device as new, once the host has
/// recovered.
fn serves_an_honest_driver(guest: &mut Guest) {
    {
        let mut host = guest.host.state();
        host.failing.clear();
        host.absent.clear();
    }
    let start = Start {
        wanted: ALL,
        dense: true,
        size: 16,
        places: None,
    };
    let mut session = Session::start(guest, start);
    session.driver_ok(guest);
    let queues = 0..session.queues.len();
    assert!(queues.len() >= 2, "the device takes the queues it has to");
    for queue in queues {
        let queue = &mut session.queues[queue];
        queue
            .ring
            .write_chain(0, &[writable(HIGH.start, BACKING_PAGE as u32)]);
        queue.ring.make_available(0);
        queue.pending.push_back(0);
        queue.kicked = true;
        guest.write(reg::QUEUE_NOTIFY, queue.index);
        session.settle(guest);
    }
}
