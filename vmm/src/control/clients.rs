//! All clients of the socket: the thread that accepts them, reads their
//! requests, passes them to the VM, and gives them its answers. It waits for
//! nobody: not for a client, not for the VM.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::client::{Client, Line, Pending};
use super::command::{self, MAX_LINE, Request};
use super::port::{CallSender, FromVm, ToVm, Wake};
use super::reply::{Body, ControlError, ErrorCode};

/// Clients at a time. One more takes the place of the one that has been idle
/// longest; if all wait for an answer it is refused.
pub(super) const MAX_CLIENTS: usize = 16;
/// How long the last replies may take to be read when the run ends.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
/// How long no client is accepted after the system had no descriptor for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What the thread is connected to.
pub(super) struct Ends {
    /// The socket; it does not block.
    pub(super) listener: UnixListener,
    pub(super) to_vm: CallSender,
    pub(super) from_vm: Receiver<FromVm>,
    /// Wakes the thread when the VM said something, or it is to end.
    pub(super) wake: Arc<Wake>,
    /// It is to end.
    pub(super) closing: Arc<AtomicBool>,
    /// How long the VM may take to answer, beside what the command allows.
    pub(super) no_answer: Duration,
}

/// The clients that are connected.
pub(super) struct Clients {
    ends: Ends,
    clients: BTreeMap<u64, Client>,
    last_client: u64,
    last_call: u64,
    /// The VM takes calls.
    up: bool,
    accept_after: Option<Instant>,
}

/// Why a client is let go.
type Gone = io::Error;

impl Clients {
    /// None so far.
    pub(super) fn new(ends: Ends) -> Self {
        Self {
            ends,
            clients: BTreeMap::new(),
            last_client: 0,
            last_call: 0,
            up: false,
            accept_after: None,
        }
    }

    /// Serves them until the VM is gone or the server closes.
    pub(super) fn run(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    log::error!("the control socket ends: {error}");
                    return;
                }
            };
            if !self.hear_vm() || self.ends.closing.load(Ordering::Acquire) {
                return self.close();
            }
            for number in ready.clients {
                self.serve(number, |this, client, now| this.turn(client, now));
            }
            if ready.listener {
                self.accept();
            }
            self.give_up_waiting();
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> io::Result<Ready> {
        let now = Instant::now();
        if self.accept_after.is_some_and(|after| after <= now) {
            self.accept_after = None;
        }
        let deadlines = self.clients.values().filter_map(|client| {
            let pending = client.pending.as_ref()?;
            Some(pending.deadline)
        });
        let next = deadlines.chain(self.accept_after).min();
        let wait = next.map(|at| at.saturating_duration_since(now));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());

        let mut fds = vec![PollFd::from_borrowed_fd(
            self.ends.wake.as_fd(),
            PollFlags::IN,
        )];
        for client in self.clients.values() {
            // With neither, a client that hangs up is still noticed.
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, client.wants_input());
            wanted.set(PollFlags::OUT, client.has_unread());
            fds.push(PollFd::from_borrowed_fd(client.as_fd(), wanted));
        }
        if self.accept_after.is_none() {
            fds.push(PollFd::new(&self.ends.listener, PollFlags::IN));
        }
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut found = fds.iter().map(|fd| !fd.revents().is_empty());
        if found.next() == Some(true) {
            self.ends.wake.clear();
        }
        let mut clients: Vec<u64> = Vec::new();
        for number in self.clients.keys() {
            if found.next() == Some(true) {
                clients.push(*number);
            }
        }
        Ok(Ready {
            clients,
            listener: found.next() == Some(true),
        })
    }

    /// Hears what the VM says; false if it is gone.
    fn hear_vm(&mut self) -> bool {
        loop {
            match self.ends.from_vm.try_recv() {
                Ok(FromVm::Up) => self.up = true,
                Ok(FromVm::Answer { call, body }) => self.answer(call, &body),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Passes an answer to whoever waits for it; nobody may.
    fn answer(&mut self, call: u64, body: &Body) {
        let waiting = |client: &Client| client.pending.as_ref().is_some_and(|p| p.call == call);
        let found = self.clients.iter().find(|(_, client)| waiting(client));
        let Some(number) = found.map(|(number, _)| *number) else {
            return;
        };
        self.serve(number, |this, client, now| {
            let id = client.pending.as_ref().and_then(|p| p.id.clone());
            if body.is_last() {
                client.pending = None;
            }
            client.tell(body, id.as_ref(), now)?;
            this.take_lines(client, now)
        });
    }

    /// Does something with one client, and lets it go if it is gone or done.
    fn serve(
        &mut self,
        number: u64,
        what: impl FnOnce(&mut Self, &mut Client, Instant) -> Result<(), Gone>,
    ) {
        let Some(mut client) = self.clients.remove(&number) else {
            return;
        };
        match what(self, &mut client, Instant::now()) {
            Ok(()) if !client.is_done() => {
                self.clients.insert(number, client);
            }
            Ok(()) => {}
            Err(why) => {
                log::debug!("a client of the control socket is gone: {why}");
                if let Some(pending) = client.pending {
                    self.ends.to_vm.send(ToVm::Gone(pending.call));
                }
            }
        }
    }

    /// A client is ready for something.
    fn turn(&mut self, client: &mut Client, now: Instant) -> Result<(), Gone> {
        client.flush(now)?;
        if client.wants_input() {
            client.read(now)?;
        } else if client.pending.is_some() && has_hung_up(client) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.take_lines(client, now)
    }

    /// Handles the lines of a client that may be handled now.
    fn take_lines(&mut self, client: &mut Client, now: Instant) -> Result<(), Gone> {
        while let Some(line) = client.next_line() {
            let (id, error) = match line {
                Line::TooLong => {
                    let what = format!("a request has at most {MAX_LINE} bytes");
                    (None, ControlError::new(ErrorCode::BadRequest, what))
                }
                Line::Whole(line) => match command::parse(&line) {
                    Ok(request) => match self.call(client, request, now) {
                        Ok(()) => continue,
                        Err(refused) => refused,
                    },
                    Err(bad) => (bad.id, bad.error),
                },
            };
            client.tell(&Body::Failed(error), id.as_ref(), now)?;
        }
        Ok(())
    }

    /// Passes a request to the VM; the client waits for its answer.
    fn call(
        &mut self,
        client: &mut Client,
        request: Request,
        now: Instant,
    ) -> Result<(), (Option<Value>, ControlError)> {
        let Request { id, command } = request;
        if !self.up {
            let what = "the VM has not started yet; ask again in a moment";
            return Err((id, ControlError::new(ErrorCode::Starting, what)));
        }
        self.last_call += 1;
        client.pending = Some(Pending {
            call: self.last_call,
            id,
            deadline: now + command.patience() + self.ends.no_answer,
        });
        let call = self.last_call;
        // If the VM is gone, so are the clients in a moment.
        self.ends.to_vm.send(ToVm::Call { call, command });
        Ok(())
    }

    /// Tells those who waited too long.
    fn give_up_waiting(&mut self) {
        let now = Instant::now();
        let pending = self.clients.values().filter_map(|c| c.pending.as_ref());
        let late = pending.filter(|pending| pending.deadline <= now);
        let late: Vec<u64> = late.map(|pending| pending.call).collect();
        for call in late {
            self.ends.to_vm.send(ToVm::Gone(call));
            let what = "the VM did not answer in time; does its host hang?";
            let error = ControlError::new(ErrorCode::NoAnswer, what);
            self.answer(call, &Body::Failed(error));
        }
    }

    fn accept(&mut self) {
        let stream = match self.ends.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                log::debug!("the control socket accepts nobody for a moment: {error}");
                self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                return;
            }
        };
        if let Err(error) = stream.set_nonblocking(true) {
            log::debug!("a client of the control socket was lost: {error}");
            return;
        }
        let now = Instant::now();
        let mut client = Client::new(stream, now);
        if self.clients.len() >= MAX_CLIENTS {
            let idle = self.clients.iter().filter(|(_, c)| c.pending.is_none());
            let longest = idle.min_by_key(|(_, client)| client.active);
            if let Some(number) = longest.map(|(number, _)| *number) {
                self.clients.remove(&number);
            } else {
                let what = format!("{MAX_CLIENTS} clients are waiting already");
                let error = ControlError::new(ErrorCode::TooManyClients, what);
                // It is let go whether it hears that or not.
                let _ = client.tell(&Body::Failed(error), None, now);
                return;
            }
        }
        self.last_client += 1;
        self.clients.insert(self.last_client, client);
    }

    /// Lets the last replies be read, and nothing more.
    fn close(mut self) {
        let until = Instant::now() + CLOSE_PATIENCE;
        // Also what the VM said since.
        self.hear_vm();
        loop {
            let now = Instant::now();
            self.clients.retain(|_, client| {
                let sent = client.flush(now);
                sent.is_ok() && client.has_unread()
            });
            let left = until.saturating_duration_since(now);
            if self.clients.is_empty() || left.is_zero() {
                return;
            }
            let clients = self.clients.values();
            let mut fds: Vec<_> = clients
                .map(|client| PollFd::new(client, PollFlags::OUT))
                .collect();
            if poll(&mut fds, Timespec::try_from(left).ok().as_ref()).is_err() {
                return;
            }
        }
    }
}

/// What is ready.
struct Ready {
    clients: Vec<u64>,
    listener: bool,
}

/// Whether both directions are closed: nobody is there to answer.
fn has_hung_up(client: &Client<UnixStream>) -> bool {
    let mut fds = [PollFd::new(client, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    let [fd] = fds;
    polled.is_ok() && fd.revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
