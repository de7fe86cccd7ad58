//! What the host says, from any thread.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::host::protocol::Message;

/// Writes whole messages, one at a time.
#[derive(Clone)]
pub(super) struct Outbox(Arc<Mutex<Box<dyn Write + Send>>>);

impl Outbox {
    pub(super) fn new(to: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(to))))
    }

    /// Waits until the other side took it.
    pub(super) fn send(&self, message: &Message) -> io::Result<()> {
        let mut frame = Vec::new();
        message.encode(&mut frame).map_err(io::Error::other)?;
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(&frame)?;
        to.flush()
    }
}
