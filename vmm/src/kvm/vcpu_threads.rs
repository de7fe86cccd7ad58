//! The threads vCPUs run on, and how they are brought to an end.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libc::{c_int, c_void, siginfo_t};
use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler};

use super::vcpu::{Buses, EmptyPool, Vcpu};
use crate::ending::Stopper;

/// Enough for the deepest path of an exit; the default of 2 MiB times 64 vCPUs
/// would be address space for nothing.
const STACK_BYTES: usize = 256 << 10;

/// How long a kick may take to be noticed before the next.
const KICK_INTERVAL: Duration = Duration::from_micros(500);

/// Does nothing: its arrival alone makes KVM_RUN return.
extern "C" fn on_kick(_: c_int, _: *mut siginfo_t, _: *mut c_void) {}

/// Running vCPUs. Dropping it stops them.
pub struct VcpuThreads {
    threads: Vec<JoinHandle<()>>,
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
        let mut running = Self {
            threads: Vec::with_capacity(vcpus.len()),
            stopper: Arc::clone(stopper),
        };
        for vcpu in vcpus {
            let (buses, empty_pool) = (Arc::clone(buses), empty_pool.clone());
            let stopper = Arc::clone(stopper);
            let thread = thread::Builder::new()
                .name(format!("vcpu{}", vcpu.id()))
                .stack_size(STACK_BYTES)
                .spawn(move || vcpu.run(&buses, &empty_pool, &stopper))?;
            running.threads.push(thread);
        }
        Ok(running)
    }

    /// Stops all vCPUs and waits for them; the stop must have been requested.
    ///
    /// A signal makes KVM_RUN return. One that arrives between the check for a
    /// stop and KVM_RUN is lost, so the signal is repeated until the thread is
    /// gone. Returns false if a thread had panicked.
    pub fn join(&mut self) -> bool {
        while self.kick() > 0 {
            thread::sleep(KICK_INTERVAL);
        }
        // Each is joined, also after one that panicked.
        let panicked = self.threads.drain(..).map(JoinHandle::join);
        panicked.filter(Result::is_err).count() == 0
    }

    /// Kicks all threads that run still, and returns how many do.
    fn kick(&self) -> usize {
        let running = self.threads.iter().filter(|thread| !thread.is_finished());
        running
            .inspect(|thread| {
                // Unparks a vCPU that waits for a huge page.
                thread.thread().unpark();
                // Fails only if the thread is gone, which is what is wanted.
                let _ = thread.kill(SIGRTMIN());
            })
            .count()
    }
}

impl Drop for VcpuThreads {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stopper.request(crate::ending::StopCause::Interrupted);
            self.join();
        }
    }
}
