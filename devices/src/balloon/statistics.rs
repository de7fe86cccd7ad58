//! The guest's memory statistics (virtio 1.3, 5.5.6.3): what they are, and how
//! far a request for new ones has come.
//!
//! The guest fills a buffer and offers it; the device keeps it. A request gives
//! the buffer back, whereupon the guest fills it anew: that is the answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::changes::Changes;
use super::spec::STAT_BYTES;

macro_rules! statistics {
    ($($(#[$doc:meta])* $variant:ident = $tag:literal, $name:literal;)*) => {
        /// A statistic with a name, by its tag (5.5.6.4; tags above 9 are those
        /// of Linux). Serialised by name, which ends with the unit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Statistic {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Statistic {
            /// All of them, in the order of their tags.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The statistic with this tag, if it has a name.
            #[must_use]
            pub const fn from_tag(tag: u16) -> Option<Self> {
                match tag {
                    $($tag => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its name, as serialised.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

statistics! {
    /// Bytes swapped in.
    SwapIn = 0, "swap_in_bytes";
    /// Bytes swapped out.
    SwapOut = 1, "swap_out_bytes";
    /// Page faults that needed disk I/O.
    MajorFaults = 2, "major_faults";
    /// Page faults that did not.
    MinorFaults = 3, "minor_faults";
    /// Bytes used for nothing at all.
    Free = 4, "free_bytes";
    /// Bytes of memory there are.
    Total = 5, "total_bytes";
    /// Bytes that can be had without swapping.
    Available = 6, "available_bytes";
    /// Bytes that cache what is on disk.
    DiskCaches = 7, "disk_caches_bytes";
    /// Huge pages allocated.
    HugetlbAllocations = 8, "hugetlb_allocations";
    /// Huge pages that could not be allocated.
    HugetlbFailures = 9, "hugetlb_failures";
    /// Processes killed for want of memory.
    OomKills = 10, "oom_kills";
    /// Allocations that had to wait for reclaim.
    AllocStalls = 11, "alloc_stalls";
    /// Bytes scanned by background reclaim.
    AsyncScan = 12, "async_scan_bytes";
    /// Bytes scanned by allocating tasks.
    DirectScan = 13, "direct_scan_bytes";
    /// Bytes reclaimed in the background.
    AsyncReclaim = 14, "async_reclaim_bytes";
    /// Bytes reclaimed by allocating tasks.
    DirectReclaim = 15, "direct_reclaim_bytes";
}

/// What the guest told at one time. A statistic it did not give is absent: it is
/// neither 0 nor what it was before. All of it is the guest's word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatisticsSample {
    /// Counts the samples of a device from 1 on.
    pub number: u64,
    /// When it arrived, in milliseconds since 1970-01-01 00:00 UTC.
    pub taken_unix_ms: u64,
    /// By name.
    pub values: BTreeMap<Statistic, u64>,
    /// Those with a tag that has no name, by tag.
    pub unknown: BTreeMap<u16, u64>,
}

/// How far a request has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// There is none.
    #[default]
    None,
    /// The owner wants new statistics, and the guest has its buffer still to
    /// be given back.
    Wanted,
    /// The buffer was given back; the next one is the answer.
    Asked,
}

#[derive(Debug, Default)]
struct State {
    request: Request,
    last: Option<StatisticsSample>,
    /// The request in `request` was logged to lack a buffer.
    complained: bool,
}

/// The last sample, and the request for the next.
#[derive(Debug)]
pub(crate) struct Statistics {
    state: Mutex<State>,
    changes: Arc<Changes>,
}

impl Statistics {
    /// Nothing told, nothing asked.
    pub(crate) fn new(changes: Arc<Changes>) -> Self {
        Self {
            state: Mutex::default(),
            changes,
        }
    }

    /// The last sample.
    pub(crate) fn last(&self) -> Option<StatisticsSample> {
        self.lock().last.clone()
    }

    /// Wants new ones, unless they are wanted already; returns the number of
    /// the last sample, or 0.
    pub(crate) fn want(&self) -> u64 {
        let mut state = self.lock();
        if state.request == Request::None {
            state.request = Request::Wanted;
        }
        state.last.as_ref().map_or(0, |last| last.number)
    }

    /// Whether a buffer is to be given back now, which then counts as done.
    pub(crate) fn take_wanted(&self) -> bool {
        let mut state = self.lock();
        let wanted = state.request == Request::Wanted;
        if wanted {
            state.request = Request::Asked;
        }
        wanted
    }

    /// There was no buffer to be given back: the request waits for one. Returns
    /// whether that is worth a line in the log, which it is once.
    pub(crate) fn lacks_buffer(&self) -> bool {
        let mut state = self.lock();
        if state.request == Request::Asked {
            state.request = Request::Wanted;
        }
        !std::mem::replace(&mut state.complained, true)
    }

    /// The guest filled a buffer with `entries`.
    pub(crate) fn filled(&self, entries: &[u8]) {
        let (values, unknown) = parse(entries);
        let mut state = self.lock();
        let number = state.last.as_ref().map_or(0, |last| last.number);
        state.request = Request::None;
        state.complained = false;
        state.last = Some(StatisticsSample {
            number: number.saturating_add(1),
            taken_unix_ms: unix_ms(),
            values,
            unknown,
        });
        drop(state);
        self.changes.add();
    }

    /// The guest offered a buffer that cannot be read. It is as good as any to
    /// be given back.
    pub(crate) fn unreadable(&self) {
        self.lock().request = Request::None;
    }

    /// The driver went, and with it what it was asked. Its last sample stays,
    /// with its time.
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        state.request = Request::None;
        state.complained = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Any order, any subset; the last of a tag counts; a tail that is no whole
/// entry is ignored.
///
/// Entries have 10 bytes: a 16-bit tag and a 64-bit value. The specification
/// asks the driver for a multiple of 6 bytes, which no driver does.
fn parse(entries: &[u8]) -> (BTreeMap<Statistic, u64>, BTreeMap<u16, u64>) {
    let (mut values, mut unknown) = (BTreeMap::new(), BTreeMap::new());
    let entries = entries.chunks_exact(STAT_BYTES);
    for entry in entries.filter_map(|entry| <[u8; STAT_BYTES]>::try_from(entry).ok()) {
        let [t0, t1, value @ ..] = entry;
        let tag = u16::from_le_bytes([t0, t1]);
        let value = u64::from_le_bytes(value);
        match Statistic::from_tag(tag) {
            Some(statistic) => values.insert(statistic, value),
            None => unknown.insert(tag, value),
        };
    }
    (values, unknown)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn s10_a_request_that_waits_for_a_buffer_is_worth_one_line_until_it_is_answered() {
        let statistics = Statistics::new(Arc::default());
        let asks_in_vain = || {
            statistics.want();
            statistics.take_wanted() && statistics.lacks_buffer()
        };
        assert!(asks_in_vain());
        assert!(!asks_in_vain() && !asks_in_vain(), "no flood");
        assert!(statistics.take_wanted(), "it still waits");
        statistics.filled(&[]);
        assert!(!statistics.take_wanted(), "it was answered");
        assert!(asks_in_vain(), "the next one");
    }

    #[test]
    fn s03_tags_0_to_15_have_names_and_others_have_none() {
        for (tag, statistic) in (0..).zip(Statistic::ALL) {
            assert_eq!(Statistic::from_tag(tag), Some(*statistic));
        }
        assert_eq!(Statistic::ALL.len(), 16);
        for tag in [16, 20, u16::MAX] {
            assert_eq!(Statistic::from_tag(tag), None);
        }
    }

    proptest! {
        #[test]
        fn s04_s06_any_bytes_are_read_as_whole_entries_of_which_the_last_counts(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            small in prop::collection::vec((0..20_u16, any::<u64>()), 0..40),
        ) {
            let entries = small.iter().flat_map(|(tag, value)| {
                let tag = tag.to_le_bytes();
                tag.into_iter().chain(value.to_le_bytes())
            });
            let bytes: Vec<u8> = entries.chain(bytes.iter().copied().take(9)).collect();
            let (values, unknown) = parse(&bytes);
            prop_assert!(unknown.keys().all(|tag| *tag > 15));
            for tag in 0..20 {
                let wanted = small.iter().rev().find(|(t, _)| *t == tag).map(|(_, v)| *v);
                let found = match Statistic::from_tag(tag) {
                    Some(statistic) => values.get(&statistic),
                    None => unknown.get(&tag),
                };
                prop_assert_eq!(found.copied(), wanted);
            }
        }
    }
}
