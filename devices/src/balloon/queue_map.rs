//! Which queue an index means. The specification gives fixed numbers (virtio
//! 1.3, 5.5.2); Linux counts the negotiated queues only. Both kinds of driver
//! exist, so both numberings are accepted: which one a driver uses shows in
//! the queues it makes ready.

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// By the numbers of the specification.
    Fixed,
    /// By counting the negotiated queues, as Linux does.
    Dense,
}

/// The meaning of each index in one negotiation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueMap {
    roles: [Option<QueueRole>; QUEUES],
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
        let maps = [Numbering::Dense, Numbering::Fixed].map(|by| Self::numbered(accepted, by));
        let fitting = maps.iter().find(|map| map.optional() == optional);
        fitting.copied().ok_or_else(|| {
            let indices = |set: [bool; QUEUES]| {
                let set = set.into_iter().enumerate().filter(|(_, on)| *on);
                set.map(|(index, _)| index).collect::<Vec<_>>()
            };
            let [dense, fixed] = maps.map(|map| indices(map.optional()));
            Refused(format!(
                "queues {:?} are ready beside 0 and 1; the features negotiated mean \
                 {dense:?} (counted) or {fixed:?} (fixed numbers)",
                indices(optional)
            ))
        })
    }

    /// Whether `index` means a queue in either numbering of `set`.
    pub(crate) fn may_exist(set: Features, index: usize) -> bool {
        [Numbering::Dense, Numbering::Fixed]
            .iter()
            .any(|by| Self::numbered(set, *by).role(index).is_some())
    }

    /// What `index` is for, if anything.
    pub(crate) fn role(&self, index: usize) -> Option<QueueRole> {
        self.roles.get(index).copied().flatten()
    }

    fn numbered(set: Features, by: Numbering) -> Self {
        let negotiated = ROLES.map(|(role, needs)| set.contains(needs).then_some(role));
        let roles = match by {
            Numbering::Fixed => negotiated,
            Numbering::Dense => {
                let mut counted = [None; QUEUES];
                let roles = negotiated.into_iter().flatten();
                for (slot, role) in counted.iter_mut().zip(roles) {
                    *slot = Some(role);
                }
                counted
            }
        };
        Self { roles }
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

    const ALL: Features = STATS_VQ.with(FREE_PAGE_HINT).with(PAGE_REPORTING);
    const STATS_REPORTING: Features = STATS_VQ.with(PAGE_REPORTING);
    const HINT_REPORTING: Features = FREE_PAGE_HINT.with(PAGE_REPORTING);
    use QueueRole::{FreePageHint, Reporting, Stats};

    fn check(rows: &[Row]) {
        for (accepted, ready, roles) in rows {
            let mut all = [0, 1].into_iter().chain(ready.iter().copied());
            let map = QueueMap::decide(*accepted, &mut all).unwrap();
            let found: Vec<_> = ready.iter().filter_map(|i| map.role(*i)).collect();
            assert_eq!(found, *roles, "{accepted:?} with {ready:?} ready");
            assert_eq!(map.role(0), Some(QueueRole::Inflate));
            assert_eq!(map.role(1), Some(QueueRole::Deflate));
        }
    }

    #[test]
    fn b01_a_driver_that_counts_queues_is_understood_for_every_subset() {
        check(&[
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
        ]);
    }

    #[test]
    fn b02_a_driver_with_fixed_numbers_is_understood_for_every_subset() {
        check(&[
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
        ]);
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
