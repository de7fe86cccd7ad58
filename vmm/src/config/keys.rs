//! Every key there is, and the nearest one to a key that is none.

/// How a value given as `--set KEY=VALUE` is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Free text or a path: taken as it is, unless it is a quoted TOML string.
    Text,
    /// A TOML value; what is not one is a string.
    Toml,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Dotted name.
    pub name: &'static str,
    /// What it takes, for error messages.
    pub expected: &'static str,
    /// Its default as TOML, or in words.
    pub default: &'static str,
    /// What people call it elsewhere.
    aliases: &'static [&'static str],
    takes: Takes,
}

impl Key {
    pub(super) fn takes(&self) -> Takes {
        self.takes
    }
}

const SIZE: &str = "a size such as \"512M\" or \"2G\"";
const RATE: &str = "bytes per second as a size such as \"2G\"";
const DURATION: &str = "a duration such as \"30s\" or \"500ms\"";
const PATH: &str = "a path as a string";
const BOOLEAN: &str = "true or false";
const NOT_SET: &str = "not set";

const fn key(
    name: &'static str,
    takes: Takes,
    expected: &'static str,
    default: &'static str,
    aliases: &'static [&'static str],
) -> Key {
    Key {
        name,
        expected,
        default,
        aliases,
        takes,
    }
}

/// Every key, in the order in which a merged configuration is written.
#[rustfmt::skip]
pub static KEYS: &[Key] = &[
    key("kernel.image", Takes::Text, PATH, "required", &["kernel", "kernel_image_path", "bzimage", "vmlinux"]),
    key("kernel.initrd", Takes::Text, PATH, NOT_SET, &["initrd_path", "initramfs", "ramdisk"]),
    key("kernel.cmdline", Takes::Text, "a string", "\"console=ttyS0 panic=-1\"", &["boot_args", "args", "append", "command_line"]),
    key("cpus.count", Takes::Toml, "a number of CPUs, 1 to 64", "1", &["vcpus", "vcpu_count", "cpu_count", "smp"]),
    key("memory.size", Takes::Toml, SIZE, "\"512M\"", &["mem_size", "mem_size_mib", "ram", "size_mib"]),
    key("memory.backing", Takes::Toml, "\"hugetlb\", \"thp\" or \"pages\"", "\"hugetlb\"", &["hugepages", "huge_pages", "backend"]),
    key("memory.page", Takes::Toml, "\"2M\" or \"1G\"", "\"2M\"", &["page_size", "hugepage_size", "hugepagesize"]),
    key("memory.shared", Takes::Toml, BOOLEAN, "false", &["share", "memfd"]),
    key("memory.reserve", Takes::Toml, BOOLEAN, "the opposite of `memory.overcommit`", &["reservation"]),
    key("memory.overcommit", Takes::Toml, BOOLEAN, "false", &["noreserve"]),
    key("memory.prefault", Takes::Toml, BOOLEAN, "false", &["populate", "prealloc", "preallocate"]),
    key("memory.prefault_threads", Takes::Toml, "a number of threads, 1 to 1024", "one per host CPU", &["prealloc_threads"]),
    key("balloon.reporting", Takes::Toml, BOOLEAN, "true", &["free_page_reporting", "page_reporting"]),
    key("balloon.device_init_reported", Takes::Toml, "true, false or \"auto\"", "\"auto\"", &["device_init", "init_reported", "zero_skip"]),
    key("balloon.on_report", Takes::Toml, "\"discard\", \"zero\" or \"keep\"", "\"discard\"", &["policy", "report_policy"]),
    key("balloon.on_inflate", Takes::Toml, "\"discard\", \"zero\" or \"keep\"", "\"discard\"", &["inflate_policy"]),
    key("balloon.device_init_on_inflate", Takes::Toml, BOOLEAN, "false", &["init_on_inflate"]),
    key("balloon.must_tell_host", Takes::Toml, BOOLEAN, "true", &["tell_host"]),
    key("balloon.statistics", Takes::Toml, BOOLEAN, "true", &["stats", "stats_polling_interval_s"]),
    key("balloon.deflate_on_oom", Takes::Toml, BOOLEAN, "true", &["oom"]),
    key("balloon.hinting", Takes::Toml, "\"off\", \"count\" or \"discard\"", "\"off\"", &["free_page_hinting", "free_page_hint"]),
    key("balloon.accept_hint_race", Takes::Toml, BOOLEAN, "false", &[]),
    key("balloon.accept_bit6_ambiguity", Takes::Toml, BOOLEAN, "false", &[]),
    key("balloon.page_poison", Takes::Toml, BOOLEAN, "true", &["poison"]),
    key("balloon.zero_rate", Takes::Toml, RATE, "\"0\"", &["zeroing_rate", "bandwidth"]),
    key("balloon.target", Takes::Toml, SIZE, "\"0\"", &["amount_mib", "balloon_size", "initial_target"]),
    key("balloon.lie_about_zero", Takes::Toml, BOOLEAN, "false", &[]),
    key("console.output", Takes::Toml, "\"stdout\", \"none\" or { file = \"path\" }", "\"stdout\"", &["serial", "out"]),
    key("console.output.file", Takes::Text, PATH, NOT_SET, &["console_file", "serial_file"]),
    key("console.input", Takes::Toml, BOOLEAN, "false", &["stdin", "interactive"]),
    key("results.path", Takes::Text, PATH, NOT_SET, &["results_file", "report", "json"]),
    key("timeout.boot", Takes::Toml, DURATION, "\"30s\"", &["boot_timeout"]),
    key("timeout.run", Takes::Toml, DURATION, "\"0s\"", &["run_timeout"]),
    key("timeout.pool", Takes::Toml, DURATION, "\"0s\"", &["pool_wait", "pool_timeout"]),
    key("control.socket", Takes::Text, PATH, NOT_SET, &["api_sock", "api_socket", "control_socket"]),
    key("host.kernel", Takes::Text, PATH, "`kernel.image`", &["host_kernel"]),
    key("host.memory", Takes::Toml, SIZE, "`memory.size` and 1G", &["host_memory"]),
];

/// Every table, those inside a table too.
pub static TABLES: &[&str] = &[
    "kernel",
    "cpus",
    "memory",
    "balloon",
    "console",
    "console.output",
    "results",
    "timeout",
    "control",
    "host",
];

/// The key of this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Below this likeness (0 to 1) a suggestion would only mislead.
const LIKE_ENOUGH: f64 = 0.6;

/// What the nearest name in the table the user wrote into is worth on top.
const SAME_TABLE: f64 = 0.05;

/// The valid key nearest to `unknown`, whatever table it is in.
pub(super) fn nearest_key(unknown: &str) -> Option<&'static str> {
    let unknown = unknown.to_lowercase().replace('-', "_");
    best(
        KEYS.iter()
            .map(|key| (key.name, key_likeness(&unknown, key))),
    )
}

/// The valid table nearest to `unknown`, or else the key it was meant for.
pub(super) fn nearest_table(unknown: &str) -> Option<&'static str> {
    let lower = unknown.to_lowercase().replace('-', "_");
    let table_likeness = |table: &str| {
        if lower.len() >= 3 && table.starts_with(&lower) {
            LIKE_ENOUGH.max(likeness(&lower, table))
        } else {
            likeness(&lower, table)
        }
    };
    best(TABLES.iter().map(|&table| (table, table_likeness(table))))
        .or_else(|| nearest_key(unknown))
}

fn best(scored: impl Iterator<Item = (&'static str, f64)>) -> Option<&'static str> {
    scored
        .filter(|(_, score)| *score >= LIKE_ENOUGH)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(name, _)| name)
}

/// Tables do not count beyond [`SAME_TABLE`]: a name in the wrong one is a
/// common mistake, and a right one makes a wrong name no better.
fn key_likeness(unknown: &str, key: &Key) -> f64 {
    let (unknown_table, unknown_leaf) = split(unknown);
    let (table, leaf) = split(key.name);
    let joined = key.name.replace('.', "_");
    let score = [leaf, &joined]
        .iter()
        .chain(key.aliases)
        .map(|name| likeness(unknown_leaf, name))
        .fold(0.0, f64::max);
    if unknown_table == table {
        score + SAME_TABLE
    } else {
        score
    }
}

fn likeness(a: &str, b: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(a, b)
}

/// Table and last part of a dotted key.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_lives_in_a_table() {
        for key in KEYS {
            assert!(TABLES.contains(&split(key.name).0), "{}", key.name);
            assert_eq!(nearest_key(key.name), Some(key.name));
        }
    }

    #[test]
    fn a_key_is_recognised_by_spelling_table_or_other_name() {
        for (unknown, near) in [
            ("memory.pgae", Some("memory.page")),
            ("memory.sizes", Some("memory.size")),
            ("mem_size_mib", Some("memory.size")),
            ("memory.mem_size_mib", Some("memory.size")),
            ("size", Some("memory.size")),
            ("cpus.size", Some("memory.size")),
            ("vcpus", Some("cpus.count")),
            ("kernel.boot_args", Some("kernel.cmdline")),
            ("kernel.cmd-line", Some("kernel.cmdline")),
            (
                "balloon.device-init-reported",
                Some("balloon.device_init_reported"),
            ),
            ("balloon.pages", Some("memory.page")),
            ("timeout.bot", Some("timeout.boot")),
            ("memory.timeout", Some("timeout.run")),
            ("xyzzy", None),
        ] {
            assert_eq!(nearest_key(unknown), near, "{unknown}");
        }
    }

    #[test]
    fn a_table_is_recognised_too() {
        assert_eq!(nearest_table("mem"), Some("memory"));
        assert_eq!(nearest_table("memroy"), Some("memory"));
        assert_eq!(nearest_table("cpu"), Some("cpus"));
        assert_eq!(nearest_table("qqqqqq"), None);
    }
}
