//! What a user gets to read for each mistake: one line, exactly this.

use std::path::Path;

use super::*;

/// A file with only what is required.
const MINIMAL: &str = "[kernel]\nimage = \"k\"\n";

fn error(text: &str, sets: &[&str]) -> String {
    let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
    match load_str(text, "vm.toml", Path::new("/base"), &sets) {
        Ok(config) => panic!("{text:?} {sets:?} was accepted: {config:?}"),
        Err(error) => error.to_string(),
    }
}

/// Each case follows `[kernel] image = "k"`, so its first line is line 3.
#[test]
fn a_mistake_in_the_file_is_one_line_with_place_key_and_fix() {
    for (text, message) in [
        // Unknown keys and tables.
        (
            "[memory]\npgae = \"2M\"",
            "vm.toml:4:1: key `memory.pgae`: unknown key; did you mean `memory.page`?",
        ),
        (
            "  [memory]\n  sise = \"2M\"",
            "vm.toml:4:3: key `memory.sise`: unknown key; did you mean `memory.size`?",
        ),
        (
            "[memory]\nmem_size_mib = 4096",
            "vm.toml:4:1: key `memory.mem_size_mib`: unknown key; did you mean `memory.size`?",
        ),
        (
            "[memory]\ncount = 4",
            "vm.toml:4:1: key `memory.count`: unknown key; did you mean `cpus.count`?",
        ),
        (
            "[memory]\nxyzzy = 4",
            "vm.toml:4:1: key `memory.xyzzy`: unknown key; configs/README.md lists the valid ones",
        ),
        (
            "[memroy]\nsize = \"1G\"",
            "vm.toml:3:2: key `memroy`: unknown table; did you mean `memory`?",
        ),
        (
            "[memory.hugepages]\nsize = \"1G\"",
            "vm.toml:3:9: key `memory.hugepages`: unknown table; did you mean `memory.backing`?",
        ),
        (
            "[qqqqqqqq]",
            "vm.toml:3:2: key `qqqqqqqq`: unknown table; configs/README.md lists the valid ones",
        ),
        (
            "[console]\noutput = { fiel = \"x\" }",
            "vm.toml:4:12: key `console.output.fiel`: unknown key; did you mean `console.output.file`?",
        ),
        // The first mistake of the file, not of the alphabet.
        (
            "[memory]\nzzz = 1\naaa = 1",
            "vm.toml:4:1: key `memory.zzz`: unknown key; configs/README.md lists the valid ones",
        ),
        // Wrong types.
        (
            "[cpus]\ncount = \"2\"",
            "vm.toml:4:9: key `cpus.count`: expected a number of CPUs, 1 to 64, found string \"2\"",
        ),
        (
            "[cpus]\ncount = 2.0",
            "vm.toml:4:9: key `cpus.count`: expected a number of CPUs, 1 to 64, found float 2.0",
        ),
        (
            "[memory]\nsize = true",
            "vm.toml:4:8: key `memory.size`: expected a size such as \"512M\" or \"2G\", found boolean true",
        ),
        (
            "[memory]\nsize = \"lots\"",
            "vm.toml:4:8: key `memory.size`: expected a size such as \"512M\" or \"2G\", found string \"lots\"",
        ),
        (
            "[memory]\nprefault = \"yes\"",
            "vm.toml:4:12: key `memory.prefault`: expected true or false, found string \"yes\"",
        ),
        (
            "[memory]\npage = 2",
            "vm.toml:4:8: key `memory.page`: expected \"2M\" or \"1G\", found integer 2",
        ),
        (
            "[memory]\nbacking = [\"thp\"]",
            "vm.toml:4:11: key `memory.backing`: expected \"hugetlb\", \"thp\" or \"pages\", found an array",
        ),
        (
            "[timeout]\nboot = 30",
            "vm.toml:4:8: key `timeout.boot`: expected a duration such as \"30s\" or \"500ms\", found integer 30",
        ),
        (
            "[results]\npath = 2026-04-01",
            "vm.toml:4:8: key `results.path`: expected a path as a string, found date 2026-04-01",
        ),
        (
            "[balloon]\ndevice_init_reported = 1",
            "vm.toml:4:24: key `balloon.device_init_reported`: expected true, false or \"auto\", found integer 1",
        ),
        (
            "[console]\noutput = {}",
            "vm.toml:4:10: key `console.output`: expected \"stdout\", \"none\" or { file = \"path\" }, found an empty table",
        ),
        (
            "[memory.size]\nbytes = 1",
            "vm.toml:3:1: key `memory.size`: expected a size such as \"512M\" or \"2G\", found a table",
        ),
        (
            "[[memory]]\nsize = 1",
            "vm.toml:3:1: key `memory`: expected a table, found an array",
        ),
        // Values out of range.
        (
            "[memory]\npage = \"4M\"",
            "vm.toml:4:8: key `memory.page`: \"4M\" is not allowed; allowed: \"2M\", \"1G\"",
        ),
        (
            "[memory]\nbacking = \"thp\"\npage = \"4M\"",
            "vm.toml:5:8: key `memory.page`: \"4M\" is not allowed; allowed: \"4K\", \"2M\", \"1G\"",
        ),
        (
            "[cpus]\ncount = 0",
            "vm.toml:4:9: key `cpus.count`: 0 is not allowed; allowed: 1 to 64",
        ),
        (
            "[cpus]\ncount = 0xffffffffffffffff",
            "vm.toml:4:9: key `cpus.count`: 18446744073709551615 is not allowed; allowed: 1 to 64",
        ),
        (
            "[cpus]\ncount = -1",
            "vm.toml:4:9: key `cpus.count`: -1 is not allowed; allowed: 1 to 64",
        ),
        (
            "[memory]\nsize = \"1025M\"",
            "vm.toml:4:8: key `memory.size`: 1025M is not a multiple of the 2M page; nearest: 1G or 1026M",
        ),
        (
            "[memory]\nsize = \"512M\"\npage = \"1G\"",
            "vm.toml:4:8: key `memory.size`: 512M is not a multiple of the 1G page; nearest: 1G",
        ),
        (
            "[memory]\npage = \"1G\"",
            "vm.toml: key `memory.size`: 512M is not a multiple of the 1G page; nearest: 1G",
        ),
        (
            "[memory]\nsize = \"512MB\"",
            "vm.toml:4:8: key `memory.size`: \"512MB\" is not allowed; allowed: 16M to 4T, a whole number, as bytes or with K, M, G or T",
        ),
        (
            "[memory]\nsize = 512",
            "vm.toml:4:8: key `memory.size`: 512 is not allowed; allowed: 16M to 4T, a whole number, as bytes or with K, M, G or T",
        ),
        (
            "[memory]\nsize = \"99999999999999999999T\"",
            "vm.toml:4:8: key `memory.size`: \"99999999999999999999T\" is not allowed; allowed: 16M to 4T, a whole number, as bytes or with K, M, G or T",
        ),
        (
            "[memory]\nprefault = true\nprefault_threads = 0",
            "vm.toml:5:20: key `memory.prefault_threads`: 0 is not allowed; allowed: 1 to 1024",
        ),
        (
            "[timeout]\nrun = \"5 s\"",
            "vm.toml:4:7: key `timeout.run`: \"5 s\" is not allowed; allowed: 0s (no limit) to 8760h, with ms, s, m or h",
        ),
        (
            "[balloon]\ntarget = \"512M\"",
            "vm.toml:4:10: key `balloon.target`: 512M is not allowed; allowed: less than memory.size, which is 512M",
        ),
        (
            "[balloon]\ntarget = 4097",
            "vm.toml:4:10: key `balloon.target`: 4097 is not allowed; allowed: multiples of 4K",
        ),
        (
            "[balloon]\nzero_rate = 1",
            "vm.toml:4:13: key `balloon.zero_rate`: 1 is not allowed; allowed: at least 1M, or \"0\" for no limit",
        ),
        (
            "[host]\nmemory = \"512M\"",
            "vm.toml:4:10: key `host.memory`: 512M is not allowed; allowed: more than memory.size, which is 512M",
        ),
        (
            "cmdline = \"a\\nb\"",
            "vm.toml:3:11: key `kernel.cmdline`: '\\n' is not allowed; allowed: printable ASCII",
        ),
        (
            "initrd = \"a\\u0000b\"",
            "vm.toml:3:10: key `kernel.initrd`: \"/base/a\\0b\" is not allowed; allowed: paths in UTF-8 without zero bytes",
        ),
        // Keys that exclude each other.
        (
            "[memory]\novercommit = true\nreserve = true",
            "vm.toml:5:11: key `memory.reserve`: true contradicts memory.overcommit = true (vm.toml:4:14); keep one of them",
        ),
        (
            "[balloon]\nreporting = false\ndevice_init_reported = true",
            "vm.toml:5:24: key `balloon.device_init_reported`: true needs balloon.reporting = true (vm.toml:4:13)",
        ),
        (
            "[balloon]\ndevice_init_reported = true\non_report = \"keep\"",
            "vm.toml:4:24: key `balloon.device_init_reported`: true needs balloon.on_report = \"discard\" or \"zero\", not \"keep\" (vm.toml:5:13)",
        ),
        (
            "[balloon]\ndevice_init_reported = true\nhinting = \"count\"",
            "vm.toml:4:24: key `balloon.device_init_reported`: true beside hinting (vm.toml:5:11) lets a guest take bit 6 for HINT_WAIT_ON_ACK; set balloon.hinting = \"off\", or balloon.accept_bit6_ambiguity = true",
        ),
        (
            "[balloon]\nhinting = \"discard\"",
            "vm.toml:4:11: key `balloon.hinting`: \"discard\" loses what a guest writes to a page between hinting at it and the discard; use \"count\", or accept that with balloon.accept_hint_race = true",
        ),
        (
            "[balloon]\ndevice_init_on_inflate = true\non_inflate = \"keep\"",
            "vm.toml:4:26: key `balloon.device_init_on_inflate`: true needs balloon.on_inflate = \"discard\" or \"zero\", not \"keep\" (vm.toml:5:14)",
        ),
        (
            "[balloon]\nlie_about_zero = true",
            "vm.toml:4:18: key `balloon.lie_about_zero`: true leaks host memory to the guest; only tests set it, with AEROSTAT_TEST_FAULTS=1",
        ),
        // Not TOML.
        (
            "[memory\nsize = 1",
            "vm.toml:3:8: not TOML: unclosed table, expected `]`",
        ),
        ("image = \"l\"", "vm.toml:3:1: not TOML: duplicate key"),
    ] {
        assert_eq!(
            error(&format!("{MINIMAL}{text}"), &[]),
            message,
            "for {text:?}"
        );
    }
}

#[test]
fn the_kernel_is_the_one_required_key() {
    let missing = "vm.toml: key `kernel.image`: missing; name a bzImage or ELF kernel in `[kernel]` as image = \"path\"";
    assert_eq!(error("", &[]), missing);
    assert_eq!(error("[kernel]\nimage = \"\"", &[]), missing);
    assert!(load_str(MINIMAL, "vm.toml", Path::new(""), &[]).is_ok());
}

#[test]
fn a_mistake_on_the_command_line_names_the_flag_and_reads_like_one_in_the_file() {
    for (set, message) in [
        (
            "memory.page=4M",
            "--set memory.page=4M: key `memory.page`: \"4M\" is not allowed; allowed: \"2M\", \"1G\"",
        ),
        (
            "memory.page=\"4M\"",
            "--set memory.page=\\\"4M\\\": key `memory.page`: \"4M\" is not allowed; allowed: \"2M\", \"1G\"",
        ),
        (
            "cpus.count=0",
            "--set cpus.count=0: key `cpus.count`: 0 is not allowed; allowed: 1 to 64",
        ),
        (
            "cpus.count=many",
            "--set cpus.count=many: key `cpus.count`: expected a number of CPUs, 1 to 64, found string \"many\"",
        ),
        (
            "memory.pgae=2M",
            "--set memory.pgae=2M: key `memory.pgae`: unknown key; did you mean `memory.page`?",
        ),
        (
            "memory=2M",
            "--set memory=2M: key `memory`: expected a table, found string \"2M\"",
        ),
        (
            "memory={pgae=1}",
            "--set memory={pgae=1}: key `memory.pgae`: unknown key; did you mean `memory.page`?",
        ),
        (
            "memory.page",
            "--set memory.page: expected --set KEY=VALUE, such as --set memory.page=1G",
        ),
        (
            "=2M",
            "--set =2M: expected --set KEY=VALUE, such as --set memory.page=1G",
        ),
    ] {
        assert_eq!(error(MINIMAL, &[set]), message);
    }
}

#[test]
fn two_places_that_disagree_are_both_named() {
    let text = format!("{MINIMAL}[memory]\novercommit = true");
    assert_eq!(
        error(&text, &["memory.reserve=true"]),
        "--set memory.reserve=true: key `memory.reserve`: true contradicts memory.overcommit = true (vm.toml:4:14); keep one of them"
    );
}
