//! The NUMA nodes of the host that have CPUs, and threads on them.
// UNSAFETY: sched_setaffinity takes a pointer to a mask.
#![expect(unsafe_code)]

use std::fs;
use std::mem::size_of;
use std::path::Path;

/// The CPUs of every node that has some. A host without NUMA has one node, or
/// none that can be read.
pub(super) fn cpus_by_node() -> Vec<Vec<usize>> {
    read(Path::new("/sys/devices/system/node"))
}

fn read(root: &Path) -> Vec<Vec<usize>> {
    let Ok(entries) = fs::read_dir(root) else {
        return Vec::new();
    };
    let mut nodes: Vec<(u32, Vec<usize>)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let number = entry
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()?;
            let cpus = parse_cpu_list(&fs::read_to_string(entry.path().join("cpulist")).ok()?)?;
            (!cpus.is_empty()).then_some((number, cpus))
        })
        .collect();
    nodes.sort();
    nodes.into_iter().map(|(_, cpus)| cpus).collect()
}

/// `0-3,8,10-11`, or nothing.
fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Keeps the calling thread on `cpus`. Where that is not possible (CPUs outside
/// the thread's cpuset), it stays where it is.
pub(super) fn stay_on(cpus: &[usize]) {
    // SAFETY: an all-zero mask is an empty one.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus
        .iter()
        .filter(|&&cpu| cpu < 8 * size_of::<libc::cpu_set_t>())
    {
        // SAFETY: the bit is inside the mask.
        unsafe { libc::CPU_SET(cpu, &mut mask) };
    }
    // SAFETY: pointer and length describe `mask`.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask) };
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::tempdir::TempDir;

    use super::*;

    #[test]
    fn nodes_without_cpus_are_left_out_and_the_rest_is_in_order() {
        let root = TempDir::new().unwrap();
        for (name, cpus) in [
            ("node10", "8\n"),
            ("node2", "0-3,6\n"),
            ("node3", "\n"),
            ("power", "1\n"),
        ] {
            let node = root.as_path().join(name);
            fs::create_dir(&node).unwrap();
            fs::write(node.join("cpulist"), cpus).unwrap();
        }
        assert_eq!(read(root.as_path()), [vec![0, 1, 2, 3, 6], vec![8]]);
        assert_eq!(read(Path::new("/nonexistent")), Vec::<Vec<usize>>::new());
        assert_eq!(parse_cpu_list("0-x"), None);
    }

    #[test]
    fn a_thread_stays_where_it_is_told() {
        std::thread::spawn(|| {
            stay_on(&[0]);
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
        })
        .join()
        .unwrap();
    }
}
