//! Which queue an index means. The specification gives fixed numbers (virtio
//! 1.3, 5.5.2); Linux counts the negotiated queues only. Both kinds of driver
//! exist, so both numberings are accepted: which one a driver uses shows in
//! the queues it makes ready.

use serde::{Deserialize, Serialize};

use super::spec::{FIRST_OPTIONAL_QUEUE, FREE_PAGE_HINT, PAGE_REPORTING, QUEUES, STATS_VQ};
use crate::virtio::device::Refused;
use crate::virtio::features::Features;

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueRole {
    /// The guest gives pages.
    Inflate,
    /// The guest takes pages back.
    Deflate,
    /// The guest tells its statistics.
    Stats,
    /// The guest hints at free pages for a migration.
    FreePageHint,
    /// The guest reports free pages.
    Reporting,
}

/// The roles in the order of their fixed numbers, with the feature each needs.
const ROLES: [(QueueRole, Features); QUEUES] = [
    (QueueRole::Inflate, Features::NONE),
    (QueueRole::Deflate, Features::NONE),
    (QueueRole::Stats, STATS_VQ),
    (QueueRole::FreePageHint, FREE_PAGE_HINT),
    (QueueRole::Reporting, PAGE_REPORTING),
];

/// How a driver numbers queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueNumbering {
    /// By the numbers of the specification.
    Fixed,
    /// By counting the negotiated queues, as Linux does.
    Dense,
    /// It cannot be told: with the features negotiated both are the same.
    Both,
}

/// The meaning of each index in one negotiation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueMap {
    roles: [Option<QueueRole>; QUEUES],
    numbering: QueueNumbering,
}

impl QueueMap {
    /// Decides the numbering by which of the optional queues are ready. Where
    /// both agree there is nothing to decide.
    ///
    /// # Errors
    /// Ready queues that fit neither numbering.
    pub(crate) fn decide(
        accepted: Features,
        ready: &mut dyn Iterator<Item = usize>,
    ) -> Result<Self, Refused> {
        let mut optional = [false; QUEUES];
        for index in ready.filter(|index| *index >= FIRST_OPTIONAL_QUEUE) {
            if let Some(ready) = optional.get_mut(index) {
                *ready = true;
            }
        }
        let (dense, fixed) = (Self::dense(accepted), Self::fixed(accepted));
        let numbering = match [dense, fixed].map(|map| map.optional() == optional) {
            // The same indices mean the same queues then.
            [true, true] => QueueNumbering::Both,
            [true, false] => QueueNumbering::Dense,
            [false, true] => QueueNumbering::Fixed,
            [false, false] => {
                let indices = |set: [bool; QUEUES]| {
                    let set = set.into_iter().enumerate().filter(|(_, on)| *on);
                    set.map(|(index, _)| index).collect::<Vec<_>>()
                };
                return Err(Refused(format!(
                    "queues {:?} are ready beside 0 and 1; the features negotiated mean \
                     {:?} (counted) or {:?} (fixed numbers)",
                    indices(optional),
                    indices(dense.optional()),
                    indices(fixed.optional())
                )));
            }
        };
        let map = if numbering == QueueNumbering::Fixed {
            fixed
        } else {
            dense
        };
        Ok(Self { numbering, ..map })
    }

    /// Whether `index` means a queue in either numbering of `set`.
    pub(crate) fn may_exist(set: Features, index: usize) -> bool {
        [Self::dense(set), Self::fixed(set)]
            .iter()
            .any(|map| map.role(index).is_some())
    }

    /// What `index` is for, if anything.
    pub(crate) fn role(&self, index: usize) -> Option<QueueRole> {
        self.roles.get(index).copied().flatten()
    }

    /// How the driver numbers its queues.
    pub(crate) fn numbering(&self) -> QueueNumbering {
        self.numbering
    }

    /// The index of the queue with this role, if there is one.
    pub(crate) fn index_of(&self, role: QueueRole) -> Option<usize> {
        self.roles.iter().position(|found| *found == Some(role))
    }

    fn fixed(set: Features) -> Self {
        Self {
            roles: ROLES.map(|(role, needs)| set.contains(needs).then_some(role)),
            numbering: QueueNumbering::Fixed,
        }
    }

    fn dense(set: Features) -> Self {
        let mut roles = [None; QUEUES];
        let negotiated = Self::fixed(set).roles.into_iter().flatten();
        for (slot, role) in roles.iter_mut().zip(negotiated) {
            *slot = Some(role);
        }
        Self {
            roles,
            numbering: QueueNumbering::Dense,
        }
    }

    fn optional(&self) -> [bool; QUEUES] {
        let mut optional = self.roles.map(|role| role.is_some());
        for required in optional.iter_mut().take(FIRST_OPTIONAL_QUEUE) {
            *required = false;
        }
        optional
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepted features, ready optional indices, what each of them means.
    type Row = (Features, &'static [usize], &'static [QueueRole]);
    use QueueNumbering::{Both, Dense, Fixed};

    const ALL: Features = STATS_VQ.with(FREE_PAGE_HINT).with(PAGE_REPORTING);
    const STATS_REPORTING: Features = STATS_VQ.with(PAGE_REPORTING);
    const HINT_REPORTING: Features = FREE_PAGE_HINT.with(PAGE_REPORTING);
    use QueueRole::{FreePageHint, Reporting, Stats};

    /// Checks the rows of a driver that numbers its queues in one way.
    fn check(own: QueueNumbering, rows: &[Row]) {
        for (accepted, ready, roles) in rows {
            let mut all = [0, 1].into_iter().chain(ready.iter().copied());
            let map = QueueMap::decide(*accepted, &mut all).unwrap();
            let found: Vec<_> = ready.iter().filter_map(|i| map.role(*i)).collect();
            assert_eq!(found, *roles, "{accepted:?} with {ready:?} ready");
            assert_eq!(map.role(0), Some(QueueRole::Inflate));
            assert_eq!(map.role(1), Some(QueueRole::Deflate));
            for (index, role) in ready.iter().zip(*roles) {
                assert_eq!(map.index_of(*role), Some(*index));
            }
            // Nothing is left out before a queue that is there.
            let alike = [Features::NONE, STATS_VQ, STATS_VQ.with(FREE_PAGE_HINT), ALL];
            let numbering = if alike.contains(accepted) { Both } else { own };
            assert_eq!(map.numbering(), numbering, "{accepted:?}");
        }
    }

    #[test]
    fn b01_a_driver_that_counts_queues_is_understood_for_every_subset() {
        check(
            Dense,
            &[
                (Features::NONE, &[], &[]),
                (STATS_VQ, &[2], &[Stats]),
                (FREE_PAGE_HINT, &[2], &[FreePageHint]),
                (PAGE_REPORTING, &[2], &[Reporting]),
                (
                    STATS_VQ.with(FREE_PAGE_HINT),
                    &[2, 3],
                    &[Stats, FreePageHint],
                ),
                (STATS_REPORTING, &[2, 3], &[Stats, Reporting]),
                (HINT_REPORTING, &[2, 3], &[FreePageHint, Reporting]),
                (ALL, &[2, 3, 4], &[Stats, FreePageHint, Reporting]),
            ],
        );
    }

    #[test]
    fn b02_a_driver_with_fixed_numbers_is_understood_for_every_subset() {
        check(
            Fixed,
            &[
                (Features::NONE, &[], &[]),
                (STATS_VQ, &[2], &[Stats]),
                (FREE_PAGE_HINT, &[3], &[FreePageHint]),
                (PAGE_REPORTING, &[4], &[Reporting]),
                (
                    STATS_VQ.with(FREE_PAGE_HINT),
                    &[2, 3],
                    &[Stats, FreePageHint],
                ),
                (STATS_REPORTING, &[2, 4], &[Stats, Reporting]),
                (HINT_REPORTING, &[3, 4], &[FreePageHint, Reporting]),
                (ALL, &[2, 3, 4], &[Stats, FreePageHint, Reporting]),
            ],
        );
    }

    #[test]
    fn b03_ready_queues_that_fit_neither_numbering_are_refused_by_name() {
        let rows: [(Features, &[usize]); 4] = [
            (PAGE_REPORTING, &[2, 4]),
            (PAGE_REPORTING, &[]),
            (HINT_REPORTING, &[2, 4]),
            (Features::NONE, &[2]),
        ];
        for (accepted, ready) in rows {
            let refused = QueueMap::decide(accepted, &mut ready.iter().copied()).unwrap_err();
            assert!(
                refused.0.contains(&format!("{ready:?}")),
                "the log line names the indices: {refused}"
            );
        }
    }
}
