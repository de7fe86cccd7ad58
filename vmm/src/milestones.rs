//! What the guest was seen to reach, told by its serial ports to the event loop.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use vmm_sys_util::eventfd::EventFd;

/// Set by vCPU threads, read by the event loop.
pub struct Milestones {
    init_up: AtomicBool,
    panicked: AtomicBool,
    event: EventFd,
}

impl Milestones {
    /// None reached.
    ///
    /// # Errors
    /// The error of making the event.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            init_up: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            event: EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?,
        })
    }

    /// The guest's init gave its first line.
    pub fn init_is_up(&self) {
        self.reach(&self.init_up);
    }

    /// The guest's kernel printed that it panics.
    pub fn panicked(&self) {
        self.reach(&self.panicked);
    }

    fn reach(&self, milestone: &AtomicBool) {
        if !milestone.swap(true, Ordering::SeqCst) {
            // Can only fail after 2^64 - 2 of them.
            let _ = self.event.write(1);
        }
    }

    /// Whether the guest's init gave a line.
    #[must_use]
    pub fn has_init(&self) -> bool {
        self.init_up.load(Ordering::SeqCst)
    }

    /// Whether the guest's kernel panicked.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }

    /// Readable when a milestone was reached.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.event
    }
}
