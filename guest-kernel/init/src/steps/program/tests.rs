//! What words mean and which are refused.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::steps::page_kind::PageKind;
use crate::steps::table::{Binding, FileState, Region, STEPS};

const MIB: u64 = 1 << 20;

fn only(word: &str) -> Step {
    match parse_program([word]).unwrap().as_slice() {
        [Node::Step { text, step }] => {
            assert_eq!(text, word);
            step.clone()
        }
        other => panic!("{word}: {other:?}"),
    }
}

fn message(word: &str) -> String {
    parse_program([word]).unwrap_err().message
}

#[test]
fn each_step_has_a_meaning() {
    let thp = Region {
        bytes: 256 * MIB,
        kind: PageKind::Thp,
    };
    let table = [
        (
            "populate=256M",
            Step::Populate {
                region: thp,
                write: false,
                check: false,
                fault_at: None,
                file: FileState::Hole,
            },
        ),
        (
            "populate=256M,thp,write,check",
            Step::Populate {
                region: thp,
                write: true,
                check: true,
                fault_at: None,
                file: FileState::Hole,
            },
        ),
        (
            "populate=64K,mthp=64K,check",
            Step::Populate {
                region: Region {
                    bytes: 65536,
                    kind: PageKind::Mthp(65536),
                },
                write: false,
                check: true,
                fault_at: None,
                file: FileState::Hole,
            },
        ),
        (
            "populate=256M,thp,at=2044K",
            Step::Populate {
                region: thp,
                write: false,
                check: false,
                fault_at: Some(2 * MIB - 4096),
                file: FileState::Hole,
            },
        ),
        (
            "populate=8K,memfd,at=0,punch,check",
            Step::Populate {
                region: Region {
                    bytes: 8192,
                    kind: PageKind::Memfd(4096),
                },
                write: false,
                check: true,
                fault_at: Some(0),
                file: FileState::Punched,
            },
        ),
        (
            "fallocate=64M",
            Step::Fallocate {
                bytes: 64 * MIB,
                page_bytes: 2 * MIB,
                check: false,
            },
        ),
        (
            "fallocate=1G,hugetlb=1G,check",
            Step::Fallocate {
                bytes: 1 << 30,
                page_bytes: 1 << 30,
                check: true,
            },
        ),
        ("dirty=256M,thp", Step::Dirty(thp)),
        (
            "fill=4K,small",
            Step::Fill(Region {
                bytes: 4096,
                kind: PageKind::Small,
            }),
        ),
        (
            "hold=2.5,256M,thp",
            Step::Hold {
                region: thp,
                duration: Duration::from_millis(2500),
            },
        ),
        (
            "pool=32",
            Step::Pool {
                page_bytes: 2 * MIB,
                pages: 32,
            },
        ),
        (
            "pool=0,hugetlb=1G",
            Step::Pool {
                page_bytes: 1 << 30,
                pages: 0,
            },
        ),
        ("flush", Step::Flush(1000)),
        ("flush=512", Step::Flush(512)),
        ("verify=on", Step::Verify(true)),
        ("verify=off", Step::Verify(false)),
        ("off=on", Step::Off(true)),
        ("off=off", Step::Off(false)),
        ("zero_mode=0", Step::ZeroMode(0)),
        ("zero_batch=8192", Step::ZeroBatch(8192)),
        ("drop_caches", Step::DropCaches),
        ("compact", Step::Compact),
        ("sleep=0.5", Step::Sleep(Duration::from_millis(500))),
        (
            "wait_balloon=512M",
            Step::WaitBalloon {
                bytes: 512 * MIB,
                patience: Duration::from_secs(60),
            },
        ),
        (
            "wait_balloon=0,1.5",
            Step::WaitBalloon {
                bytes: 0,
                patience: Duration::from_millis(1500),
            },
        ),
        ("balloon=bind", Step::Balloon(Binding::Bind)),
        ("balloon=unbind", Step::Balloon(Binding::Unbind)),
        ("pressure=1G", Step::Pressure(1 << 30)),
        (
            "stress=2,8M,1,balloon",
            Step::Stress {
                workers: 2,
                bytes: 8 * MIB,
                duration: Duration::from_secs(1),
                balloon: true,
            },
        ),
        (
            "stress=8,6M,12",
            Step::Stress {
                workers: 8,
                bytes: 6 * MIB,
                duration: Duration::from_secs(12),
                balloon: false,
            },
        ),
        (
            "write=/sys/power/disk,a,b",
            Step::Write {
                path: "/sys/power/disk".to_owned(),
                text: "a,b".to_owned(),
            },
        ),
        (
            "exec=/bin/x,a=b,c",
            Step::Exec(["/bin/x", "a=b", "c"].map(str::to_owned).to_vec()),
        ),
        ("print=a=b c", Step::Print("a=b c".to_owned())),
        ("print", Step::Print(String::new())),
        ("spin_console=3K", Step::SpinConsole(3072)),
        ("info", Step::Info),
        ("exit=-1", Step::Exit(-1)),
        ("panic", Step::Panic),
        ("hang", Step::Hang),
        ("reboot", Step::Reboot),
        ("poweroff", Step::Poweroff),
    ];
    for (word, step) in &table {
        assert_eq!(&only(word), step, "{word}");
    }
    for spec in STEPS
        .iter()
        .filter(|spec| !["loop", "end"].contains(&spec.name))
    {
        let tested = table.iter().any(|(word, _)| {
            word.split('=').next() == Some(spec.name) && spec.usage.starts_with(spec.name)
        });
        assert!(tested, "{} is not in this table", spec.name);
    }
}

#[test]
fn a_wrong_word_is_named_with_its_syntax() {
    for (word, part) in [
        ("populte=1M", "unknown step `populte`"),
        ("populate", "a value is missing"),
        ("populate=", "a value is missing"),
        (
            "populate=3M,thp",
            "not a multiple of the 2M pages of thp; 4M is",
        ),
        ("populate=1M,small,wrte", "no page kind"),
        ("populate=check", "not a size"),
        ("populate=2M,thp,at=2M", "beyond the 2M of a page"),
        ("populate=2M,thp,at=5000", "multiple of 4K"),
        ("populate=2M,shmem,punch", "need a memfd"),
        ("populate=2M,memfd,write", "needs private memory"),
        ("zero_mode=x", "not a whole number"),
        ("zero_batch", "a value is missing"),
        ("dirty=1M,small,write", "no page kind"),
        ("fallocate=3M", "4M is"),
        ("fallocate=4M,thp,check", "thp pages have no pool"),
        ("fallocate=check", "not a size"),
        ("fallocate=4M,hugetlb,write", "no page kind"),
        ("pool", "a value is missing"),
        ("pool=2M", "whole number from 1"),
        ("pool=4,small", "small pages have no pool"),
        ("flush=0", "whole number from 1"),
        ("flush=x", "whole number from 1"),
        ("verify=yes", "must be on or off"),
        ("off", "must be on or off"),
        ("sleep=NaN", "number of seconds"),
        ("sleep=-1", "number of seconds"),
        ("sleep=1e9", "number of seconds"),
        ("stress=1,4K", "needs three values"),
        ("stress=1,5000,1", "multiple of 4K"),
        ("stress=1,4K,1,ballon", "needs three values"),
        ("wait_balloon", "a value is missing"),
        ("wait_balloon=5000", "multiple of 4K"),
        ("wait_balloon=1M,x", "number of seconds"),
        ("balloon", "must be bind or unbind"),
        ("balloon=off", "must be bind or unbind"),
        ("pressure", "a value is missing"),
        ("pressure=4097", "multiple of 4K"),
        ("write=/x", "needs a text"),
        ("exec", "a value is missing"),
        ("exit", "a value is missing"),
        ("exit=3000000000", "whole number"),
        ("info=1", "takes no value"),
        ("loop=0", "whole number from 1"),
        ("end", "without `loop=N`"),
        ("loop=2", "no matching `end`"),
    ] {
        let message = message(word);
        assert!(message.contains(part), "{word}: {message}");
    }
}

#[test]
fn loops_nest_and_semicolons_separate_steps() {
    let split = parse_program(["loop=2", "flush", "loop=3", "info", "end", "end", "info"]).unwrap();
    let joined = parse_program(["loop=2;flush;loop=3;;info;end", "end;info;"]).unwrap();
    assert_eq!(split, joined);
    let info = Node::Step {
        text: "info".to_owned(),
        step: Step::Info,
    };
    let inner = Node::Loop {
        rounds: Rounds::Count(3),
        body: vec![info.clone()],
    };
    let flush = Node::Step {
        text: "flush".to_owned(),
        step: Step::Flush(1000),
    };
    let outer = Node::Loop {
        rounds: Rounds::Count(2),
        body: vec![flush, inner],
    };
    assert_eq!(split, vec![outer, info]);
}

#[test]
fn a_loop_is_bounded_by_a_number_or_a_time() {
    for (word, rounds) in [
        ("loop=3", Rounds::Count(3)),
        ("loop=1.5s", Rounds::For(Duration::from_millis(1500))),
    ] {
        let program = parse_program([word, "info", "end"]).unwrap();
        assert!(
            matches!(program.as_slice(), [Node::Loop { rounds: is, .. }] if *is == rounds),
            "{word}: {program:?}"
        );
    }
    assert!(parse_program(["loop=xs", "info", "end"]).is_err());
}

#[test]
fn nesting_is_bounded() {
    let deep = |depth: usize| vec!["loop=1"; depth].join(";") + &";end".repeat(depth);
    assert!(parse_program([deep(8).as_str()]).is_ok());
    assert!(parse_program([deep(9).as_str()]).is_err());
}

#[test]
fn no_steps_is_a_program() {
    assert_eq!(parse_program([]), Ok(Vec::new()));
}

#[test]
fn the_readme_has_a_row_for_each_step() {
    let readme = include_str!("../../../README.md");
    for spec in STEPS {
        let row = format!(
            "| `{}` | {} |",
            spec.usage.replace('|', "\\|"),
            spec.summary
        );
        assert!(readme.contains(&row), "README.md lacks this row:\n{row}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(word in "\\PC*") {
        let _ = parse_program([word.as_str()]);
    }

    #[test]
    fn words_near_the_language_are_parsed_or_refused(
        words in prop::collection::vec(
            "(populate|dirty|fill|flush|verify|off|sleep|stress|wait_balloon|balloon|pressure|write|exec|loop|end|exit|fallocate|pool|zero_mode|zero_batch)=?[0-9KMG,.;=a-z-]{0,24}",
            0..12,
        )
    ) {
        if let Err(bad) = parse_program(words.iter().map(String::as_str)) {
            prop_assert!(!bad.message.is_empty() && !bad.message.contains('\n'));
        }
    }
}
