//! What is written reads back; what is read never breaks the reader; the
//! command line wins over the file; defaults are what they are said to be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use devices::balloon::device::{Hinting, Reclaim};
use proptest::option;
use proptest::prelude::*;

use super::*;

fn read(text: &str, sets: &[&str]) -> Config {
    let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
    load_str(text, "vm.toml", Path::new("/base"), &sets).expect("a valid configuration")
}

const MINIMAL: &str = "[kernel]\nimage = \"k\"\n";

#[test]
fn defaults_are_the_documented_ones() {
    let config = read(MINIMAL, &[]);
    assert_eq!(config.kernel.image, Path::new("/base/k"));
    let written = config.to_toml();
    let table: toml::Table = toml::from_str(&written).expect("TOML");
    for key in keys::KEYS
        .iter()
        .filter(|key| !key.name.starts_with("console.output."))
    {
        let (of, leaf) = key.name.split_once('.').expect("dotted");
        let value = table
            .get(of)
            .and_then(|of| of.get(leaf))
            .map(ToString::to_string);
        match key.name {
            "kernel.image" => continue,
            "balloon.device_init_reported" => assert_eq!(value.as_deref(), Some("true")),
            "balloon.lie_about_zero" => assert_eq!(value, None),
            _ => match key.default.parse::<toml::Value>() {
                Ok(default) => assert_eq!(value, Some(default.to_string()), "{}", key.name),
                Err(_) => assert_eq!(value, None, "{}", key.name),
            },
        }
    }
}

#[test]
fn bit_6_follows_what_the_device_can_promise_unless_told_otherwise() {
    for (balloon, offered) in [
        ("", true),
        ("device_init_reported = \"auto\"", true),
        ("device_init_reported = false", false),
        ("on_report = \"zero\"", true),
        ("on_report = \"keep\"", false),
        ("reporting = false", false),
        ("hinting = \"count\"", false),
        ("hinting = \"count\"\naccept_bit6_ambiguity = true", true),
        ("on_report = \"keep\"\ndevice_init_reported = false", false),
    ] {
        let config = read(&format!("{MINIMAL}[balloon]\n{balloon}"), &[]);
        assert_eq!(config.balloon.device_init_reported, offered, "{balloon}");
    }
}

#[test]
fn the_command_line_wins_and_the_last_one_wins() {
    let text = format!("{MINIMAL}[memory]\nsize = \"1G\"\n[console]\noutput = {{ file = \"c\" }}");
    let config = read(
        &text,
        &["memory.size=2G", "memory.size=4294967296", "cpus.count=4"],
    );
    assert_eq!(config.memory.size, 4 << 30);
    assert_eq!(config.cpus.count, 4);
    assert_eq!(
        config.console.output,
        ConsoleOutput::File(PathBuf::from("/base/c"))
    );
    assert_eq!(
        read(&text, &["console.output=none"]).console.output,
        ConsoleOutput::None
    );
    let into_file = ConsoleOutput::File(PathBuf::from("d"));
    for set in [
        "console.output.file=d",
        "console.output={file='d'}",
        "console={output={file='d'}}",
    ] {
        assert_eq!(read(&text, &[set]).console.output, into_file, "{set}");
    }
}

#[test]
fn text_on_the_command_line_needs_no_quotes() {
    for (set, cmdline) in [
        (
            "kernel.cmdline=console=ttyS0 -- a=b",
            "console=ttyS0 -- a=b",
        ),
        ("kernel.cmdline=\"quoted\"", "quoted"),
        ("kernel.cmdline=1", "1"),
        ("kernel.cmdline=true", "true"),
        ("kernel.cmdline=", ""),
    ] {
        assert_eq!(read(MINIMAL, &[set]).kernel.cmdline, cmdline);
    }
}

#[test]
fn paths_start_at_the_file_or_at_the_working_directory() {
    let config = read(
        &format!("{MINIMAL}initrd = \"../i\""),
        &["results.path=out.json"],
    );
    assert_eq!(
        config.kernel.initrd.as_deref(),
        Some(Path::new("/base/../i"))
    );
    assert_eq!(config.results.path.as_deref(), Some(Path::new("out.json")));
    let unset = read(&format!("{MINIMAL}initrd = \"i\""), &["kernel.initrd="]);
    assert_eq!(unset.kernel.initrd, None);
}

#[test]
fn reserve_is_the_opposite_of_overcommit() {
    for (memory, overcommit) in [
        ("", false),
        ("reserve = false", true),
        ("reserve = true", false),
        ("overcommit = true", true),
        ("overcommit = true\nreserve = false", true),
    ] {
        let config = read(&format!("{MINIMAL}[memory]\n{memory}"), &[]);
        assert_eq!(config.memory.overcommit, overcommit, "{memory}");
    }
}

#[test]
fn a_key_without_effect_is_a_warning_with_its_place() {
    let file = std::env::temp_dir().join(format!("aerostat-warnings-{}.toml", std::process::id()));
    let text = "[kernel]\nimage = \"k\"\n[memory]\nbacking = \"thp\"\npage = \"2M\"\nprefault_threads = 2\n\
                [balloon]\nreporting = false\non_report = \"zero\"\n";
    std::fs::write(&file, text).expect("temporary file");
    let loaded = Loaded::from_file(&file, &Overrides::default()).expect("valid");
    std::fs::remove_file(&file).expect("temporary file");
    let name = file.display();
    assert_eq!(
        loaded.warnings,
        [
            format!(
                "{name}:5:8: key `memory.page`: has no effect without memory.backing = \"hugetlb\""
            ),
            format!(
                "{name}:6:20: key `memory.prefault_threads`: has no effect without memory.prefault = true"
            ),
            format!(
                "{name}:9:13: key `balloon.on_report`: has no effect without balloon.reporting = true"
            ),
        ]
    );
    assert_eq!(loaded.config.memory.page, PageSize::Size4K);
}

fn path() -> impl Strategy<Value = PathBuf> {
    "/[^\\x00]{1,30}".prop_map(PathBuf::from)
}

fn memory() -> impl Strategy<Value = Memory> {
    let backing = prop_oneof![
        Just((Backing::Hugetlb, PageSize::Size2M)),
        Just((Backing::Hugetlb, PageSize::Size1G)),
        Just((Backing::Thp, PageSize::Size4K)),
        Just((Backing::Pages, PageSize::Size4K)),
    ];
    let threads = option::of(1..=1024u16);
    (backing, 1..=4096u64, any::<[bool; 3]>(), threads).prop_map(
        |((backing, page), units, [shared, overcommit, prefault], prefault_threads)| Memory {
            size: page.bytes().max(16 << 20) * units.min((4 << 40) / page.bytes().max(16 << 20)),
            backing,
            page,
            shared,
            overcommit,
            prefault,
            prefault_threads,
        },
    )
}

fn reclaim() -> impl Strategy<Value = Reclaim> {
    prop_oneof![
        Just(Reclaim::Discard),
        Just(Reclaim::Zero),
        Just(Reclaim::Keep)
    ]
}

fn balloon() -> impl Strategy<Value = Balloon> {
    let hinting = prop_oneof![
        Just(Hinting::Off),
        Just(Hinting::Count),
        Just(Hinting::Discard)
    ];
    let policies = (reclaim(), reclaim(), hinting);
    let sizes = (0..4096u64, 0..4096u64);
    (policies, any::<[bool; 10]>(), sizes).prop_map(
        |((on_report, on_inflate, hinting), flags, (pages, rate))| {
            let [
                reporting,
                bit6,
                bit7,
                must_tell_host,
                statistics,
                deflate_on_oom,
                ..,
            ] = flags;
            let [
                ..,
                accept_hint_race,
                accept_bit6_ambiguity,
                page_poison,
                lie,
            ] = flags;
            Balloon {
                reporting,
                device_init_reported: bit6 && reporting && on_report != Reclaim::Keep,
                on_report,
                on_inflate,
                device_init_on_inflate: bit7 && on_inflate != Reclaim::Keep,
                must_tell_host,
                statistics,
                deflate_on_oom,
                hinting,
                accept_hint_race: accept_hint_race || hinting == Hinting::Discard,
                accept_bit6_ambiguity: accept_bit6_ambiguity || hinting != Hinting::Off,
                page_poison,
                zero_rate: rate << 20,
                target: pages << 12,
                lie_about_zero: lie,
            }
        },
    )
}

fn config() -> impl Strategy<Value = Config> {
    let output = prop_oneof![
        Just(ConsoleOutput::Stdout),
        Just(ConsoleOutput::None),
        path().prop_map(ConsoleOutput::File),
    ];
    let kernel = (path(), option::of(path()), "[ -~]{0,80}");
    let ends = (
        option::of(path()),
        0..31_536_000_000u64,
        0..31_536_000_000u64,
        0..31_536_000_000u64,
        option::of(path()),
    );
    let host = (option::of(path()), 1..=4096u64, any::<bool>());
    (
        kernel,
        1..=64u8,
        memory(),
        balloon(),
        output,
        any::<bool>(),
        ends,
        host,
    )
        .prop_map(
            |((image, initrd, cmdline), count, memory, balloon, output, input, ends, host)| {
                Config {
                    kernel: Kernel {
                        image,
                        initrd,
                        cmdline,
                    },
                    cpus: Cpus { count },
                    balloon,
                    console: Console { output, input },
                    results: Results { path: ends.0 },
                    timeout: Timeout {
                        boot: Duration::from_millis(ends.1),
                        run: Duration::from_millis(ends.2),
                        pool: Duration::from_millis(ends.3),
                    },
                    control: Control { socket: ends.4 },
                    host: Host {
                        kernel: host.0,
                        memory: (host.2 && memory.size < 4 << 40)
                            .then(|| (memory.size + host.1).min(4 << 40)),
                    },
                    memory,
                }
            },
        )
}

proptest! {
    #[test]
    fn a_written_configuration_reads_back(config in config()) {
        let text = config.to_toml();
        prop_assert_eq!(from_merged(&text).map_err(|error| format!("{error}\n{text}")), Ok(config));
    }

    #[test]
    fn no_text_breaks_the_reader(text in "(.|\n){0,200}", set in ".{0,40}") {
        let _ = load_str(&text, "any", Path::new("/base"), &[]);
        let _ = load_str(MINIMAL, "any", Path::new("/base"), &[set]);
    }

    #[test]
    fn near_misses_are_one_line(
        key in proptest::sample::select(keys::KEYS.iter().map(|key| key.name).collect::<Vec<_>>()),
        value in "(true|-?[0-9]{1,30}|\"[^\"\\\\]{0,9}\"|\\[\\]|\\{[a-z]{0,3}\\}|[a-z0-9.]{0,9})",
        cut in 0..30usize,
    ) {
        let name: String = key.chars().enumerate().filter(|(i, _)| *i != cut).map(|(_, c)| c).collect();
        for text in [format!("{name} = {value}"), format!("{MINIMAL}[{name}]\nx = {value}")] {
            if let Err(error) = load_str(&text, "any", Path::new("/base"), &[]) {
                prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
            }
        }
        if let Err(error) = load_str(MINIMAL, "any", Path::new(""), &[format!("{name}={value}")]) {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }
}
