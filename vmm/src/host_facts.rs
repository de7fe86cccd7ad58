//! What the host is: the facts without which a number means nothing.

use std::fs;
use std::path::Path;

use crate::results::{HostFacts, HostKind, PoolFacts};

/// Reads the facts of the machine this runs on. A fact that cannot be read is
/// "unknown" or absent, never a guess.
///
/// `pools` are its huge page pools; `kind` says whether the machine is emulated.
#[must_use]
pub fn gather(kind: HostKind, pools: Vec<PoolFacts>) -> HostFacts {
    gather_below(Path::new("/"), kind, pools)
}

fn gather_below(root: &Path, kind: HostKind, pools: Vec<PoolFacts>) -> HostFacts {
    let read = |path: &str| {
        let text = fs::read_to_string(root.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let release = read("proc/sys/kernel/osrelease");
    let version = read("proc/sys/kernel/version");
    let kernel: Vec<_> = [release, version].into_iter().flatten().collect();
    HostFacts {
        kind,
        kernel: if kernel.is_empty() {
            "unknown".to_owned()
        } else {
            kernel.join(" ")
        },
        cpu: read("proc/cpuinfo")
            .and_then(|text| cpu_model(&text))
            .unwrap_or_else(|| "unknown".to_owned()),
        cpus: read("sys/devices/system/cpu/online")
            .and_then(|list| count_cpus(&list))
            .unwrap_or(1),
        thp: read("sys/kernel/mm/transparent_hugepage/enabled").and_then(|modes| selected(&modes)),
        pools,
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    })
}

/// Counts a kernel CPU list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The word in brackets, as in `always [madvise] never`.
fn selected(modes: &str) -> Option<String> {
    let (_, after) = modes.split_once('[')?;
    let (mode, _) = after.split_once(']')?;
    Some(mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        for (list, count) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-0", None),
            ("0-4294967295", None),
            ("a", None),
        ] {
            assert_eq!(count_cpus(list), count, "{list:?}");
        }
    }

    #[test]
    fn the_selected_mode_is_the_one_in_brackets() {
        assert_eq!(
            selected("always [madvise] never").as_deref(),
            Some("madvise")
        );
        assert_eq!(selected("always"), None);
    }

    #[test]
    fn the_first_model_name_counts() {
        let text =
            "processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(cpu_model(text).as_deref(), Some("AMD EPYC"));
    }

    #[test]
    fn this_machine_has_facts() {
        let facts = gather(HostKind::Native, Vec::new());
        assert!(facts.kernel.contains('.'), "{facts:?}");
        assert!(facts.cpus >= 1, "{facts:?}");
    }

    #[test]
    fn an_unreadable_fact_is_not_invented() {
        let facts = gather_below(Path::new("/nonexistent"), HostKind::Native, Vec::new());
        assert_eq!(facts.kernel, "unknown");
        assert_eq!(facts.cpu, "unknown");
        assert_eq!(facts.thp, None);
    }
}
