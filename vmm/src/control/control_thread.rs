//! Carries out what clients ask for, one command after the other, without ever
//! waiting for the guest: a command that does is looked at again as time passes.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::balloon_goal::BalloonGoal;
use super::command::{BALLOON_PAGE, Command, STATS_WAIT};
use super::port::{CallSender, ControlPort, FromVm, ToVm};
use super::reply::{
    BalloonSet, BalloonState, Body, ControlError, ErrorCode, Outcome, StateReply, VmState,
};
use super::vm::ControlledVm;

/// How often a balloon on its way is looked at, and a ramp goes on.
const BALLOON_INTERVAL: Duration = Duration::from_millis(50);
/// How often a client that waits for a size is told how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// How often it is looked whether the guest's statistics have come.
const STATS_INTERVAL: Duration = Duration::from_millis(5);

/// The thread. Dropping it ends it.
pub struct ControlThread {
    port: CallSender,
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    /// Starts it; from now on `vm` is controlled through `port`.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn start(port: ControlPort, vm: impl ControlledVm + 'static) -> io::Result<Self> {
        let sender = port.sender();
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || Control::new(port, vm).run())?;
        Ok(Self {
            port: sender,
            thread: Some(thread),
        })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.port.send(ToVm::End);
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            log::error!("the control thread had panicked");
        }
    }
}

struct Control<V> {
    port: ControlPort,
    vm: V,
    goal: BalloonGoal,
    target_pages: u64,
    told_progress: Instant,
    stats: Vec<StatsWait>,
}

/// A client that waits for the guest's statistics.
struct StatsWait {
    call: u64,
    /// The last sample before it asked.
    before: u64,
    until: Instant,
    timeout: Duration,
}

impl<V: ControlledVm> Control<V> {
    fn new(port: ControlPort, vm: V) -> Self {
        let boot_target = vm.boot_target();
        Self {
            port,
            vm,
            goal: BalloonGoal::at_once(boot_target),
            target_pages: boot_target,
            told_progress: Instant::now(),
            stats: Vec::new(),
        }
    }

    fn run(mut self) {
        self.port.say(FromVm::Up);
        loop {
            match self.port.next(self.next_look()) {
                Some(ToVm::Call { call, command }) => self.call(call, &command),
                Some(ToVm::Gone(call)) => self.forget(call),
                Some(ToVm::End) => return,
                None => {}
            }
            self.look(Instant::now());
        }
    }

    /// When something has to be looked at though nobody calls.
    fn next_look(&self) -> Option<Duration> {
        if !self.stats.is_empty() {
            return Some(STATS_INTERVAL);
        }
        self.goal.is_under_way().then_some(BALLOON_INTERVAL)
    }

    fn call(&mut self, call: u64, command: &Command) {
        let result = match command {
            Command::BalloonSet {
                size_bytes,
                wait_ms,
                ramp_bytes_per_s,
            } => {
                let wait = wait_ms.map(Duration::from_millis);
                match self.set_goal(call, *size_bytes, wait, *ramp_bytes_per_s) {
                    // The answer comes when the wait is over.
                    Ok(()) if wait.is_some() => return,
                    Ok(()) => Ok(self.balloon_set(Outcome::Set)),
                    Err(error) => Err(error),
                }
            }
            Command::BalloonGet {} => Ok(Body::done(&self.balloon())),
            Command::Stats { timeout_ms } => {
                let timeout = timeout_ms.map_or(STATS_WAIT, Duration::from_millis);
                match self.ask_for_statistics(call, timeout) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Command::HintStart {} => self.vm.start_hinting().map(Body::Done).map_err(lacking),
            Command::HintStatus {} => self.vm.hinting_status().map(Body::Done).map_err(lacking),
            Command::HintStop {} => self.vm.stop_hinting().map(Body::Done).map_err(lacking),
            Command::Counters {} => Ok(Body::done(&self.vm.counters())),
            Command::Info {} => Ok(Body::done(&self.vm.info())),
            Command::Pause {} => self
                .vm
                .pause()
                .map_err(refused)
                .map(|()| state(VmState::Paused)),
            Command::Resume {} => {
                self.vm.resume();
                Ok(state(VmState::Running))
            }
            Command::Stop {} => {
                // Said first: afterwards there is little time left.
                self.answer(call, state(VmState::Stopping));
                return self.vm.stop();
            }
        };
        self.answer(call, result.unwrap_or_else(Body::Failed));
    }

    fn answer(&mut self, call: u64, body: Body) {
        self.port.say(FromVm::Answer { call, body });
    }

    /// A client went away. What it asked for goes on; the answer is not needed.
    fn forget(&mut self, call: u64) {
        self.stats.retain(|wait| wait.call != call);
        if self.goal.waiter() == Some(call) {
            self.goal.forget_waiter();
        }
    }

    fn set_goal(
        &mut self,
        call: u64,
        size: u64,
        wait: Option<Duration>,
        ramp: Option<u64>,
    ) -> Result<(), ControlError> {
        let memory = self.vm.memory_bytes();
        if size >= memory {
            let what = format!("a balloon of {size} bytes is not less than guest RAM ({memory})");
            return Err(ControlError::new(ErrorCode::InvalidValue, what));
        }
        let (now, actual) = (Instant::now(), self.vm.actual_pages());
        let mut goal = BalloonGoal::at_once(size / BALLOON_PAGE);
        if let Some(rate) = ramp {
            goal = goal.ramped(actual, rate, now);
        }
        let target = goal.target(now);
        self.vm.set_target(target).map_err(refused)?;
        self.target_pages = target;
        if let Some(wait) = wait {
            goal = goal.waited_for(call, wait, actual, now);
            self.told_progress = now;
        }
        let mut before = std::mem::replace(&mut self.goal, goal);
        if let Some(waiter) = before.forget_waiter() {
            let what = format!("the balloon was set to {size} bytes meanwhile");
            let error = ControlError::new(ErrorCode::Superseded, what);
            self.answer(waiter, Body::Failed(error));
        }
        Ok(())
    }

    fn ask_for_statistics(&mut self, call: u64, timeout: Duration) -> Result<(), ControlError> {
        let before = self.vm.request_statistics().map_err(lacking)?;
        self.stats.push(StatsWait {
            call,
            before,
            until: Instant::now() + timeout,
            timeout,
        });
        Ok(())
    }

    /// Does what is due now.
    fn look(&mut self, now: Instant) {
        self.look_at_balloon(now);
        self.look_at_statistics(now);
    }

    fn look_at_balloon(&mut self, now: Instant) {
        if !self.goal.is_under_way() {
            return;
        }
        let target = self.goal.target(now);
        if target != self.target_pages {
            match self.vm.set_target(target) {
                Ok(()) => self.target_pages = target,
                Err(error) => log::warn!("the balloon could not be set further: {error}"),
            }
        }
        if let Some(ended) = self.goal.look(self.vm.actual_pages(), now) {
            let body = self.balloon_set(ended.outcome);
            self.answer(ended.call, body);
        } else if let Some(call) = self.goal.waiter() {
            if now.saturating_duration_since(self.told_progress) >= PROGRESS_INTERVAL {
                self.told_progress = now;
                let body = Body::Progress(self.balloon());
                self.answer(call, body);
            }
        }
    }

    fn look_at_statistics(&mut self, now: Instant) {
        if self.stats.is_empty() {
            return;
        }
        let sample = self.vm.statistics();
        let number = sample.as_ref().map_or(0, |sample| sample.number);
        for wait in std::mem::take(&mut self.stats) {
            match &sample {
                Some(sample) if number > wait.before => {
                    self.answer(wait.call, Body::Done(sample.value.clone()));
                }
                _ if now < wait.until => self.stats.push(wait),
                _ => {
                    let what = format!(
                        "the guest did not tell its statistics within {:?}",
                        wait.timeout
                    );
                    let error = ControlError::new(ErrorCode::GuestTimeout, what);
                    self.answer(wait.call, Body::Failed(error));
                }
            }
        }
    }

    fn balloon(&self) -> BalloonState {
        BalloonState {
            goal_bytes: self.goal.pages().saturating_mul(BALLOON_PAGE),
            target_bytes: self.target_pages.saturating_mul(BALLOON_PAGE),
            actual_bytes: self.vm.actual_pages().saturating_mul(BALLOON_PAGE),
        }
    }

    fn balloon_set(&self, outcome: Outcome) -> Body {
        let balloon = self.balloon();
        Body::done(&BalloonSet { outcome, balloon })
    }
}

fn state(state: VmState) -> Body {
    Body::done(&StateReply { state })
}

/// What the VM could not do, by the kinds [`ControlledVm`] promises.
fn refused(error: io::Error) -> ControlError {
    let code = match error.kind() {
        io::ErrorKind::InvalidInput => ErrorCode::InvalidValue,
        io::ErrorKind::NotConnected | io::ErrorKind::Unsupported => ErrorCode::NotNegotiated,
        io::ErrorKind::TimedOut => ErrorCode::NoAnswer,
        _ => ErrorCode::Internal,
    };
    ControlError::new(code, error.to_string())
}

/// The same of a command that takes no value: what is wrong is the feature.
fn lacking(error: io::Error) -> ControlError {
    let mut error = refused(error);
    if error.code == ErrorCode::InvalidValue {
        error.code = ErrorCode::NotNegotiated;
    }
    error
}

#[cfg(test)]
#[path = "control_thread_test.rs"]
mod tests;
