//! The threads vCPUs run on, and how they are brought to an end.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use libc::{c_int, c_void, siginfo_t};
use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler};

use super::vcpu::{Buses, EmptyPool, Vcpu};
use super::vcpu_pause::{Gate, KICK_INTERVAL, Threads, VcpuPause};
use crate::ending::Stopper;

/// Enough for the deepest path of an exit; the default of 2 MiB times 64 vCPUs
/// would be address space for nothing.
const STACK_BYTES: usize = 256 << 10;

/// Does nothing: its arrival alone makes KVM_RUN return.
extern "C" fn on_kick(_: c_int, _: *mut siginfo_t, _: *mut c_void) {}

/// Running vCPUs. Dropping it stops them.
pub struct VcpuThreads {
    threads: Threads,
    gate: Arc<Gate>,
    stopper: Arc<Stopper>,
}

impl VcpuThreads {
    /// Starts one thread for each vCPU.
    ///
    /// # Errors
    /// The error of installing the signal handler or of starting a thread; what
    /// was started is stopped again.
    pub fn start(
        vcpus: Vec<Vcpu>,
        buses: &Arc<Buses>,
        empty_pool: &EmptyPool,
        stopper: &Arc<Stopper>,
    ) -> io::Result<Self> {
        register_signal_handler(SIGRTMIN(), on_kick)?;
        let running = Self {
            threads: Threads::default(),
            gate: Arc::default(),
            stopper: Arc::clone(stopper),
        };
        for vcpu in vcpus {
            let (buses, empty_pool) = (Arc::clone(buses), empty_pool.clone());
            let (gate, stopper) = (Arc::clone(&running.gate), Arc::clone(stopper));
            let thread = thread::Builder::new()
                .name(format!("vcpu{}", vcpu.id()))
                .stack_size(STACK_BYTES)
                .spawn(move || vcpu.run(&buses, &empty_pool, &gate, &stopper))?;
            running.threads.lock().push(thread);
        }
        Ok(running)
    }

    /// What pauses them.
    #[must_use]
    pub fn pause(&self) -> VcpuPause {
        VcpuPause {
            gate: Arc::clone(&self.gate),
            threads: self.threads.clone(),
        }
    }

    /// Stops all vCPUs and waits for them; the stop must have been requested.
    ///
    /// A signal makes KVM_RUN return. One that arrives between the check for a
    /// stop and KVM_RUN is lost, so the signal is repeated until the thread is
    /// gone. Returns false if a thread had panicked.
    pub fn join(&mut self) -> bool {
        while self.threads.kick() > 0 {
            thread::sleep(KICK_INTERVAL);
        }
        // Each is joined, also after one that panicked.
        let ended = std::mem::take(&mut *self.threads.lock());
        let panicked = ended.into_iter().map(JoinHandle::join);
        panicked.filter(Result::is_err).count() == 0
    }
}

impl Drop for VcpuThreads {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            self.stopper.request(crate::ending::StopCause::Interrupted);
            self.join();
        }
    }
}
