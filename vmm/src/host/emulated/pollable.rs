//! Events in a form that can be waited for together with other descriptors.

// UNSAFETY: the event's crate gives its descriptor only as a number.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use vmm_sys_util::eventfd::EventFd;

/// A descriptor of its own for the same event.
pub(super) fn pollable(event: &EventFd) -> io::Result<OwnedFd> {
    let number = event.try_clone()?.into_raw_fd();
    // SAFETY: the clone was open and has just handed over its descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
