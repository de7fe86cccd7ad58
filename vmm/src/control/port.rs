//! The way between the server of the clients and the VM, which may be in this
//! process, or in an emulated host.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

use super::command::Command;
use super::reply::Body;

/// What the VM hears.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToVm {
    /// A request with its number, which is never used again.
    Call {
        /// Its number.
        call: u64,
        /// What is asked for.
        command: Command,
    },
    /// Nobody waits for this call any more.
    Gone(u64),
    /// The run is over. Not from a client.
    End,
}

/// What the VM says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromVm {
    /// It takes calls from now on.
    Up,
    /// It answers a call.
    Answer {
        /// Number of the call.
        call: u64,
        /// What it says.
        body: Body,
    },
}

/// Takes what the VM says to where the clients are. Must not wait for a client.
pub trait Say: Send {
    /// Takes one thing said; if nobody listens any more, it is lost.
    fn say(&mut self, said: FromVm);
}

/// The VM's end of the way. Dropping it tells the other end that the VM is gone.
pub struct ControlPort {
    calls: Receiver<ToVm>,
    waiting: Arc<Wake>,
    own: CallSender,
    answers: Box<dyn Say>,
}

/// The clients' end of the calls.
#[derive(Clone)]
pub struct CallSender {
    calls: Sender<ToVm>,
    waiting: Arc<Wake>,
}

impl ControlPort {
    /// A port whose answers go to `answers`, and what puts calls into it.
    ///
    /// # Errors
    /// The error of making an event.
    pub fn new(answers: Box<dyn Say>) -> io::Result<(Self, CallSender)> {
        let (sender, calls) = mpsc::channel();
        let waiting = Arc::new(Wake::new()?);
        let sender = CallSender {
            calls: sender,
            waiting: Arc::clone(&waiting),
        };
        let port = Self {
            calls,
            waiting,
            own: sender.clone(),
            answers,
        };
        Ok((port, sender))
    }

    /// What can put calls into it from this side, too.
    #[must_use]
    pub fn sender(&self) -> CallSender {
        self.own.clone()
    }

    /// The next call, or `None` if none came within `wait`.
    pub fn next(&self, wait: Option<Duration>) -> Option<ToVm> {
        match wait {
            // Holding a sender itself, this end never sees a closed channel.
            None => self.calls.recv().ok(),
            Some(wait) => self.calls.recv_timeout(wait).ok(),
        }
    }

    /// A descriptor that is readable while a call may be waiting.
    #[must_use]
    pub fn waiting(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }

    /// The calls that wait now.
    pub fn take_all(&self) -> Vec<ToVm> {
        self.waiting.clear();
        self.calls.try_iter().collect()
    }

    /// Says something to the clients' end.
    pub fn say(&mut self, said: FromVm) {
        self.answers.say(said);
    }
}

impl CallSender {
    /// Sends a call; false if the VM is gone.
    pub fn send(&self, call: ToVm) -> bool {
        let sent = self.calls.send(call).is_ok();
        self.waiting.wake();
        sent
    }
}

/// An event that wakes a thread which polls.
pub struct Wake(OwnedFd);

impl Wake {
    /// Not signalled.
    ///
    /// # Errors
    /// The error of eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // Fails only where it is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        // Fails only where it is unreadable anyway.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
