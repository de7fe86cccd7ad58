//! The balloon thread: sleeps until a queue is kicked, then works it off.

use std::io;
use std::sync::Arc;

use event_manager::{
    EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberId, SubscriberOps,
};
use vmm_sys_util::eventfd::EventFd;

use super::driver_view::DriverView;
use super::queue_work::BalloonWork;
use crate::virtio::chain::Buffer;
use crate::virtio::drain_queue;
use crate::virtio::mmio_transport::MmioTransport;

/// Data of the event that a driver got ready; a kick has its queue index.
const ACTIVATED: u32 = u32::MAX;
/// Data of the event that the thread is to end.
const STOP: u32 = u32::MAX - 1;

/// The thread's side of the device.
pub(crate) struct BalloonThread {
    transport: Arc<MmioTransport<DriverView>>,
    work: BalloonWork,
    chain: Vec<Buffer>,
    stopped: bool,
}

impl BalloonThread {
    /// A thread that does `work` for the queues of `transport`.
    pub(crate) fn new(transport: Arc<MmioTransport<DriverView>>, work: BalloonWork) -> Self {
        Self {
            transport,
            work,
            chain: Vec::new(),
            stopped: false,
        }
    }

    /// Prepares everything that can fail for a worker that ends when `stop` is
    /// signalled.
    ///
    /// # Errors
    /// The errors of epoll.
    pub(crate) fn prepare(self, stop: EventFd) -> io::Result<BalloonWorker> {
        let transport = Arc::clone(&self.transport);
        let mut manager = EventManager::new().map_err(io::Error::other)?;
        let id = manager.add_subscriber(self);
        let mut ops = manager.event_ops(id).map_err(io::Error::other)?;
        let kicks = (0_u32..).zip(transport.kicks());
        let others = [(ACTIVATED, transport.activated()), (STOP, &stop)];
        for (data, event) in kicks.chain(others) {
            ops.add(Events::with_data(event, data, EventSet::IN))
                .map_err(io::Error::other)?;
        }
        Ok(BalloonWorker {
            manager,
            id,
            _stop: stop,
        })
    }

    fn drain(&mut self, index: usize) {
        let more = drain_queue::drain(&self.transport, index, &mut self.chain, &mut self.work);
        if !more {
            return;
        }
        // Come back after the other queues had their turn.
        if let Some(Err(error)) = self.transport.kicks().get(index).map(|kick| kick.write(1)) {
            log::error!("queue {index} waits for its next kick: {error}");
        }
    }
}

/// The work of a balloon device, to be run on one thread: its own, unless the
/// owner took it by [`Balloon::with_worker`].
///
/// [`Balloon::with_worker`]: super::device::Balloon::with_worker
pub struct BalloonWorker {
    manager: EventManager<BalloonThread>,
    id: SubscriberId,
    /// epoll forgets a descriptor that is closed, so this one stays open.
    _stop: EventFd,
}

impl BalloonWorker {
    /// Works until the device is stopped.
    pub fn run(mut self) {
        while self
            .manager
            .subscriber_mut(self.id)
            .is_ok_and(|s| !s.stopped)
        {
            if let Err(error) = self.manager.run() {
                log::error!("the balloon thread ends, the device hangs: {error}");
                return;
            }
        }
    }

    /// Looks once at every queue that was kicked and does not wait for kicks;
    /// returns whether there was one. A queue with more than a batch of work is
    /// kicked again, so the work is done when this returns false.
    ///
    /// # Errors
    /// The errors of epoll.
    pub fn run_pending(&mut self) -> io::Result<bool> {
        let handled = self.manager.run_with_timeout(0);
        handled.map(|events| events > 0).map_err(io::Error::other)
    }
}

impl MutEventSubscriber for BalloonThread {
    fn init(&mut self, _ops: &mut EventOps) {}

    fn process(&mut self, events: Events, _ops: &mut EventOps) {
        match events.data() {
            STOP => self.stopped = true,
            ACTIVATED => {
                // An event that was read already is no reason to do nothing.
                let _ = self.transport.activated().read();
                for index in 0..self.transport.kicks().len() {
                    self.drain(index);
                }
            }
            index => {
                let Ok(index) = usize::try_from(index) else {
                    return;
                };
                if let Some(kick) = self.transport.kicks().get(index) {
                    let _ = kick.read();
                }
                self.drain(index);
            }
        }
    }
}
