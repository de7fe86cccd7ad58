//! Rules of this tree that no compiler checks.

use std::fs;
use std::process::Command;

use crate::Failure;
use crate::command::{output, root};

/// Longer, and a file is more than one noun.
const MAX_LINES: usize = 400;

/// Where `unsafe` may be, and why: mapping and zeroing memory, memory slots,
/// process and init work that no safe crate offers, and the bare calls that a
/// bench compares with.
const UNSAFE_ALLOWED: &[&str] = &[
    "vmm/src/memory/",
    "vmm/src/kvm/vm.rs",
    "vmm/src/host/",
    "vmm/benches/huge_pages/bare.rs",
];

/// Who may state that memory reads zero: the backings, the test-only liar, and
/// tests with a memory of their own.
const VOUCH_ALLOWED: &[&str] = &[
    "devices/src/balloon/host_zeroes.rs",
    "devices/tests/",
    "fuzz/src/checked_host.rs",
    "vmm/src/fault_injection.rs",
    "vmm/src/memory/",
];

/// Fails with the list of what breaks a rule.
pub(crate) fn check() -> Result<(), Failure> {
    let root = root();
    let files = output(
        Command::new("git")
            .args(["ls-files", "*.rs"])
            .current_dir(&root),
    )?;
    let mut broken = Vec::new();
    // The rules themselves name what they forbid.
    for name in files
        .lines()
        .filter(|name| !name.ends_with("house_rules.rs"))
    {
        let Ok(text) = fs::read_to_string(root.join(name)) else {
            continue; // deleted, not yet committed
        };
        broken.extend(
            broken_rules(name, &text)
                .into_iter()
                .map(|rule| format!("  {name}: {rule}")),
        );
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("house rules:\n{}", broken.join("\n")).into())
}

fn broken_rules(name: &str, text: &str) -> Vec<String> {
    let within = |places: &[&str]| places.iter().any(|place| name.starts_with(place));
    let has_line = |start: &str| {
        text.lines()
            .any(|line| line.trim_start().starts_with(start))
    };
    let mut broken = Vec::new();

    let lines = text.lines().count();
    if lines > MAX_LINES {
        broken.push(format!("{lines} lines, at most {MAX_LINES}"));
    }
    let uses_unsafe = ["{", "fn", "impl"].iter().any(|follows| {
        let form = ["unsafe", follows].join(" ");
        text.lines().any(|line| code_of(line).contains(&form))
    });
    if uses_unsafe && !within(UNSAFE_ALLOWED) {
        broken.push("unsafe outside the modules that may".to_owned());
    }
    if has_line("#![expect(unsafe_code)]") && !has_line("// UNSAFETY:") {
        broken.push("opts into unsafe without a line `// UNSAFETY: why`".to_owned());
    }
    if without_tests(text).contains("Zeroed::vouch") && !within(VOUCH_ALLOWED) {
        broken.push("vouches for zero, which only a backing may".to_owned());
    }
    broken
}

/// What is compiled into programs: the part before a file's own tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// The line without its comment.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::broken_rules;

    #[test]
    fn each_rule_is_noticed_where_it_is_broken_and_only_there() {
        let long = "x\n".repeat(401);
        // Put together, or this file would break the rule itself.
        let block = format!("let x = {} {{ y }};", "unsafe");
        let words = format!("// {} {{ in words }}", "unsafe");
        let table: &[(&str, &str, usize)] = &[
            ("vmm/src/run.rs", "fn main() {}", 0),
            ("vmm/src/run.rs", &long, 1),
            ("vmm/src/run.rs", &block, 1),
            ("vmm/src/run.rs", &words, 0),
            ("vmm/src/memory/discard.rs", &block, 0),
            ("vmm/src/memory/discard.rs", "#![expect(unsafe_code)]", 1),
            (
                "vmm/src/memory/a.rs",
                "// UNSAFETY: a\n#![expect(unsafe_code)]",
                0,
            ),
            (
                "devices/src/balloon/device.rs",
                "Zeroed::vouch(range, 0)",
                1,
            ),
            ("vmm/src/memory/proof.rs", "Zeroed::vouch(range, 0)", 0),
        ];
        for (name, text, count) in table {
            assert_eq!(broken_rules(name, text).len(), *count, "{name}: {text:.40}");
        }
    }
}
