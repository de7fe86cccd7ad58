//! The worker's way through a queue: take a chain, do its work unlocked,
//! publish the result; then one interrupt for the batch.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::chain::{self, Buffer, Malformed};
use super::device::VirtioDevice;
use super::mmio_registers as reg;
use super::mmio_transport::MmioTransport;
use super::popped::Popped;
use super::queue_slot::{self, QueueSlot, ReadyQueue};

/// Chains completed at most before the driver is interrupted and other queues
/// get their turn: what Linux puts into one page report.
const CHAINS_PER_BATCH: usize = 32;

/// What becomes of a chain that was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handled {
    /// It is published with this used length.
    Complete(u32),
    /// The device keeps it until [`complete_kept`]. A queue keeps one: the one
    /// it kept before is published with used length 0.
    Keep,
}

/// What a device does with the chains of its queues. Called on the worker's
/// thread, with nothing locked but where it says so.
pub(crate) trait QueueWork<A> {
    /// Takes note of where the device writes by itself from now on, whatever a
    /// chain asks: address and length in bytes of the used ring of each ready
    /// queue. Called before each batch, with the registers locked.
    fn used_rings(&mut self, rings: &mut dyn Iterator<Item = (u64, u64)>);

    /// Does what the chain of queue `index` asks and says what becomes of it.
    /// Must look at `cancel` between units of work and return at once, with
    /// anything, when it is set: the result is then dropped.
    fn handle(
        &mut self,
        active: &A,
        index: usize,
        chain: &[Buffer],
        cancel: &AtomicBool,
    ) -> Handled;

    /// The chain just handled was published with this used length.
    fn published(&mut self, active: &A, index: usize, used: u32);

    /// A malformed chain was published with used length 0.
    fn malformed(&mut self, active: &A, index: usize, why: &Malformed);
}

enum Next {
    Chain(Popped),
    Malformed(Popped, Malformed),
    Empty,
    /// The queue was taken away, or the ring is broken.
    Stopped,
}

/// The worker's hold on one queue. While it exists a reset waits.
struct Session<'a, D: VirtioDevice> {
    transport: &'a MmioTransport<D>,
    index: usize,
    published: bool,
}

/// Works off queue `index`, up to a batch; returns whether there may be more.
/// `chain` is scratch space.
pub(crate) fn drain<D: VirtioDevice>(
    transport: &MmioTransport<D>,
    index: usize,
    chain: &mut Vec<Buffer>,
    work: &mut impl QueueWork<D::Active>,
) -> bool {
    let Some((mut session, active)) = Session::begin(transport, index) else {
        return false;
    };
    session.note_used_rings(work);
    if session.suppress_kicks().is_none() {
        return false;
    }
    for _ in 0..CHAINS_PER_BATCH {
        match session.next(chain) {
            Next::Chain(popped) => {
                let done = match work.handle(&active, index, chain, transport.cancel()) {
                    Handled::Complete(used) => session
                        .complete(popped, used)
                        .map(|()| work.published(&active, index, used)),
                    Handled::Keep => session.keep(popped),
                };
                if done.is_none() {
                    return false;
                }
            }
            Next::Malformed(popped, why) => {
                if session.complete(popped, 0).is_none() {
                    return false;
                }
                work.malformed(&active, index, &why);
            }
            Next::Empty => match session.await_kicks() {
                Some(true) => {}
                Some(false) => {
                    session.interrupt();
                    return false;
                }
                None => return false,
            },
            Next::Stopped => return false,
        }
    }
    session.interrupt();
    true
}

/// Publishes the chain queue `index` keeps, with used length 0, and interrupts
/// the driver. Returns whether there was one; `None` if the queue is not ours.
pub(crate) fn complete_kept<D: VirtioDevice>(
    transport: &MmioTransport<D>,
    index: usize,
) -> Option<bool> {
    let (mut session, _) = Session::begin(transport, index)?;
    session.published = session.step(|queue, memory| match queue.kept.take() {
        Some(kept) => Ok(kept.complete(&mut queue.ring, memory, 0).map(|()| true)?),
        None => Ok(false),
    })?;
    session.interrupt();
    Some(session.published)
}

impl<'a, D: VirtioDevice> Session<'a, D> {
    fn begin(transport: &'a MmioTransport<D>, index: usize) -> Option<(Self, D::Active)> {
        let mut state = transport.lock();
        let active = state.running()?;
        state.slots.get_mut(index)?.queue_mut()?;
        // There is one worker, so nothing is in its hands yet.
        state.busy = Some(index);
        transport.cancel().store(false, Ordering::Relaxed);
        let session = Self {
            transport,
            index,
            published: false,
        };
        Some((session, active))
    }

    fn note_used_rings(&self, work: &mut impl QueueWork<D::Active>) {
        let mut state = self.transport.lock();
        let queues = state.slots.iter_mut().filter_map(QueueSlot::queue_mut);
        work.used_rings(&mut queues.map(|queue| queue_slot::used_ring(&queue.ring)));
    }

    /// Runs one step on the ring under the lock. `None` if the queue is no
    /// longer ours, or if the step failed, after which the device needs a
    /// reset.
    fn step<T>(
        &self,
        step: impl FnOnce(&mut ReadyQueue, &GuestMemoryMmap) -> Result<T, BrokenRing>,
    ) -> Option<T> {
        let mut state = self.transport.lock();
        if self.transport.cancel().load(Ordering::Relaxed) {
            return None;
        }
        let queue = state.slots.get_mut(self.index)?.queue_mut()?;
        let areas = queue_slot::areas(&queue.ring);
        let lacks =
            queue_slot::find_absent(areas, |addr, len| self.transport.make_present(addr, len));
        let stepped = match lacks {
            None => step(queue, self.transport.memory()),
            Some(addr) => Err(BrokenRing(format!("no memory for its ring at {addr:#x}"))),
        };
        match stepped {
            Ok(value) => Some(value),
            Err(BrokenRing(why)) => {
                let why = format!("queue {}: {why}", self.index);
                self.transport.need_reset(&mut state, &why);
                None
            }
        }
    }

    fn next(&mut self, chain: &mut Vec<Buffer>) -> Next {
        let next = self.step(|ReadyQueue { ring, .. }, memory| {
            let head = match ring.iter(memory)?.next() {
                Some(chain) => chain.head_index(),
                None => return Ok(Next::Empty),
            };
            let size = ring.size();
            if head >= size {
                // It has no place in the used ring, so it cannot be completed.
                let why = format!("head {head} is outside the table of {size}");
                return Err(BrokenRing(why));
            }
            let walked = chain::walk(memory, ring.desc_table(), size, head, chain);
            let popped = Popped::new(head);
            Ok(match walked {
                Ok(()) => Next::Chain(popped),
                Err(why) => Next::Malformed(popped, why),
            })
        });
        next.unwrap_or(Next::Stopped)
    }

    fn complete(&mut self, popped: Popped, used: u32) -> Option<()> {
        self.step(|queue, memory| Ok(popped.complete(&mut queue.ring, memory, used)?))?;
        self.published = true;
        Some(())
    }

    /// Keeps a chain; the one kept before is published in its place.
    fn keep(&mut self, popped: Popped) -> Option<()> {
        self.published |= self.step(|queue, memory| match queue.kept.replace(popped) {
            Some(old) => Ok(old.complete(&mut queue.ring, memory, 0).map(|()| true)?),
            None => Ok(false),
        })?;
        Some(())
    }

    fn suppress_kicks(&self) -> Option<()> {
        self.step(|queue, memory| Ok(queue.ring.disable_notification(memory)?))
    }

    /// Asks for kicks again; true if chains came in meanwhile.
    fn await_kicks(&self) -> Option<bool> {
        self.step(|queue, memory| Ok(queue.ring.enable_notification(memory)?))
    }

    /// Interrupts the driver if anything was published and it wants to know.
    fn interrupt(&self) {
        if !self.published {
            return;
        }
        let wanted = self.step(wants_interrupt);
        if wanted == Some(true) {
            let mut state = self.transport.lock();
            if !self.transport.cancel().load(Ordering::Relaxed) {
                self.transport.interrupt(&mut state, reg::INTERRUPT_USED);
            }
        }
    }
}

impl<D: VirtioDevice> Drop for Session<'_, D> {
    fn drop(&mut self) {
        let mut state = self.transport.lock();
        state.busy = None;
        drop(state);
        self.transport.released();
    }
}

/// What the driver wants to be told about used entries (2.7.7).
fn wants_interrupt(queue: &mut ReadyQueue, memory: &GuestMemoryMmap) -> Result<bool, BrokenRing> {
    let ring = &mut queue.ring;
    if ring.event_idx_enabled() {
        return Ok(ring.needs_notification(memory)?);
    }
    // virtio-queue does not look at the flag. The entries must be visible
    // before it is read.
    fence(Ordering::SeqCst);
    let flags: u16 = memory
        .load(GuestAddress(ring.avail_ring()), Ordering::Relaxed)
        .map_err(virtio_queue::Error::GuestMemory)?;
    Ok(u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0)
}

/// A ring the device cannot go on with.
struct BrokenRing(String);

impl From<virtio_queue::Error> for BrokenRing {
    fn from(error: virtio_queue::Error) -> Self {
        Self(error.to_string())
    }
}
