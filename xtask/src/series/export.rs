//! Commits of a git work tree become the files of `guest-kernel/patches`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::command::{root, say};
use crate::kernel::{self, Series, git};

/// The last line of a commit message that names the file of a new patch.
const FILE: &str = "Patch-file: ";
/// Of the release, in the work tree.
const BASE: &str = "base";

/// What a patch may consist of.
const SOURCES: [&str; 7] = [
    "*.c",
    "*.h",
    "*.S",
    "*.rst",
    "*.txt",
    "*Kconfig*",
    "*Makefile*",
];

/// Makes a work tree at `path`, on a branch of its own.
pub(crate) fn tree(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(format!("{} is there already", path.display()).into());
    }
    let workshop = kernel::workshop()?;
    let to = path.to_string_lossy();
    // A clone: it outlives the workshop.
    let from = workshop.tree();
    git(
        Path::new("."),
        &[
            "clone",
            "--quiet",
            "--no-checkout",
            &from.to_string_lossy(),
            &to,
        ],
    )?;
    let head = git(&from, &["rev-parse", "HEAD"])?;
    git(path, &["checkout", "--quiet", "-b", "series", head.trim()])?;
    say(&format!(
        "{to}: one commit for each patch, on the branch `series`. A new commit names its file \
         in the last line of its message: `{FILE}TOPIC/NUMBER-NAME.patch`"
    ));
    Ok(())
}

/// Writes all commits above the release, and the list of them.
pub(crate) fn export(tree: &Path) -> Result<(), Failure> {
    let mut dirty = git(tree, &["status", "--porcelain"])?;
    // The release's own .gitignore hides every new file.
    let mut others = vec!["ls-files", "--others", "--"];
    others.extend(SOURCES);
    dirty.push_str(&git(tree, &others)?);
    if !dirty.is_empty() {
        return Err(format!("not committed in {}:\n{dirty}", tree.display()).into());
    }
    let directory = root().join("guest-kernel/patches");
    let before = kernel::series()?;
    let range = format!("{BASE}..HEAD");
    let commits = git(tree, &["rev-list", "--reverse", &range])?;
    let mut after = Vec::new();
    for commit in commits.lines() {
        let patch = format_patch(tree, commit)?;
        after.push(named(&patch, &before)?);
    }
    if let Some(twice) = first_twice(after.iter().map(|(name, _)| name.as_str())) {
        return Err(format!("two commits are {twice}").into());
    }
    let (mut written, mut removed) = (0, 0);
    for (name, content) in &after {
        let path = directory.join(name);
        if fs::read(&path).is_ok_and(|now| now == content.as_bytes()) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        fs::write(path, content)?;
        written += 1;
    }
    for patch in before.patches() {
        if !after.iter().any(|(name, _)| *name == patch.name) {
            fs::remove_file(directory.join(&patch.name))?;
            removed += 1;
        }
    }
    let list = directory.join("series");
    let names: Vec<_> = after.iter().map(|(name, _)| name.as_str()).collect();
    fs::write(&list, listed(&fs::read_to_string(&list)?, &names))?;
    say(&format!(
        "{} patches: {written} written, {removed} removed",
        after.len()
    ));
    Ok(())
}

fn format_patch(tree: &Path, commit: &str) -> Result<String, Failure> {
    Ok(git(
        tree,
        &[
            "format-patch",
            "--stdout",
            "--zero-commit",
            "--no-signature",
            "--abbrev=7",
            "--diff-algorithm=myers",
            "-1",
            commit,
        ],
    )?)
}

/// The file a commit belongs to and what is in it: the one its message names, or
/// that of the patch with its subject.
fn named(patch: &str, before: &Series) -> Result<(String, String), Failure> {
    let (message, rest) = patch.split_once("\n---\n").unwrap_or((patch, ""));
    let mut name = None;
    let mut kept: Vec<&str> = Vec::new();
    for line in message.lines() {
        match line.strip_prefix(FILE) {
            Some(file) => name = Some(file.trim().to_owned()),
            None => kept.push(line),
        }
    }
    // A diff may end in an empty line of context, which is a blank.
    let content = format!("{}\n---\n{rest}", kept.join("\n").trim_end());
    let subject = kernel::subject(&content);
    let same = |of: &&kernel::Patch| Series::subject(of) == subject;
    let name = name.or_else(|| before.patches().iter().find(same).map(|p| p.name.clone()));
    let name = name.ok_or_else(|| {
        format!(
            "no patch is called `{subject}`: end its message with `{FILE}TOPIC/NUMBER-NAME.patch`"
        )
    })?;
    let inside = name.ends_with(".patch") && name.split('/').count() == 2 && !name.contains("..");
    if !inside {
        return Err(format!("`{name}` is not TOPIC/NUMBER-NAME.patch").into());
    }
    Ok((name, content))
}

fn first_twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeMap::new();
    names
        .into_iter()
        .find(|name| seen.insert(*name, ()).is_some())
}

/// The list with these names, with its comments at the top and its tests.
fn listed(now: &str, names: &[&str]) -> String {
    let head = now.lines().take_while(|line| line.starts_with('#'));
    let mut lines: Vec<_> = head.map(str::to_owned).collect();
    for name in names {
        let old = now
            .lines()
            .find(|line| line.split('#').next().is_some_and(|n| n.trim() == *name));
        lines.push(old.unwrap_or(name).to_owned());
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_keeps_comments_and_tests() {
        let now = "# Of the series.\n10-a/0010-x.patch  # kunit:x\n10-a/0020-y.patch\n";
        let names = ["10-a/0010-x.patch", "20-b/0010-new.patch"];
        assert_eq!(
            listed(now, &names),
            "# Of the series.\n10-a/0010-x.patch  # kunit:x\n20-b/0010-new.patch\n"
        );
    }

    #[test]
    fn a_commit_is_named_by_its_message_or_its_subject() {
        let series = kernel::series().unwrap();
        let patch = series.patches().first().unwrap();
        let text = String::from_utf8(patch.content.clone()).unwrap();
        assert_eq!(named(&text, &series).unwrap(), (patch.name.clone(), text));

        let new = "From 0\nFrom: a <b>\nSubject: [PATCH] mm: x\n\nWhy.\n\n\
                   Patch-file: 90-x/0010-x.patch\n---\n a | 1 +\n\ndiff --git a/a b/a\n";
        let (name, content) = named(new, &series).unwrap();
        assert_eq!(name, "90-x/0010-x.patch");
        assert!(!content.contains("Patch-file"), "{content}");
        assert!(content.contains("Why.\n---\n a | 1 +"), "{content}");

        let context = format!("{new} last\n \n");
        assert!(named(&context, &series).unwrap().1.ends_with(" last\n \n"));

        let nameless = new.replace("Patch-file: 90-x/0010-x.patch\n", "");
        let error = named(&nameless, &series).unwrap_err().to_string();
        assert!(error.contains("mm: x"), "{error}");
        let outside = new.replace("90-x/0010-x.patch", "../x.patch");
        assert!(named(&outside, &series).is_err());
    }
}
