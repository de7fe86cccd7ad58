//! The server of the socket, seen from the run: started with the socket, ended
//! with the run. What its thread does is in [`super::clients`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clients::{Clients, Ends};
use super::port::{ControlPort, FromVm, Say, Wake};
use super::socket_file::ControlSocket;

/// How long the VM may take to answer, beside what the command itself allows.
/// It takes milliseconds; this is for a host that hangs.
pub const NO_ANSWER: Duration = Duration::from_secs(5);

/// The running server. Dropping it ends it and removes the socket.
pub struct ControlServer {
    wake: Arc<Wake>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _socket: ControlSocket,
}

impl ControlServer {
    /// Serves the clients of `socket`; the VM's end is the port. Until the VM
    /// says that it is up, clients are told that it starts. When the port is
    /// dropped they are disconnected.
    ///
    /// # Errors
    /// The errors of events and of starting a thread.
    pub fn start(socket: ControlSocket) -> io::Result<(Self, ControlPort)> {
        Self::start_with(socket, NO_ANSWER)
    }

    fn start_with(socket: ControlSocket, no_answer: Duration) -> io::Result<(Self, ControlPort)> {
        let (said, from_vm) = mpsc::channel();
        let wake = Arc::new(Wake::new()?);
        let mouth = Mouth {
            said: Some(said),
            wake: Arc::clone(&wake),
        };
        let (port, to_vm) = ControlPort::new(Box::new(mouth))?;
        let closing = Arc::new(AtomicBool::new(false));
        let clients = Clients::new(Ends {
            listener: socket.listener()?,
            to_vm,
            from_vm,
            wake: Arc::clone(&wake),
            closing: Arc::clone(&closing),
            no_answer,
        });
        let thread = thread::Builder::new()
            .name("control-socket".to_owned())
            .spawn(move || clients.run())?;
        let this = Self {
            wake,
            closing,
            thread: Some(thread),
            _socket: socket,
        };
        Ok((this, port))
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        self.wake.wake();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            log::error!("the control socket's thread had panicked");
        }
    }
}

/// What the VM of this process talks into.
struct Mouth {
    /// There until it is dropped.
    said: Option<Sender<FromVm>>,
    wake: Arc<Wake>,
}

impl Say for Mouth {
    fn say(&mut self, said: FromVm) {
        if let Some(to) = &self.said {
            // Fails only when the server is gone, and its clients with it.
            let _ = to.send(said);
        }
        self.wake.wake();
    }
}

impl Drop for Mouth {
    fn drop(&mut self) {
        // Closed first, so that the server finds it closed when it wakes.
        drop(self.said.take());
        self.wake.wake();
    }
}

#[cfg(test)]
#[path = "server_test.rs"]
mod tests;
