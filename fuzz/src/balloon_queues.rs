//! Target: the queues of the balloon, served for a driver that does what its
//! input says.

use arbitrary::{Result, Unstructured};
use vm_memory::{Bytes, GuestAddress};

use crate::checked_host::BACKING_PAGE;
use crate::fake_guest::driver::reg;
use crate::fake_guest::ring::{NEXT, WRITE, readable, writable};
use crate::fake_guest::{Buf, PAGE};
use crate::guest::{DATA, Guest, HIGH, LOW};
use crate::meaning::{ALL, SCRATCH, address, length, spec, start};
use crate::one_line_log;
use crate::session::{Session, Start};

/// Steps of one input: what a slow device would make of more is no news.
const MAX_STEPS: usize = 40;
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
            195..=199 => self.owner_sets_a_target()?,
            200..=219 => self.owner_asks_the_guest()?,
            _ => {}
        }
        Ok(())
    }

    /// A chain of writable buffers on any queue, as reports and hints are.
    fn give_pages(&mut self) -> Result<()> {
        let count = self.input.int_in_range(1..=8_u8)?;
        let mut chain = Vec::new();
        for _ in 0..count {
            chain.push(writable(
                address(&mut self.input)?,
                length(&mut self.input)?,
            ));
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
                address(&mut self.input)?,
                self.input.arbitrary::<u8>()?.into(),
            ));
        }
        self.submit(&chain)
    }

    fn write_descriptor(&mut self) -> Result<()> {
        let (addr, len) = (address(&mut self.input)?, length(&mut self.input)?);
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
        let (addr, len) = (
            address(&mut self.input)?,
            self.input.int_in_range(1..=32_usize)?,
        );
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
        let (start, len) = (
            address(&mut self.input)?,
            u64::from(length(&mut self.input)?),
        );
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
        let (addr, len) = (
            address(&mut self.input)?,
            self.input.int_in_range(1..=32_usize)?,
        );
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

    /// The owner of the VM wants statistics or hints, and looks at what it has.
    fn owner_asks_the_guest(&mut self) -> Result<()> {
        let balloon = &self.guest.balloon;
        // Refused where the guest did not agree to it.
        match self.input.int_in_range(0..=3_u8)? {
            0 => drop(balloon.start_hinting()),
            1 => drop(balloon.stop_hinting()),
            _ => drop(balloon.request_statistics()),
        }
        self.session.settle(self.guest);
        let balloon = &self.guest.balloon;
        let hints = balloon.hinting_status();
        assert!(hints.discarded_bytes <= hints.hinted_bytes, "{hints:?}");
        drop((balloon.statistics(), balloon.queue_numbering()));
        Ok(())
    }

    /// The owner of the VM wants another balloon.
    fn owner_sets_a_target(&mut self) -> Result<()> {
        let pages = self.input.arbitrary::<u8>()?;
        let ram = (LOW.end + HIGH.end - HIGH.start) / PAGE;
        let asked = self.guest.balloon.set_target_pages(pages.into());
        assert_eq!(asked.is_ok(), u64::from(pages) <= ram, "{pages} pages");
        assert!(self.guest.balloon.actual_pages() <= ram);
        Ok(())
    }

    /// Writes `chain` at a descriptor, makes it available, and mostly kicks.
    fn submit(&mut self, chain: &[Buf]) -> Result<()> {
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
        poison: 0,
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
