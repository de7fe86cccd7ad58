//! virtio-mmio (virtio 1.3, 4.2): guest registers on one side, a worker thread
//! on the other.
//!
//! Guest memory is touched by the worker only. It holds the lock for short
//! steps on a ring, never while it works on guest memory, so a vCPU that
//! accesses a register does not wait for that work. Two writes are different:
//! a reset, and a 0 to QueueReady, promise that nothing is touched any more
//! once they are done. They cancel what the worker does and wait until it has
//! let go, which takes it at most one unit of work.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::device::VirtioDevice;
use super::log_budget::LogBudget;
use super::mmio_registers::{self as reg, status};
use super::transport_state::{State, StatusError};
use crate::interrupt::Interrupt;
use crate::mmio_bus::BusDevice;

/// Has memory behind the bytes from an address on; false if there is none.
pub(crate) type MakePresent = Box<dyn Fn(u64, u64) -> bool + Send + Sync>;

/// A device behind virtio-mmio registers.
pub(crate) struct MmioTransport<D: VirtioDevice> {
    state: Mutex<State<D>>,
    /// Signalled when the worker lets go of a queue.
    let_go: Condvar,
    /// The worker is to let go as soon as it can. Written with `state` locked;
    /// read without, between two units of work.
    cancel: AtomicBool,
    memory: GuestMemoryMmap,
    make_present: MakePresent,
    line: Arc<dyn Interrupt>,
    kicks: Vec<EventFd>,
    activated: EventFd,
    log: Arc<LogBudget>,
}

/// An event that neither blocks nor survives an exec.
pub(crate) fn new_event() -> io::Result<EventFd> {
    EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)
}

impl<D: VirtioDevice> MmioTransport<D> {
    /// The transport of `device`, just powered on. `make_present` is called for
    /// each area of a ring before every look at it, with the registers locked.
    ///
    /// # Errors
    /// The error of creating an event.
    pub(crate) fn new(
        device: D,
        memory: GuestMemoryMmap,
        make_present: MakePresent,
        line: Arc<dyn Interrupt>,
        log: Arc<LogBudget>,
    ) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(State::new(device)),
            let_go: Condvar::new(),
            cancel: AtomicBool::new(false),
            memory,
            make_present,
            line,
            kicks: (0..D::QUEUES)
                .map(|_| new_event())
                .collect::<io::Result<_>>()?,
            activated: new_event()?,
            log,
        })
    }

    /// One event per queue index, signalled by a kick.
    pub(crate) fn kicks(&self) -> &[EventFd] {
        &self.kicks
    }

    /// Signalled at DRIVER_OK: buffers may have been made available before.
    pub(crate) fn activated(&self) -> &EventFd {
        &self.activated
    }

    /// Guest memory, for the worker.
    pub(crate) fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Has memory behind `len` bytes from `addr` on, for the worker.
    pub(crate) fn make_present(&self, addr: u64, len: u64) -> bool {
        (self.make_present)(addr, len)
    }

    /// Whether the worker is to let go.
    pub(crate) fn cancel(&self) -> &AtomicBool {
        &self.cancel
    }

    /// The state, even if a thread panicked while it held it: each change to
    /// it leaves it sound.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker let go of its queue; wakes who waits for that.
    pub(crate) fn released(&self) {
        self.let_go.notify_all();
    }

    /// Changes the configuration; `change` says whether it did. The driver is
    /// told if it runs.
    pub(crate) fn change_config(&self, change: impl FnOnce(&mut D) -> bool) {
        let mut state = self.lock();
        if !change(&mut state.device) {
            return;
        }
        state.config_generation = state.config_generation.wrapping_add(1);
        if state.running().is_some() {
            self.interrupt(&mut state, reg::INTERRUPT_CONFIG);
        }
    }

    /// Raises the interrupt for `reason`. The lock is held throughout, so that
    /// no interrupt comes after a reset.
    pub(crate) fn interrupt(&self, state: &mut State<D>, reason: u32) {
        state.interrupt_status |= reason;
        if let Err(error) = self.line.trigger() {
            self.log
                .warn(format_args!("an interrupt was not delivered: {error}"));
        }
    }

    /// Gives up until the driver resets the device (2.1.2).
    pub(crate) fn need_reset(&self, state: &mut State<D>, why: &dyn std::fmt::Display) {
        self.log
            .warn(format_args!("the device needs a reset: {why}"));
        state.status |= status::NEEDS_RESET;
        if state.status & status::DRIVER_OK != 0 {
            self.interrupt(state, reg::INTERRUPT_CONFIG);
        }
    }

    /// Stops the worker's access to guest memory for good; returns when it
    /// has let go.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        drop(self.wait_for_worker(state, |_| true));
    }

    fn wait_for_worker<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<D>>,
        concerned: impl Fn(usize) -> bool,
    ) -> MutexGuard<'a, State<D>> {
        while state.busy.is_some_and(&concerned) {
            self.cancel.store(true, Ordering::Relaxed);
            state = self
                .let_go
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn reset(&self, mut state: MutexGuard<'_, State<D>>) {
        state.resetting += 1;
        let mut state = self.wait_for_worker(state, |_| true);
        state.resetting -= 1;
        state.reset();
    }

    fn write_status(&self, value: u32) {
        let mut state = self.lock();
        if value == 0 {
            return self.reset(state);
        }
        let was_running = state.running().is_some();
        match state.set_status(value) {
            Ok(()) => {}
            Err(StatusError::NeedsReset(why)) => self.need_reset(&mut state, &why),
            Err(why) => self.log.warn(format_args!("{why}")),
        }
        if !was_running && state.running().is_some() {
            self.signal(&self.activated);
        }
    }

    fn write_queue_ready(&self, value: u32) {
        let mut state = self.lock();
        if value == 0 {
            let Some(index) = state.selected() else {
                return;
            };
            if let Some(slot) = state.slots.get_mut(index) {
                slot.start_closing();
            }
            let mut state = self.wait_for_worker(state, |busy| busy == index);
            if let Some(slot) = state.slots.get_mut(index) {
                slot.close();
            }
        } else if let Some((slot, max, accepted)) = state.configurable_queue() {
            if let Err(error) = slot.open(&self.memory, max, accepted) {
                self.log
                    .warn(format_args!("queue {} refused: {error}", state.queue_sel));
            }
        }
    }

    fn kick(&self, index: u32) {
        let event = usize::try_from(index).ok().and_then(|i| self.kicks.get(i));
        if let Some(event) = event {
            self.signal(event);
        }
    }

    fn signal(&self, event: &EventFd) {
        if let Err(error) = event.write(1) {
            self.log
                .warn(format_args!("the worker was not woken: {error}"));
        }
    }
}

impl<D: VirtioDevice> BusDevice for MmioTransport<D> {
    fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let Some(offset) = offset.checked_sub(reg::CONFIG.into()) {
            self.lock().device.read_config(offset, data);
        } else if let (Ok(register), Ok(data)) =
            (u32::try_from(offset), <&mut [u8; 4]>::try_from(data))
        {
            *data = self.lock().read(register).to_le_bytes();
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        if let Some(offset) = offset.checked_sub(reg::CONFIG.into()) {
            self.lock().device.write_config(offset, data);
        } else if let (Ok(register), Ok(data)) = (u32::try_from(offset), <[u8; 4]>::try_from(data))
        {
            let value = u32::from_le_bytes(data);
            match register {
                reg::STATUS => self.write_status(value),
                reg::QUEUE_READY => self.write_queue_ready(value),
                reg::QUEUE_NOTIFY => self.kick(value),
                _ => self.lock().write(register, value),
            }
        }
    }
}
