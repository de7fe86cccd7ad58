//! `configs/` and the schema say the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs")
}

/// The rows of the README's key tables: key to (default, example).
fn documented() -> BTreeMap<String, (String, String)> {
    let readme = fs::read_to_string(configs().join("README.md")).expect("configs/README.md");
    let rows = readme.lines().filter_map(|line| {
        let cells: Vec<_> = line
            .strip_prefix("| ")?
            .strip_suffix(" |")?
            .split(" | ")
            .collect();
        let [key, _type, default, _meaning, example] = cells.try_into().ok()?;
        let key = key.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        let example = example.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        Some((key, (default.to_owned(), example)))
    });
    rows.collect()
}

#[test]
fn the_readme_has_every_key_with_its_default() {
    let documented = documented();
    for key in keys::KEYS {
        let (default, _) = documented
            .get(key.name)
            .unwrap_or_else(|| panic!("no row for {}", key.name));
        let is_toml = key.default.parse::<toml::Value>().is_ok();
        let want = if is_toml {
            format!("`{}`", key.default)
        } else {
            key.default.to_owned()
        };
        assert_eq!(*default, want, "{}", key.name);
    }
    assert_eq!(
        documented.len(),
        keys::KEYS.len(),
        "a row is no key: {:?}",
        documented.keys()
    );
}

#[test]
fn the_examples_of_the_readme_are_valid() {
    for (key, (_, example)) in documented() {
        let (table, _) = key.split_once('.').expect("dotted");
        let kernel = if key == "kernel.image" {
            ""
        } else {
            "kernel.image = \"k\"\n"
        };
        let text = match table {
            "kernel" => format!("{kernel}kernel.{example}\n"),
            _ => format!("{kernel}[{table}]\n{example}\n"),
        };
        if let Err(error) = from_merged(&text) {
            panic!("{key}: {error}\n{text}");
        }
    }
}

#[test]
fn every_shipped_configuration_is_valid_and_in_the_readme() {
    let readme = fs::read_to_string(configs().join("README.md")).expect("configs/README.md");
    let mut names = Vec::new();
    for entry in fs::read_dir(configs()).expect("configs") {
        let path = entry.expect("entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path
            .file_name()
            .expect("name")
            .to_str()
            .expect("UTF-8")
            .to_owned();
        let loaded = Loaded::from_file(&path, &Overrides::default()).expect(&name);
        assert_eq!(loaded.warnings, Vec::<String>::new(), "{name}");
        assert!(
            readme.contains(&format!("[`{name}`]({name})")),
            "{name} is not in the README"
        );
        names.push(name);
    }
    assert!(names.len() >= 5, "{names:?}");
}

#[test]
fn the_baseline_of_an_experiment_differs_in_one_feature() {
    for name in [
        "zero-skip-2m.toml",
        "zero-skip-1g.toml",
        "thp.toml",
        "pages.toml",
    ] {
        let load = |sets: &[&str]| {
            let sets = sets.iter().map(|&set| set.to_owned()).collect();
            let overrides = Overrides {
                sets,
                ..Overrides::default()
            };
            Loaded::from_file(&configs().join(name), &overrides)
                .expect(name)
                .config
        };
        let (mut feature, baseline) = (load(&[]), load(&["balloon.device_init_reported=false"]));
        assert!(feature.balloon.device_init_reported, "{name}");
        feature.balloon.device_init_reported = false;
        assert_eq!(feature, baseline, "{name}");
    }
}
