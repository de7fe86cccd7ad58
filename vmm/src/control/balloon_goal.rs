//! On the way to a balloon size: by how much it is asked for now, and whether
//! whoever waits for it has waited enough. Pure arithmetic over moments and
//! pages, without a clock or a device.

use std::time::{Duration, Instant};

use super::reply::Outcome;

/// A balloon that got no closer for this long is stalled. A Linux driver that
/// cannot get a page tries again after 0.2 s.
pub const STALLED_AFTER: Duration = Duration::from_secs(2);

/// A size to reach, in pages of 4 KiB.
#[derive(Debug)]
pub struct BalloonGoal {
    pages: u64,
    ramp: Option<Ramp>,
    wait: Option<Wait>,
}

#[derive(Debug)]
struct Ramp {
    from: u64,
    since: Instant,
    pages_per_s: f64,
}

/// Somebody waits for it.
#[derive(Debug)]
struct Wait {
    call: u64,
    until: Instant,
    /// The least distance seen, and when it got that small.
    closest: u64,
    closer_at: Option<Instant>,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The call that waited.
    pub call: u64,
    /// What became of it.
    pub outcome: Outcome,
}

impl BalloonGoal {
    /// The goal to have `pages`, asked for in full at once.
    #[must_use]
    pub fn at_once(pages: u64) -> Self {
        Self {
            pages,
            ramp: None,
            wait: None,
        }
    }

    /// The goal approached from a balloon of `from` pages by `bytes_per_s`.
    #[must_use]
    pub fn ramped(mut self, from: u64, bytes_per_s: u64, now: Instant) -> Self {
        // Exact to 2^53 bytes, which is more than a guest's RAM.
        #[expect(clippy::cast_precision_loss)]
        let pages_per_s = bytes_per_s as f64 / 4096.0;
        self.ramp = Some(Ramp {
            from,
            since: now,
            pages_per_s,
        });
        self
    }

    /// The goal with a `call` that waits for it, and a balloon of `actual` pages.
    #[must_use]
    pub fn waited_for(mut self, call: u64, wait: Duration, actual: u64, now: Instant) -> Self {
        self.wait = Some(Wait {
            call,
            until: now + wait,
            closest: self.pages.abs_diff(actual),
            closer_at: None,
        });
        self
    }

    /// The size in the end.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether it has to be looked at again as time passes.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.ramp.is_some() || self.wait.is_some()
    }

    /// Who waits for it.
    #[must_use]
    pub fn waiter(&self) -> Option<u64> {
        self.wait.as_ref().map(|wait| wait.call)
    }

    /// Forgets who waits for it; the goal stays.
    pub fn forget_waiter(&mut self) -> Option<u64> {
        self.wait.take().map(|wait| wait.call)
    }

    /// The size to ask the guest for at this moment.
    pub fn target(&mut self, now: Instant) -> u64 {
        let Some(ramp) = &self.ramp else {
            return self.pages;
        };
        let passed = now.saturating_duration_since(ramp.since).as_secs_f64();
        // Rounded down, and at its maximum if it is beyond; never negative.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let moved = (passed * ramp.pages_per_s) as u64;
        if moved >= self.pages.abs_diff(ramp.from) {
            self.ramp = None;
            return self.pages;
        }
        if self.pages > ramp.from {
            ramp.from + moved
        } else {
            ramp.from - moved
        }
    }

    /// Looks at a balloon of `actual` pages; the end of the wait, if this is it.
    pub fn look(&mut self, actual: u64, now: Instant) -> Option<Ended> {
        let pages = self.pages;
        let wait = self.wait.as_mut()?;
        let distance = pages.abs_diff(actual);
        if distance < wait.closest {
            wait.closest = distance;
            wait.closer_at = Some(now);
        }
        let progressing = wait
            .closer_at
            .is_some_and(|at| now.saturating_duration_since(at) < STALLED_AFTER);
        let outcome = match (distance, progressing) {
            (0, _) => Outcome::Reached,
            _ if now < wait.until => return None,
            (_, true) => Outcome::TimedOutProgressing,
            (_, false) => Outcome::TimedOutStalled,
        };
        let call = wait.call;
        self.wait = None;
        Some(Ended { call, outcome })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 256;

    /// Milliseconds since the beginning, and pages in the balloon then.
    type Looks = &'static [(u64, u64)];

    /// Looks at each moment of a wait of 10 s for 64 MiB.
    fn outcome_of(looks: Looks) -> Option<Outcome> {
        let now = Instant::now();
        let goal = BalloonGoal::at_once(64 * MIB);
        let mut goal = goal.waited_for(9, Duration::from_secs(10), 0, now);
        looks.iter().find_map(|(at, actual)| {
            let ended = goal.look(*actual, now + Duration::from_millis(*at))?;
            assert_eq!(ended.call, 9);
            assert_eq!(goal.waiter(), None, "told once");
            Some(ended.outcome)
        })
    }

    #[test]
    fn a_wait_ends_as_the_balloon_does() {
        use Outcome::{Reached, TimedOutProgressing, TimedOutStalled};
        #[rustfmt::skip]
        let rows: [(&str, Looks, Option<Outcome>); 8] = [
            ("there", &[(100, 64 * MIB)], Some(Reached)),
            ("there at the last moment", &[(10_000, 64 * MIB)], Some(Reached)),
            ("not yet", &[(5000, 32 * MIB), (9999, 63 * MIB)], None),
            ("too far is not there", &[(100, 65 * MIB)], None),
            ("never moved", &[(5000, 0), (10_000, 0)], Some(TimedOutStalled)),
            ("still moving", &[(9000, 32 * MIB), (10_000, 32 * MIB)], Some(TimedOutProgressing)),
            ("stopped moving", &[(8000, 32 * MIB), (10_000, 32 * MIB)], Some(TimedOutStalled)),
            ("moving away", &[(1000, 32 * MIB), (10_000, 16 * MIB)], Some(TimedOutStalled)),
        ];
        for (what, looks, outcome) in rows {
            assert_eq!(outcome_of(looks), outcome, "{what}");
        }
    }

    #[test]
    fn without_a_ramp_the_whole_goal_is_asked_for_at_once() {
        let mut goal = BalloonGoal::at_once(7);
        assert_eq!(goal.target(Instant::now()), 7);
        assert!(!goal.is_under_way());
    }

    #[test]
    fn a_ramp_goes_up_and_down_by_its_rate_and_ends() {
        for (from, to, half) in [(0, 8 * MIB, 4 * MIB), (8 * MIB, 0, 4 * MIB)] {
            let now = Instant::now();
            let mut goal = BalloonGoal::at_once(to).ramped(from, 4 << 20, now);
            assert_eq!(goal.target(now), from);
            assert_eq!(goal.target(now + Duration::from_secs(1)), half);
            assert!(goal.is_under_way());
            assert_eq!(goal.target(now + Duration::from_secs(2)), to);
            assert!(!goal.is_under_way());
        }
    }

    proptest! {
        #[test]
        fn a_ramp_stays_between_its_ends_and_never_turns_back(
            from in 0_u64..1 << 30, to in 0_u64..1 << 30, rate in 1_u64..,
            steps in proptest::collection::vec(0_u64..100_000, 1..50),
        ) {
            let mut now = Instant::now();
            let mut goal = BalloonGoal::at_once(to).ramped(from, rate, now);
            let mut last = from;
            for step in steps {
                now += Duration::from_millis(step);
                let target = goal.target(now);
                prop_assert!(target.abs_diff(to) <= last.abs_diff(to));
                prop_assert!((from.min(to)..=from.max(to)).contains(&target));
                last = target;
            }
            let later = goal.target(now + Duration::from_secs(1 << 45));
            prop_assert_eq!(later, to);
        }
    }
}
