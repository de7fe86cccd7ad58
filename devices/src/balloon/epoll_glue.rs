//! The balloon thread: sleeps until a queue is kicked or the owner wants
//! something of the guest, then works that off.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event_manager::{
    EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberId, SubscriberOps,
};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::timerfd::TimerFd;

use super::driver_view::DriverView;
use super::queue_map::QueueRole;
use super::queue_work::BalloonWork;
use super::requests::Requests;
use crate::virtio::chain::Buffer;
use crate::virtio::drain_queue;
use crate::virtio::log_budget::LogBudget;
use crate::virtio::mmio_transport::MmioTransport;

/// Data of the event that a driver got ready; a kick has its queue index.
const ACTIVATED: u32 = u32::MAX;
/// Data of the event that the thread is to end.
const STOP: u32 = u32::MAX - 1;
/// Data of the event that the owner made a request.
const REQUEST: u32 = u32::MAX - 2;
/// Data of the timer that ends a hinting run.
const HINTING_LIMIT: u32 = u32::MAX - 3;

/// The thread's side of the device.
pub(crate) struct BalloonThread {
    transport: Arc<MmioTransport<DriverView>>,
    work: BalloonWork,
    requests: Arc<Requests>,
    log: Arc<LogBudget>,
    /// Armed while a hinting run is on; never read, since setting it makes it
    /// unready, too.
    hinting_timer: TimerFd,
    /// What it is armed for.
    hinting_deadline: Option<Instant>,
    chain: Vec<Buffer>,
    stopped: bool,
}

impl BalloonThread {
    /// A thread that does `work` for the queues of `transport`, and carries
    /// `requests` out.
    ///
    /// # Errors
    /// The error of creating a timer.
    pub(crate) fn new(
        transport: Arc<MmioTransport<DriverView>>,
        work: BalloonWork,
        requests: Arc<Requests>,
        log: Arc<LogBudget>,
    ) -> io::Result<Self> {
        Ok(Self {
            transport,
            work,
            requests,
            log,
            hinting_timer: TimerFd::new().map_err(io::Error::from)?,
            hinting_deadline: None,
            chain: Vec::new(),
            stopped: false,
        })
    }

    /// Prepares everything that can fail for a worker that ends when `stop` is
    /// signalled.
    ///
    /// # Errors
    /// The errors of epoll.
    pub(crate) fn prepare(self, stop: EventFd) -> io::Result<BalloonWorker> {
        let transport = Arc::clone(&self.transport);
        let requests = Arc::clone(&self.requests);
        let mut manager = EventManager::new().map_err(io::Error::other)?;
        let timer = Events::with_data(&self.hinting_timer, HINTING_LIMIT, EventSet::IN);
        let id = manager.add_subscriber(self);
        let mut ops = manager.event_ops(id).map_err(io::Error::other)?;
        let kicks = (0_u32..).zip(transport.kicks());
        ops.add(timer).map_err(io::Error::other)?;
        let others = [
            (ACTIVATED, transport.activated()),
            (STOP, &stop),
            (REQUEST, &requests.made),
        ];
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
        // What the guest sent may have ended a run.
        self.show_hint_command();
        if !more {
            return;
        }
        // Come back after the other queues had their turn.
        if let Some(Err(error)) = self.transport.kicks().get(index).map(|kick| kick.write(1)) {
            log::error!("queue {index} waits for its next kick: {error}");
        }
    }

    /// Gives the guest its statistics buffer back if new ones are wanted.
    fn ask_for_statistics(&mut self) {
        let statistics = &self.requests.statistics;
        let agreed = self.transport.lock().running();
        let queue = agreed.and_then(|agreed| agreed.queues.index_of(QueueRole::Stats));
        let Some(queue) = queue.filter(|_| statistics.take_wanted()) else {
            return;
        };
        let given = drain_queue::complete_kept(&self.transport, queue);
        if given == Some(false) && statistics.lacks_buffer() {
            self.log.warn(format_args!(
                "the guest offers no buffer for statistics: the request waits for one"
            ));
        }
    }

    /// Shows the driver the command of the moment, and sees to it that a run
    /// ends in time.
    fn show_hint_command(&mut self) {
        let hints = &self.requests.hints;
        hints.expire();
        let deadline = hints.deadline();
        if deadline != self.hinting_deadline {
            let set = match deadline {
                // 0 would disarm it.
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    let left = left.max(Duration::from_nanos(1));
                    self.hinting_timer.reset(left, None)
                }
                None => self.hinting_timer.clear(),
            };
            self.hinting_deadline = deadline;
            if let Err(error) = set {
                log::error!("a hinting run has no time limit: {error}");
            }
        }
        self.transport.change_config(DriverView::show_hint_command);
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
            HINTING_LIMIT => self.show_hint_command(),
            REQUEST => {
                let _ = self.requests.made.read();
                self.ask_for_statistics();
                self.show_hint_command();
            }
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
