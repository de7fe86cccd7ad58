//! `cargo xtask conformance`: which rows of the checklist have a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;

use crate::Failure;
use crate::command::{cargo_showing, output, root, say};

/// The rows.
const CHECKLIST: &str = "devices/tests/checklist.md";
/// Where tests of rows are: those that need no guest.
const PACKAGES: [&str; 4] = ["-p", "devices", "-p", "vmm"];

/// Prints how many rows of each section have a test; fails with those that have
/// none, and with tests named by a row that does not exist.
pub(crate) fn conformance() -> Result<(), Failure> {
    say("looking for the tests of each row");
    let rows = rows(&fs::read_to_string(root().join(CHECKLIST))?)?;
    let ignored: BTreeSet<_> = test_names(&list(&["--ignored"])?).collect();
    let all = list(&[])?;
    let tests: Vec<_> = test_names(&all)
        .filter(|name| !ignored.contains(name))
        .collect();
    println!("{}", table(&rows, &tests));
    let wrong = complaints(&rows, &tests);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{CHECKLIST}:\n{}", wrong.join("\n")).into())
}

/// What the test programs say they contain.
fn list(which: &[&str]) -> Result<String, Failure> {
    output(
        cargo_showing("test")
            .args(PACKAGES)
            .args(["--lib", "--bins", "--tests", "--", "--list"])
            .args(which),
    )
}

/// The last parts of the names in a listing, without their modules.
fn test_names(listing: &str) -> impl Iterator<Item = String> {
    let names = listing
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    names.map(|name| name.rsplit("::").next().unwrap_or(name).to_owned())
}

/// Id and text of each row.
fn rows(checklist: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut rows = BTreeMap::new();
    for line in checklist.lines() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (Some(id), Some(text)) = (cells.next(), cells.next()) else {
            continue;
        };
        if is_id(&id.to_lowercase()) && rows.insert(id.to_owned(), text.to_owned()).is_some() {
            return Err(format!("{CHECKLIST} has {id} twice").into());
        }
    }
    Ok(rows)
}

/// The ids a test's name starts with, as they are written in the checklist.
fn ids(test: &str) -> impl Iterator<Item = String> {
    let words = test.split('_').take_while(|word| is_id(word));
    words.map(str::to_uppercase)
}

/// A lower case letter and two digits.
fn is_id(word: &str) -> bool {
    matches!(word.as_bytes(), [letter, tens, ones]
        if letter.is_ascii_lowercase() && tens.is_ascii_digit() && ones.is_ascii_digit())
}

fn complaints(rows: &BTreeMap<String, String>, tests: &[String]) -> Vec<String> {
    let covered: BTreeSet<_> = tests.iter().flat_map(|test| ids(test)).collect();
    let missing = rows.iter().filter(|(id, _)| !covered.contains(*id));
    let missing = missing.map(|(id, text)| format!("  {id} has no test: {text}"));
    // A word such as u32 is of no section.
    let sections: BTreeSet<_> = rows.keys().filter_map(|id| id.get(..1)).collect();
    let unknown = tests.iter().flat_map(|test| {
        let of_section = ids(test).filter(|id| id.get(..1).is_some_and(|s| sections.contains(s)));
        let unknown = of_section.filter(|id| !rows.contains_key(id));
        unknown.map(move |id| format!("  {id} is no row, but names the test {test}"))
    });
    missing.chain(unknown).collect()
}

/// One line for each section, which is the letter of its ids.
fn table(rows: &BTreeMap<String, String>, tests: &[String]) -> Table {
    let covered: BTreeSet<_> = tests.iter().flat_map(|test| ids(test)).collect();
    let mut sections: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for id in rows.keys() {
        let (all, with_test) = sections.entry(id.get(..1).unwrap_or(id)).or_default();
        *all += 1;
        *with_test += usize::from(covered.contains(id));
    }
    let mut table = Table::new();
    table
        .load_preset(UTF8_BORDERS_ONLY)
        .set_header(["section", "rows", "with a test", "tests"]);
    for (section, (all, with_test)) in sections {
        let of_section = |test: &&String| ids(test).any(|id| id.starts_with(section));
        let count = tests.iter().filter(of_section).count();
        table.add_row([
            section.to_owned(),
            all.to_string(),
            with_test.to_string(),
            count.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKLIST: &str = "\
# Checklist
| id | the device |
| --- | --- |
| M01 | shows magic |
| V05 | completes each chain once |
| V06 | never writes to descriptors |
";
    const LISTING: &str = "\
inflate::v05_v06_any_chain: test
m01_magic: test
helper::fills_memory: test
some_bench: benchmark
3 tests, 1 benchmark
";

    fn names(listing: &str) -> Vec<String> {
        test_names(listing).collect()
    }

    #[test]
    fn a_row_is_covered_by_a_test_that_begins_with_its_id() {
        let rows = rows(CHECKLIST).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(complaints(&rows, &names(LISTING)), [] as [&str; 0]);
        // The baseline: without the test, or with the id elsewhere in a name.
        for listing in ["m01_magic: test", "m01_magic: test\nafter_v05_v06: test"] {
            let complaints = complaints(&rows, &names(listing));
            assert_eq!(complaints.len(), 2, "{complaints:?}");
            assert!(complaints[0].contains("V05") && complaints[0].contains("once"));
        }
    }

    #[test]
    fn a_test_of_no_row_and_a_row_given_twice_are_noticed() {
        let rows = self::rows(CHECKLIST).unwrap();
        let listing = format!("{LISTING}m99_v05_nothing: test\nu32_at: test\n");
        let complaints = complaints(&rows, &names(&listing));
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains("M99"), "{complaints:?}");
        let twice = format!("{CHECKLIST}| M01 | again |\n");
        assert!(self::rows(&twice).is_err());
    }

    #[test]
    fn the_checklist_in_the_tree_has_all_sections() {
        let text = fs::read_to_string(root().join(super::CHECKLIST)).unwrap();
        let rows = rows(&text).unwrap();
        for (section, last) in [
            ("M", 25),
            ("V", 16),
            ("B", 8),
            ("I", 17),
            ("S", 12),
            ("H", 13),
            ("P", 5),
            ("R", 11),
            ("N", 15),
        ] {
            for number in 1..=last {
                let id = format!("{section}{number:02}");
                assert!(rows.contains_key(&id), "{id}");
            }
        }
        assert_eq!(rows.len(), 122);
    }
}
