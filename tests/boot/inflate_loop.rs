//! The guest inflates and deflates, the host zeroes, the guest skips: with bit 7
//! and without.

use std::time::Duration;

use serde_json::Value;
use vmm::control::command::Command;
use vmm::results::GuestLine;

use crate::control::{controlled, until};
use crate::lab::{Lab, Output, Ran};
use crate::{Case, Failure};

/// What the host wants in the balloon.
const BALLOON: u64 = 512 << 20;
const BALLOON_PAGES: u64 = BALLOON / 4096;
const TARGET: &str = "balloon.target=512M";
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// Number of DEVICE_INIT_ON_INFLATE.
const BIT_7: u8 = 7;

/// All memory is dirty before it is inflated, so that a page that reads zero
/// afterwards was made to. Nothing is reported: what is skipped left the balloon
/// before. The verifier reads all of that.
const STEPS: &str = "verify=on wait_balloon=512M balloon=unbind dirty=840M,thp balloon=bind \
                     wait_balloon=512M balloon=unbind populate=840M,KIND,check";

/// A row of the table: what backs the guest, and where the zeroing is done.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    sets: &'static [&'static str],
    /// The pages the guest allocates afterwards.
    kind: &'static str,
    /// Also run it under stress.
    stress: bool,
    /// Without bit 7, with it, under stress: which are in a usual run.
    usual: [bool; 3],
}

const ROWS: &[Row] = &[
    Row {
        name: "hugetlb_2m_discard",
        sets: &["memory.page=2M"],
        kind: "thp",
        stress: true,
        usual: [true, true, false],
    },
    Row {
        name: "hugetlb_2m_shared_discard",
        sets: &["memory.page=2M", "memory.shared=true"],
        kind: "thp",
        stress: false,
        usual: [false; 3],
    },
    Row {
        name: "hugetlb_2m_zero",
        sets: &["memory.page=2M", "balloon.on_inflate=zero"],
        kind: "small",
        stress: false,
        usual: [false; 3],
    },
    Row {
        // No page of 1G is ever inflated whole: all is zeroed in place.
        name: "hugetlb_1g_discard",
        sets: &["memory.page=1G"],
        kind: "thp",
        stress: true,
        usual: [true, true, false],
    },
    Row {
        name: "thp_discard",
        sets: &["memory.backing=thp"],
        kind: "thp",
        stress: false,
        usual: [false; 3],
    },
    Row {
        name: "pages_discard",
        sets: &["memory.backing=pages"],
        kind: "small",
        stress: true,
        usual: [false; 3],
    },
];

pub(crate) fn cases() -> Vec<Case> {
    let both = ROWS.iter().flat_map(|row| [(row, false), (row, true)]);
    let mut cases: Vec<_> = both
        .map(|(row, bit7)| {
            let with = if bit7 {
                "skips_with_bit_7"
            } else {
                "clears_without_bit_7"
            };
            let case = Case::new(format!("inflate::{}_{with}", row.name), move |lab| {
                row.holds(lab, bit7)
            });
            let [without, with, _] = row.usual;
            unless_usual(case, if bit7 { with } else { without })
        })
        .collect();
    for row in ROWS.iter().filter(|row| row.stress) {
        let case = Case::new(format!("inflate::{}_stress", row.name), |lab| {
            row.survives_stress(lab)
        });
        let [.., stress] = row.usual;
        cases.push(unless_usual(case, stress));
    }
    let all = Case::new("inflate::all_that_was_deflated_is_skipped", all_is_skipped);
    cases.push(all.long());
    let deflates = Case::new(
        "inflate::deflates_rather_than_kill",
        deflates_rather_than_kill,
    );
    cases.push(deflates.long());
    cases.push(Case::new(
        "inflate::a_1g_page_goes_back_when_all_of_it_is_inside",
        gigantic_page_goes_back,
    ));
    cases.push(Case::new(
        "inflate::a_host_that_lies_is_caught",
        a_liar_is_caught,
    ));
    for (name, parameter, bit7) in BOOT_PARAMETERS {
        let case = Case::new(format!("inflate::{name}"), |lab| {
            boot_parameter(lab, parameter, *bit7)
        });
        cases.push(case.long());
    }
    cases
}

fn unless_usual(case: Case, usual: bool) -> Case {
    if usual { case } else { case.long() }
}

/// Parameters of the guest's kernel, and whether it negotiates bit 7 with them.
const BOOT_PARAMETERS: &[(&str, &str, bool)] = &[
    ("off_at_boot_is_not_negotiated", "page_zeroed.off=1", false),
    ("init_on_free_is_negotiated", "init_on_free=1", true),
    ("init_on_alloc_is_negotiated", "init_on_alloc=1", true),
];

impl Row {
    fn run(&self, lab: &Lab, steps: &str, sets: &[&str]) -> Result<Ran, Failure> {
        let mut all = vec!["memory.size=1G", "cpus.count=2", TARGET];
        all.extend(self.sets);
        all.extend(sets);
        let ran = lab.run(steps, &all)?;
        ran.exits(0)?;
        let exit = ran.lines("exit");
        assert_eq!(
            exit[0].line["pgzero_bad"], 0,
            "the verifier found a mismatch"
        );
        Ok(ran)
    }

    fn holds(&self, lab: &Lab, bit7: bool) -> Result<(), Failure> {
        let offer = format!("balloon.device_init_on_inflate={bit7}");
        let sets = [offer.as_str(), "balloon.reporting=false"];
        let ran = self.run(lab, &STEPS.replace("KIND", self.kind), &sets)?;
        assert_eq!(negotiated(&ran.lines("init")[0].line["balloon"])?, bit7);

        // The first unbinding only empties the balloon of the boot.
        let bindings = ran.lines("balloon");
        let [_, bind, unbind] = bindings.as_slice() else {
            return Err(format!("{} bindings", bindings.len()).into());
        };
        assert_eq!(negotiated(&bind.line)?, bit7, "not the features of before");
        self.gives_whole_pages_back(&ran)?;
        let vmstat = &unbind.line["vmstat"];
        assert_eq!(vmstat["balloon_deflate"], BALLOON_PAGES, "{vmstat}");
        let zero = count(vmstat, "balloon_deflate_zeroed")?;
        let populate = &ran.lines("populate")[0].line;
        let skipped = count(populate, "pages_skipped")?;
        if bit7 {
            assert!(
                zero * 100 >= BALLOON_PAGES * 95,
                "{zero} pages deflated as zero"
            );
            // The guest cannot allocate all of its memory. What it left may be known
            // to be zero, every page of it.
            let total = count(&ran.lines("init")[0].line, "mem_total_bytes")?;
            let left = total.saturating_sub(count(populate, "size_bytes")?) / 4096;
            let again = BALLOON_PAGES.saturating_sub(left);
            assert!(again > BALLOON_PAGES / 2, "{left} pages were left");
            assert!(
                skipped * 100 >= again * 95,
                "{skipped} pages skipped, of {again} deflated and allocated again: {populate}"
            );
        } else {
            assert_eq!((zero, skipped), (0, 0), "without bit 7: {populate}");
        }
        assert_eq!(
            populate["check"]["nonzero_bytes"], 0,
            "fresh memory was not zero: {populate}"
        );
        Ok(())
    }

    /// The pool grows by what was counted as released, and that is nearly all of the
    /// balloon: a guest whose memory was freed in large blocks gives it in order.
    fn gives_whole_pages_back(&self, ran: &Ran) -> Result<(), Failure> {
        if !self.name.starts_with("hugetlb_2m") || !self.name.ends_with("discard") {
            return Ok(());
        }
        let (bindings, waits) = (ran.lines("balloon"), ran.lines("wait_balloon"));
        let (Some(bind), Some(full)) = (bindings.get(1), waits.get(1)) else {
            return Err("no second inflation".into());
        };
        let free = |line: &GuestLine| line.pool_free_pages.ok_or("no pool");
        let grown = free(full)?.saturating_sub(free(bind)?) * HUGE;
        let counters = [bind, full].map(|line| line.counters);
        let [inflated, released] = [
            counters[1].inflated_pages - counters[0].inflated_pages,
            counters[1].inflate_released_bytes - counters[0].inflate_released_bytes,
        ];
        assert!(
            grown * 100 >= released * 95 && released * 100 >= inflated * 4096 * 90,
            "inflated {inflated} pages: {released} bytes released, the pool grew by {grown}"
        );
        Ok(())
    }

    /// Threads allocate, check and dirty while the balloon comes and goes, memory
    /// is reported and compacted, and every page claimed zero is verified.
    fn survives_stress(&self, lab: &Lab) -> Result<(), Failure> {
        let steps = "verify=on wait_balloon=512M stress=2,96M,12,balloon \
                     wait_balloon=512M balloon=unbind wait_balloon=0 info";
        let ran = self.run(lab, steps, &["balloon.device_init_on_inflate=true"])?;
        let stress = &ran.lines("stress")[0].line;
        assert_eq!(stress["nonzero_bytes"], 0, "{stress}");
        for what in ["balloon_unbinds", "balloon_binds", "flushes"] {
            assert!(count(stress, what)? >= 1, "{stress}");
        }
        let vmstat = &stress["vmstat"];
        for what in [
            "balloon_inflate_zeroed",
            "balloon_deflate_zeroed",
            "pgzero_skipped",
        ] {
            assert!(count(vmstat, what)? > 0, "{what}: {stress}");
        }
        let whole = &ran.lines("info")[0].line["vmstat"];
        let moved = count(whole, "balloon_inflate")? + count(whole, "balloon_migrate")?;
        assert_eq!(
            ran.results.counters.inflated_pages, moved,
            "host and guest counted differently"
        );
        Ok(())
    }
}

/// The kernel keeps to the first GiB. What follows is for programs only; with init
/// at rest it is inflated in order: at first a part of the second GiB, then all of it.
fn gigantic_page_goes_back(lab: &Lab) -> Result<(), Failure> {
    let sets = [
        "memory.size=3G",
        "memory.page=1G",
        "memory.prefault=true",
        "balloon.reporting=false",
    ];
    let steps = "print=ready wait_balloon=2300M print=full sleep=600";
    let mut config = lab.config(steps, &sets)?;
    config.kernel.cmdline = format!("kernelcore=600M {}", config.kernel.cmdline);
    let console = Output::default();
    let said = console.clone();
    let results = controlled(lab, &config, &console, |socket| {
        let until_it_says = |word| until(word, || said.text().contains(word).then_some(()));
        until_it_says("ready\r\n")?;
        for (target, released) in [(1000, 0), (2300, 1 << 30)] {
            let set = socket.set(target << 20, Duration::from_secs(60))?;
            assert_eq!(set["outcome"], "reached", "{set}");
            let counters = socket.ask(&Command::Counters {})?;
            assert_eq!(
                counters["inflate_released_bytes"], released,
                "of {target} MiB inflated: {counters}"
            );
        }
        until_it_says("full\r\n")
    })?;
    let mut lines = results.guest.iter();
    let full = lines.find(|line| line.line["type"] == "wait_balloon");
    assert_eq!(full.and_then(|line| line.pool_free_pages), Some(1));
    Ok(())
}

/// A process allocates until the kernel kills it: all that was deflated, and more.
fn all_is_skipped(lab: &Lab) -> Result<(), Failure> {
    let steps = "verify=on wait_balloon=512M balloon=unbind dirty=840M,thp balloon=bind \
                 wait_balloon=512M balloon=unbind pressure=980M";
    let sets = [
        "memory.size=1G",
        TARGET,
        "balloon.reporting=false",
        "balloon.device_init_on_inflate=true",
    ];
    let ran = lab.run(steps, &sets)?;
    ran.exits(0)?;
    let pressure = &ran.lines("pressure")[0].line;
    assert_eq!(
        pressure["survived"], false,
        "there is less than that: {pressure}"
    );
    let skipped = count(&pressure["vmstat"], "pgzero_skipped")?;
    assert!(
        skipped * 100 >= BALLOON_PAGES * 95,
        "{skipped} pages skipped of {BALLOON_PAGES}: {pressure}"
    );
    assert_eq!(ran.lines("exit")[0].line["pgzero_bad"], 0);
    Ok(())
}

/// A process gets more than is free, out of the balloon, and it reads zero.
fn deflates_rather_than_kill(lab: &Lab) -> Result<(), Failure> {
    let sets = [
        "memory.size=1G",
        TARGET,
        "balloon.reporting=false",
        "balloon.deflate_on_oom=true",
        "balloon.device_init_on_inflate=true",
    ];
    let ran = lab.run("verify=on wait_balloon=512M pressure=700M", &sets)?;
    ran.exits(0)?;
    let pressure = &ran.lines("pressure")[0].line;
    assert_eq!(pressure["survived"], true, "{pressure}");
    let vmstat = &pressure["vmstat"];
    let deflated = count(vmstat, "balloon_deflate")?;
    assert!(deflated > 0, "{pressure}");
    let zero = count(vmstat, "balloon_deflate_zeroed")?;
    assert!(zero * 100 >= deflated * 95, "{zero} of {pressure}");
    assert_eq!(ran.lines("exit")[0].line["pgzero_bad"], 0);
    Ok(())
}

/// The device claims zero and zeroes nothing: the verifier counts it, the guest's
/// programs see zeros all the same, and the run says so in its exit code.
fn a_liar_is_caught(lab: &Lab) -> Result<(), Failure> {
    let steps = "verify=on wait_balloon=512M balloon=unbind dirty=820M,thp balloon=bind \
                 wait_balloon=512M balloon=unbind populate=600M,thp,check";
    let sets = [
        "memory.size=1G",
        TARGET,
        "balloon.reporting=false",
        "balloon.device_init_on_inflate=true",
    ];
    let mut config = lab.config(steps, &sets)?;
    config.balloon.lie_about_zero = true;
    let ran = lab.run_config(&config)?;
    ran.exits(69)?;
    let populate = &ran.lines("populate")[0].line;
    assert_eq!(
        populate["check"]["nonzero_bytes"], 0,
        "the guest must see zeros: {populate}"
    );
    assert!(count(&ran.lines("exit")[0].line, "pgzero_bad")? > 0);
    Ok(())
}

fn boot_parameter(lab: &Lab, parameter: &str, bit7: bool) -> Result<(), Failure> {
    let sets = [
        "memory.size=1G",
        TARGET,
        "balloon.reporting=false",
        "balloon.device_init_on_inflate=true",
    ];
    let steps = "verify=on wait_balloon=512M balloon=unbind populate=600M,thp,check";
    let mut config = lab.config(steps, &sets)?;
    config.kernel.cmdline = format!("{parameter} {}", config.kernel.cmdline);
    let ran = lab.run_config(&config)?;
    ran.exits(0)?;
    assert_eq!(negotiated(&ran.lines("init")[0].line["balloon"])?, bit7);
    let vmstat = &ran.lines("balloon")[0].line["vmstat"];
    assert_eq!(
        count(vmstat, "balloon_deflate_zeroed")? > 0,
        bit7,
        "{vmstat}"
    );
    let populate = &ran.lines("populate")[0].line;
    assert_eq!(count(populate, "pages_skipped")? > 0, bit7, "{populate}");
    assert_eq!(populate["check"]["nonzero_bytes"], 0, "{populate}");
    assert_eq!(ran.lines("exit")[0].line["pgzero_bad"], 0);
    Ok(())
}

fn negotiated(balloon: &Value) -> Result<bool, Failure> {
    let features = balloon["features"].as_array().ok_or("no features")?;
    Ok(features.iter().any(|bit| *bit == BIT_7))
}

fn count(values: &Value, name: &str) -> Result<u64, Failure> {
    let value = values[name].as_u64();
    value.ok_or_else(|| format!("no {name} in {values}").into())
}
