//! Stops vCPUs and lets them run again, any number of times.
//!
//! A vCPU passes the gate before each KVM_RUN. To pause, the gate is closed, and
//! the vCPUs are kicked out of KVM until all wait at it. A stop of the machine
//! gets through a closed gate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmm_sys_util::signal::{Killable, SIGRTMIN};

use crate::ending::Stopper;

/// How long a kick may take to be noticed before the next.
pub(super) const KICK_INTERVAL: Duration = Duration::from_micros(500);

/// Where vCPUs wait while the machine is paused.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    waiting: AtomicUsize,
}

impl Gate {
    /// Waits while the gate is closed; true if it was. A stop opens it. Woken by
    /// unparking the thread.
    pub fn pass(&self, stopper: &Stopper) -> bool {
        if !self.is_closed() {
            return false;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        while self.is_closed() && !stopper.is_requested() {
            thread::park();
        }
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        true
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// The threads of vCPUs, shared by who ends them and who pauses them. A handle
/// is taken out before it is joined, so that those in here can be signalled.
#[derive(Clone, Default)]
pub(super) struct Threads(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Threads {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> usize {
        let threads = self.lock();
        threads
            .iter()
            .filter(|thread| !thread.is_finished())
            .count()
    }

    /// Kicks all threads that run still out of KVM and out of waiting, and
    /// returns how many do.
    pub(super) fn kick(&self) -> usize {
        let threads = self.lock();
        let running = threads.iter().filter(|thread| !thread.is_finished());
        running
            .inspect(|thread| {
                // Unparks a vCPU that waits for a huge page, or at the gate.
                thread.thread().unpark();
                // Fails only if the thread is gone, which is what is wanted.
                let _ = thread.kill(SIGRTMIN());
            })
            .count()
    }
}

/// Pauses and resumes vCPUs, from any thread.
#[derive(Clone)]
pub struct VcpuPause {
    pub(super) gate: Arc<Gate>,
    pub(super) threads: Threads,
}

impl VcpuPause {
    /// Stops all vCPUs; true if all had stopped within `limit`. Those that had
    /// not stop as soon as they come out of KVM. No change if they are stopped.
    #[must_use]
    pub fn pause(&self, limit: Duration) -> bool {
        self.gate.closed.store(true, Ordering::Release);
        let begun = Instant::now();
        loop {
            if self.gate.waiting.load(Ordering::Acquire) >= self.threads.running() {
                return true;
            }
            if begun.elapsed() >= limit {
                return false;
            }
            // A kick that comes between a look at the gate and KVM_RUN is lost.
            self.threads.kick();
            thread::sleep(KICK_INTERVAL);
        }
    }

    /// Lets all vCPUs run.
    pub fn resume(&self) {
        self.gate.closed.store(false, Ordering::Release);
        for thread in self.threads.lock().iter() {
            thread.thread().unpark();
        }
    }

    /// Whether they are to be stopped.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.gate.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use vmm_sys_util::signal::register_signal_handler;

    use super::*;
    use crate::ending::StopCause;

    extern "C" fn on_kick(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

    /// Threads that count instead of running a guest.
    struct Counting {
        pause: VcpuPause,
        stopper: Arc<Stopper>,
        counts: Arc<[AtomicU64; 3]>,
    }

    impl Counting {
        fn new() -> Self {
            register_signal_handler(SIGRTMIN(), on_kick).unwrap();
            let this = Self {
                pause: VcpuPause {
                    gate: Arc::default(),
                    threads: Threads::default(),
                },
                stopper: Arc::new(Stopper::new().unwrap()),
                counts: Arc::default(),
            };
            for index in 0..this.counts.len() {
                let (counts, gate) = (Arc::clone(&this.counts), Arc::clone(&this.pause.gate));
                let stopper = Arc::clone(&this.stopper);
                let thread = thread::spawn(move || {
                    while !stopper.is_requested() {
                        gate.pass(&stopper);
                        counts[index].fetch_add(1, Ordering::SeqCst);
                        thread::sleep(Duration::from_micros(100));
                    }
                });
                this.pause.threads.lock().push(thread);
            }
            this
        }

        fn counts(&self) -> [u64; 3] {
            [0, 1, 2].map(|index| self.counts[index].load(Ordering::SeqCst))
        }

        /// Whether all count on, or none does.
        fn all_count(&self) -> bool {
            let before = self.counts();
            let until = Instant::now() + Duration::from_secs(5);
            loop {
                thread::sleep(Duration::from_millis(30));
                let now = self.counts();
                let moved = (0..3).filter(|i| now[*i] > before[*i]).count();
                match moved {
                    0 => return false,
                    3 => return true,
                    _ => assert!(Instant::now() < until, "only some count"),
                }
            }
        }

        fn end(self) {
            self.stopper.request(StopCause::PowerOff);
            while self.pause.threads.kick() > 0 {
                thread::sleep(KICK_INTERVAL);
            }
        }
    }

    #[test]
    fn paused_vcpus_stand_still_and_go_on_when_resumed_as_often_as_asked() {
        let vcpus = Counting::new();
        for _ in 0..3 {
            assert!(vcpus.all_count());
            // Each twice: the second changes nothing.
            for _ in 0..2 {
                assert!(vcpus.pause.pause(Duration::from_secs(5)));
                assert!(vcpus.pause.is_paused());
            }
            assert!(!vcpus.all_count(), "they stand still");
            vcpus.pause.resume();
            vcpus.pause.resume();
            assert!(!vcpus.pause.is_paused());
        }
        assert!(vcpus.all_count());
        vcpus.end();
    }

    #[test]
    fn a_stop_gets_through_a_pause_and_a_pause_of_no_vcpus_is_at_once() {
        let vcpus = Counting::new();
        let pause = vcpus.pause.clone();
        assert!(pause.pause(Duration::from_secs(5)));
        vcpus.end();
        assert!(pause.pause(Duration::ZERO));
    }

    #[test]
    fn a_vcpu_that_does_not_come_is_told_and_stops_later() {
        let pause = VcpuPause {
            gate: Arc::default(),
            threads: Threads::default(),
        };
        let stopper = Arc::new(Stopper::new().unwrap());
        register_signal_handler(SIGRTMIN(), on_kick).unwrap();
        let busy = Arc::new(AtomicBool::new(true));
        let (theirs, gate) = (Arc::clone(&busy), Arc::clone(&pause.gate));
        let ends = Arc::clone(&stopper);
        let thread = thread::spawn(move || {
            while theirs.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            gate.pass(&ends);
        });
        pause.threads.lock().push(thread);
        assert!(!pause.pause(Duration::from_millis(20)));
        busy.store(false, Ordering::Release);
        assert!(pause.pause(Duration::from_secs(5)));
        stopper.request(StopCause::PowerOff);
        while pause.threads.kick() > 0 {
            thread::sleep(KICK_INTERVAL);
        }
    }
}
