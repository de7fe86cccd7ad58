//! Everyone in the guest's kernel who clears memory for user space, each after a
//! flush of its own: skips with bit 6, clears without, and hands out zeros always.

use serde_json::Value;

use crate::lab::{Lab, Ran, percent_skipped};
use crate::{Case, Failure};

/// A way to get memory, and the share of it that is not cleared, in percent.
type User = (&'static str, f64);

/// Of 256 MiB that were dirty. Some 5 MiB of free memory lie in blocks too small to be
/// reported, which are used first.
const USERS: &[User] = &[
    ("populate=64M,thp,check", 99.0),
    ("populate=64M,hugetlb=2M,check", 99.0),
    ("fallocate=64M,hugetlb=2M,check", 99.0),
    ("populate=64M,shmem=2M,check", 95.0),
    ("populate=64M,memfd=2M,check", 95.0),
    ("populate=128M,shmem,check", 90.0),
    ("populate=128M,memfd,check", 90.0),
    // What was allocated without being cleared is not known to be zero any more.
    ("populate=16M,memfd,fallocate,check", 0.0),
    ("populate=16M,memfd,punch,check", 0.0),
    ("populate=128M,small,check", 90.0),
];

/// Folios of each size between a page and 2 MiB.
const SIZES: &[User] = &[
    ("populate=128M,mthp=16K,check", 95.0),
    ("populate=128M,mthp=32K,check", 95.0),
    ("populate=128M,mthp=64K,check", 95.0),
    ("populate=128M,mthp=128K,check", 95.0),
    ("populate=128M,mthp=256K,check", 95.0),
    ("populate=128M,mthp=512K,check", 95.0),
    ("populate=128M,mthp=1M,check", 95.0),
];

/// The addresses a folio of 2 MiB is accessed at, and the strategies to clear it.
const STRATEGIES: &str = "dirty=64M,thp;zero_mode=0;populate=32M,thp,at=0,check;\
     populate=32M,thp,at=1M,check;populate=32M,thp,at=2044K,check \
     dirty=64M,thp;zero_mode=1;populate=32M,thp,at=0,check;\
     populate=32M,thp,at=1M,check;populate=32M,thp,at=2044K,check \
     dirty=64M,thp;zero_mode=2;zero_batch=7;populate=32M,thp,at=0,check;\
     populate=32M,thp,at=1M,check;populate=32M,thp,at=2044K,check \
     dirty=64M,thp;zero_mode=3;populate=32M,thp,at=0,check;\
     populate=32M,thp,at=1M,check;populate=32M,thp,at=2044K,check \
     zero_batch=0;populate=32M,mthp=64K,at=32K,check;populate=16M,hugetlb=2M,at=1M,check";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, users) in [("users", USERS), ("mthp", SIZES)] {
        for bit6 in [false, true] {
            let with = if bit6 { "skip_with" } else { "clear_without" };
            cases.push(Case::new(format!("{name}::all_{with}_bit_6"), move |lab| {
                each(lab, users, bit6)
            }));
        }
    }
    cases.push(Case::new(
        "users::a_pool_page_is_zero_once",
        a_pool_page_is_zero_once,
    ));
    cases.push(Case::new(
        "strategies::all_clear_the_whole_folio",
        all_clear_the_whole_folio,
    ));
    cases
}

fn each(lab: &Lab, users: &[User], bit6: bool) -> Result<(), Failure> {
    let steps: Vec<_> = users
        .iter()
        .map(|(user, _)| format!("dirty=256M,thp;flush;{user}"))
        .collect();
    let offer = format!("balloon.device_init_reported={bit6}");
    let steps = format!("verify=on {}", steps.join(" "));
    let ran = lab.run(&steps, &["memory.size=768M", &offer])?;
    let allocated = allocated(&ran)?;
    assert_eq!(allocated.len(), users.len());
    for (line, (user, least)) in allocated.iter().zip(users) {
        let share = percent_skipped(line)?;
        match bit6 {
            true => assert!(share >= *least, "{user}: {share:.1} % skipped: {line}"),
            false => assert_eq!(share, 0.0, "{user}: skipped without bit 6: {line}"),
        }
    }
    Ok(())
}

/// Pages of a pool that grew after a flush are zero until they have been used; then
/// they stay in the pool, and are cleared.
fn a_pool_page_is_zero_once(lab: &Lab) -> Result<(), Failure> {
    let steps = "verify=on dirty=256M,thp flush pool=32 populate=64M,hugetlb=2M,check,write \
                 populate=64M,hugetlb=2M,check";
    let ran = lab.run(steps, &["memory.size=768M"])?;
    let shares = allocated(&ran)?.into_iter().map(percent_skipped);
    let shares = shares.collect::<Result<Vec<_>, _>>()?;
    assert!(
        matches!(shares.as_slice(), [first, second] if *first >= 99.0 && *second == 0.0),
        "{shares:?}"
    );
    Ok(())
}

fn all_clear_the_whole_folio(lab: &Lab) -> Result<(), Failure> {
    let sets = ["memory.size=512M", "balloon.device_init_reported=false"];
    let ran = lab.run(STRATEGIES, &sets)?;
    assert_eq!(allocated(&ran)?.len(), 14);
    for kind in ["zero_mode", "zero_batch"] {
        for line in ran.lines(kind) {
            assert_eq!(line.line["supported"], true, "{}", line.line);
        }
    }
    Ok(())
}

/// The lines of memory that was allocated: all of it zero, and nothing claimed that
/// was not.
fn allocated(ran: &Ran) -> Result<Vec<&Value>, Failure> {
    ran.exits(0)?;
    let all = ran.results.guest.iter().map(|line| &line.line);
    let kinds = ["populate", "fallocate"];
    let lines: Vec<_> = all
        .filter(|line| kinds.iter().any(|kind| line["type"] == *kind))
        .collect();
    for line in &lines {
        assert_eq!(line["check"]["nonzero_bytes"], 0, "not zero: {line}");
    }
    assert_eq!(ran.lines("exit")[0].line["pgzero_bad"], 0);
    Ok(lines)
}
