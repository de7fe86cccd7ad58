//! What this machine and the emulated host say to each other.
//!
//! One byte stream (a virtio-serial port), cut into [`frame`]s; each frame is
//! one [`message`]. Neither side trusts the other's sizes: a frame is bounded,
//! and what does not decode ends the session.

pub mod frame;
pub mod message;

pub use frame::{Decoder, Frame, FrameError};
pub use message::{
    Done, Ended, FileStart, FileStored, Job, Leak, Message, MessageError, Pool, Ready,
};
