//! Raw mode of a terminal, always given back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios,
    tcgetattr, tcsetattr,
};

use crate::forced_exit::{Registration, on_forced_exit};

/// Ctrl-], which stops the run while the terminal is raw; telnet's and virsh's
/// key to get out. Ctrl-C goes to the guest.
const LEAVE_KEY: u8 = 0x1d;

/// A value that switches a special character off (Linux's `_POSIX_VDISABLE`).
const DISABLED: u8 = 0;

/// A terminal is raw as long as this lives.
#[derive(Debug)]
pub struct RawTerminal {
    before: Arc<Settings>,
    _forced: Registration,
}

/// What a terminal was before.
#[derive(Debug)]
struct Settings {
    terminal: OwnedFd,
    modes: Termios,
}

impl RawTerminal {
    /// Makes `terminal` raw: whoever reads it gets each key, without echo, but
    /// for Ctrl-], which raises SIGINT.
    ///
    /// # Errors
    /// It is not a terminal, or it refuses.
    pub fn enter(terminal: impl AsFd) -> io::Result<Self> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let modes = tcgetattr(&terminal)?;
        let before = Arc::new(Settings { terminal, modes });
        let for_forced_exit = Arc::clone(&before);
        let this = Self {
            _forced: on_forced_exit(move || for_forced_exit.restore()),
            before,
        };
        let raw = raw(&this.before.modes);
        tcsetattr(&this.before.terminal, OptionalActions::Now, &raw)?;
        Ok(this)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.before.restore();
    }
}

impl Settings {
    fn restore(&self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.modes);
    }
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

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::{Read, Write};
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    /// The keyboard's end and the program's end of a new terminal.
    fn terminal() -> (File, File) {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
        grantpt(&keyboard).expect("a pty");
        unlockpt(&keyboard).expect("a pty");
        let name = ptsname(&keyboard, Vec::new()).expect("a pty");
        let program = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name.to_str().expect("UTF-8"))
            .expect("a pty");
        (File::from(keyboard), program)
    }

    #[test]
    fn keys_reach_the_reader_at_once_and_unchanged() {
        let (mut keyboard, mut program) = terminal();
        let _raw = RawTerminal::enter(&program).expect("raw");
        // No line feed at the end, and keys that would be signals or edits.
        let keys = b"a\r\x03\x1a\x1c\x11\x7f\x04";
        keyboard.write_all(keys).expect("typed");
        let mut got = [0; 8];
        program.read_exact(&mut got).expect("read");
        assert_eq!(&got, keys);
    }

    #[test]
    fn one_key_still_raises_a_signal() {
        let (_keyboard, program) = terminal();
        let _raw = RawTerminal::enter(&program).expect("raw");
        let modes = tcgetattr(&program).expect("modes");
        assert!(modes.local_modes.contains(LocalModes::ISIG));
        assert_eq!(modes.special_codes[SpecialCodeIndex::VINTR], LEAVE_KEY);
    }

    #[test]
    fn the_terminal_is_given_back_as_it_was() {
        let (_keyboard, program) = terminal();
        let modes = || format!("{:?}", tcgetattr(&program).expect("modes"));
        let before = modes();
        let raw = RawTerminal::enter(&program).expect("raw");
        assert_ne!(modes(), before);
        drop(raw);
        assert_eq!(modes(), before);
    }

    #[test]
    fn what_is_no_terminal_is_refused() {
        RawTerminal::enter(File::open("/dev/null").expect("/dev/null")).expect_err("no terminal");
    }
}
