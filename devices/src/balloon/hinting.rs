//! Free page hinting (virtio 1.3, 5.5.6.5): one run of it, and the command ids
//! by which device and driver keep runs apart.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::changes::Changes;
use super::spec::{CMD_ID_DONE, CMD_ID_FIRST, CMD_ID_STOP};

/// How far a hinting run has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintingPhase {
    /// There has been none.
    #[default]
    Idle,
    /// The guest is asked for hints and has not answered.
    Asked,
    /// The guest hints.
    Running,
    /// It is over; [`HintingStatus::ended`] says why.
    Ended,
}

/// Why a hinting run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintingEnd {
    /// The guest has no more hints.
    GuestDone,
    /// The owner stopped it.
    Stopped,
    /// The guest did not come to an end in time.
    TimedOut,
    /// The guest sent a command that is none.
    BadCommand,
    /// The driver reset the device.
    Reset,
}

/// The last hinting run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintingStatus {
    /// How far it has come.
    pub phase: HintingPhase,
    /// The command id it has, 2 or more.
    pub command_id: Option<u32>,
    /// Bytes of guest RAM the guest hinted at.
    pub hinted_bytes: u64,
    /// Bytes of those that went back to the host.
    pub discarded_bytes: u64,
    /// Why it is over.
    pub ended: Option<HintingEnd>,
}

#[derive(Debug)]
struct Run {
    status: HintingStatus,
    /// The id used last, by this run or one before.
    last_id: u32,
    /// The first of the ids used since the driver last sent STOP: they must not
    /// be used again (5.5.6.5).
    unconfirmed: Option<u32>,
    /// The command the driver sent last.
    received: Option<u32>,
    deadline: Option<Instant>,
    /// A run ended for this driver, which may have its pages again.
    done: bool,
}

impl Run {
    fn is_on(&self) -> bool {
        matches!(
            self.status.phase,
            HintingPhase::Asked | HintingPhase::Running
        )
    }

    fn end(&mut self, why: HintingEnd) -> bool {
        let on = self.is_on();
        if on {
            self.status.phase = HintingPhase::Ended;
            self.status.ended = Some(why);
            self.deadline = None;
            self.done = true;
        }
        on
    }
}

/// Hinting runs, one at a time.
#[derive(Debug)]
pub(crate) struct Hints {
    run: Mutex<Run>,
    /// How long a run may take.
    limit: Duration,
    changes: Arc<Changes>,
}

impl Hints {
    /// None so far; each may take `limit`.
    pub(crate) fn new(limit: Duration, changes: Arc<Changes>) -> Self {
        let run = Run {
            status: HintingStatus::default(),
            last_id: CMD_ID_FIRST - 1,
            unconfirmed: None,
            received: None,
            deadline: None,
            done: false,
        };
        Self {
            run: Mutex::new(run),
            limit,
            changes,
        }
    }

    /// Starts a run; one that is on gives way to it. Returns its command id.
    ///
    /// # Errors
    /// `ResourceBusy` if there is no command id left that the driver cannot
    /// take for that of an earlier run.
    pub(crate) fn start(&self) -> io::Result<u32> {
        let mut run = self.lock();
        let next = run.last_id.wrapping_add(1).max(CMD_ID_FIRST);
        if run.unconfirmed == Some(next) {
            let what = "the guest never confirmed the end of an earlier hinting run";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        run.last_id = next;
        run.unconfirmed.get_or_insert(next);
        run.deadline = Instant::now().checked_add(self.limit);
        run.status = HintingStatus {
            phase: HintingPhase::Asked,
            command_id: Some(next),
            ..HintingStatus::default()
        };
        drop(run);
        self.changes.add();
        Ok(next)
    }

    /// Ends the run that is on, if one is.
    pub(crate) fn end(&self, why: HintingEnd) {
        if self.lock().end(why) {
            self.changes.add();
        }
    }

    /// Ends the run that is on if its time is up.
    pub(crate) fn expire(&self) {
        let overdue = self.deadline().is_some_and(|at| at <= Instant::now());
        if overdue {
            self.end(HintingEnd::TimedOut);
        }
    }

    /// When the run that is on has to be over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().deadline
    }

    /// What the driver is to read in free_page_hint_cmd_id. Not to be shown as
    /// DONE before the device has let go of hinted memory.
    pub(crate) fn command_id(&self) -> u32 {
        let run = self.lock();
        match run.status.command_id {
            Some(id) if run.is_on() => id,
            _ if run.done => CMD_ID_DONE,
            _ => CMD_ID_STOP,
        }
    }

    /// The driver sent a command.
    pub(crate) fn received(&self, id: u32) {
        let mut run = self.lock();
        let current = run.status.command_id.filter(|_| run.is_on());
        let before = run.received.replace(id);
        let changed = if id == CMD_ID_STOP {
            // No id sent before it comes again, but the one the driver may not
            // have seen yet.
            let heeded = before.is_some() && before == current;
            run.unconfirmed = current.filter(|_| !heeded);
            heeded && run.end(HintingEnd::GuestDone)
        } else if current == Some(id) {
            run.status.phase = HintingPhase::Running;
            true
        } else {
            false
        };
        drop(run);
        if changed {
            self.changes.add();
        }
    }

    /// The run whose hints may be used now: the driver hints for the one that
    /// is on.
    pub(crate) fn accepting(&self) -> Option<u32> {
        let run = self.lock();
        let current = run.status.command_id.filter(|_| run.is_on());
        current.filter(|_| run.received == current)
    }

    /// Counts hints of run `id`, unless that is over.
    pub(crate) fn count(&self, id: u32, hinted: u64, discarded: u64) {
        let status = &mut self.lock().status;
        if status.command_id == Some(id) {
            status.hinted_bytes = status.hinted_bytes.saturating_add(hinted);
            status.discarded_bytes = status.discarded_bytes.saturating_add(discarded);
        }
    }

    /// How far the last run has come.
    pub(crate) fn status(&self) -> HintingStatus {
        self.lock().status
    }

    /// The driver went; the next one reads STOP.
    pub(crate) fn reset(&self) {
        self.end(HintingEnd::Reset);
        let mut run = self.lock();
        run.received = None;
        run.unconfirmed = None;
        run.done = false;
    }

    fn lock(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints_after(last_id: u32) -> Hints {
        let hints = Hints::new(Duration::from_secs(60), Arc::default());
        hints.lock().last_id = last_id;
        hints
    }

    #[test]
    fn h03_the_command_id_skips_0_and_1_when_it_wraps() {
        let hints = hints_after(u32::MAX - 1);
        assert_eq!(hints.start().unwrap(), u32::MAX);
        assert_eq!(hints.start().unwrap(), 2);
        assert_eq!(hints.start().unwrap(), 3);
    }

    #[test]
    fn h02_an_id_is_not_used_again_before_the_driver_confirmed_its_end() {
        let hints = hints_after(7);
        assert_eq!(hints.start().unwrap(), 8);
        // All the others, without a word from the driver.
        hints.lock().last_id = 7;
        let error = hints.start().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        // It never saw 8, so its STOP says nothing about it.
        hints.received(CMD_ID_STOP);
        assert!(hints.start().is_err());
        hints.received(8);
        hints.received(CMD_ID_STOP);
        assert_eq!(hints.start().unwrap(), 8);
    }

    #[test]
    fn hints_count_from_the_id_to_the_end_of_its_run() {
        let hints = hints_after(1);
        assert_eq!((hints.command_id(), hints.accepting()), (CMD_ID_STOP, None));
        let id = hints.start().unwrap();
        assert_eq!((hints.command_id(), hints.accepting()), (id, None));
        hints.received(id);
        assert_eq!((hints.command_id(), hints.accepting()), (id, Some(id)));
        let next = hints.start().unwrap();
        assert_eq!(hints.accepting(), None, "the driver still hints for {id}");
        hints.count(id, 4096, 0);
        hints.received(CMD_ID_STOP);
        assert_eq!(hints.status().phase, HintingPhase::Asked, "the old STOP");
        hints.received(next);
        hints.count(next, 8192, 0);
        hints.received(CMD_ID_STOP);
        let status = hints.status();
        assert_eq!(
            (status.ended, status.hinted_bytes),
            (Some(HintingEnd::GuestDone), 8192)
        );
        assert_eq!((hints.command_id(), hints.accepting()), (CMD_ID_DONE, None));
        hints.reset();
        assert_eq!(hints.command_id(), CMD_ID_STOP);
        assert_eq!(hints.status(), status, "the run is over, and stays so");
    }
}
