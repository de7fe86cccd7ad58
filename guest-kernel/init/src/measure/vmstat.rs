//! Event counters of `/proc/vmstat`.

use std::collections::BTreeMap;

use crate::failure::StepError;
use crate::kernel_file;
use crate::steps::page_kind::BASE_PAGE_BYTES;

/// Counters that are reported, where the kernel has them.
const NAMES: [&str; 5] = [
    "thp_fault_alloc",
    "thp_fault_fallback",
    "pgfault",
    "pgmajfault",
    "compact_success",
];
/// Families of counters that are reported, where the kernel has them.
const PREFIXES: [&str; 3] = ["pgzero_", "pgreport_", "balloon_"];

/// The reported counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vmstat(BTreeMap<String, u64>);

impl Vmstat {
    /// The counters now.
    pub(crate) fn now() -> Result<Self, StepError> {
        Ok(Self::parse(&kernel_file::read("/proc/vmstat")?))
    }

    fn parse(text: &str) -> Self {
        let counters = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| {
                NAMES.contains(name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            })
            .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)));
        Self(counters.collect())
    }

    /// The counters by name.
    pub(crate) fn into_counters(self) -> BTreeMap<String, u64> {
        self.0
    }

    /// How far each counter went since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let deltas = self.0.iter().map(|(name, now)| {
            let before = earlier.0.get(name).copied().unwrap_or(0);
            (name.clone(), now.wrapping_sub(before))
        });
        Self(deltas.collect())
    }

    /// What the balloons hold, in bytes; `None` if the kernel does not count it.
    pub(crate) fn balloon_bytes(&self) -> Option<u64> {
        let pages = self
            .0
            .get("balloon_inflate")?
            .checked_sub(*self.0.get("balloon_deflate")?)?;
        pages.checked_mul(BASE_PAGE_BYTES)
    }

    /// The counter `name`, else the sum over the classes it is split into
    /// (`name_o0`, `name_pmd`, ...), else `None`: the kernel does not count this.
    pub(crate) fn total(&self, name: &str) -> Option<u64> {
        if let Some(value) = self.0.get(name) {
            return Some(*value);
        }
        let classes = self.0.iter().filter_map(|(other, value)| {
            let class = other.strip_prefix(name)?;
            class.starts_with('_').then_some(*value)
        });
        classes.fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: &str = "nr_free_pages 9\npgfault 100\npgzero_done_o0 5\npgzero_done_pmd 512\n\
                           pgzero_doneness 3\npgzero_skipped 7\npgreport_pages 1024\npgfree 3";

    #[test]
    fn only_the_reported_counters_are_kept() {
        let stat = Vmstat::parse(CLASSES);
        let names: Vec<_> = stat.0.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "pgfault",
                "pgreport_pages",
                "pgzero_done_o0",
                "pgzero_done_pmd",
                "pgzero_doneness",
                "pgzero_skipped"
            ]
        );
    }

    #[test]
    fn a_total_is_the_plain_counter_or_the_sum_of_its_classes() {
        let stat = Vmstat::parse(CLASSES);
        assert_eq!(stat.total("pgzero_done"), Some(517));
        assert_eq!(stat.total("pgzero_skipped"), Some(7));
        assert_eq!(stat.total("pgzero_bad"), None);
        assert_eq!(Vmstat::parse("pgfault 3").total("pgzero_done"), None);
    }

    #[test]
    fn a_balloon_holds_what_was_inflated_and_not_deflated() {
        let held = |text| Vmstat::parse(text).balloon_bytes();
        assert_eq!(
            held("balloon_inflate 700\nballoon_deflate 188"),
            Some(2 << 20)
        );
        assert_eq!(held("balloon_inflate 9\nballoon_deflate 9"), Some(0));
        // Two counters are not read at the same moment.
        assert_eq!(held("balloon_inflate 9\nballoon_deflate 10"), None);
        assert_eq!(held("balloon_inflate 9"), None);
    }

    #[test]
    fn a_delta_counts_from_the_earlier_moment() {
        let earlier = Vmstat::parse("pgfault 90\npgzero_bad 1");
        let now = Vmstat::parse("pgfault 100\npgzero_bad 1\npgreport_pages 4");
        let delta = now.since(&earlier);
        assert_eq!(delta.total("pgfault"), Some(10));
        assert_eq!(delta.total("pgzero_bad"), Some(0));
        assert_eq!(delta.total("pgreport_pages"), Some(4));
    }
}
