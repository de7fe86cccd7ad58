//! Raw mode of the terminal on stdin, always given back.

use std::io;

use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios,
    tcgetattr, tcsetattr,
};

use crate::forced_exit::{Registration, on_forced_exit};

/// Ctrl-], which stops the run while the terminal is raw; telnet's and virsh's
/// key to get out. Ctrl-C goes to the guest.
const LEAVE_KEY: u8 = 0x1d;

/// A value that switches a special character off (POSIX `_POSIX_VDISABLE`).
const DISABLED: u8 = 0;

/// The terminal on stdin is raw as long as this lives.
#[derive(Debug)]
pub struct RawTerminal {
    before: Termios,
    _forced: Registration,
}

impl RawTerminal {
    /// Makes the terminal on stdin raw: the guest gets each key, without echo,
    /// but for [`LEAVE_KEY`], which raises SIGINT.
    ///
    /// # Errors
    /// stdin is not a terminal, or it refuses.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let for_forced_exit = before.clone();
        let this = Self {
            _forced: on_forced_exit(move || restore(&for_forced_exit)),
            before,
        };
        tcsetattr(io::stdin(), OptionalActions::Now, &raw(&this.before))?;
        Ok(this)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

fn restore(before: &Termios) {
    // A terminal that is gone needs no restoring.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
}

/// As cfmakeraw(3), but output is still processed, so that messages on stderr
/// stay readable, and one key still raises a signal.
fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.input_modes -= InputModes::IGNBRK
        | InputModes::BRKINT
        | InputModes::PARMRK
        | InputModes::ISTRIP
        | InputModes::INLCR
        | InputModes::IGNCR
        | InputModes::ICRNL
        | InputModes::IXON;
    raw.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
    raw.local_modes -=
        LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::IEXTEN;
    raw.local_modes |= LocalModes::ISIG;
    raw.control_modes -= ControlModes::CSIZE | ControlModes::PARENB;
    raw.control_modes |= ControlModes::CS8;
    for (code, key) in [
        (SpecialCodeIndex::VINTR, LEAVE_KEY),
        (SpecialCodeIndex::VQUIT, DISABLED),
        (SpecialCodeIndex::VSUSP, DISABLED),
        (SpecialCodeIndex::VMIN, 1),
        (SpecialCodeIndex::VTIME, 0),
    ] {
        raw.special_codes[code] = key;
    }
    raw
}
