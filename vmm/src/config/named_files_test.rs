//! What is written must not be anything else that is named.

use std::fs;

use crate::config;

#[test]
fn an_output_is_no_other_file_that_is_named() {
    let directory = std::env::temp_dir().join(format!("named-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let at = |name: &str| directory.join(name).display().to_string();
    fs::write(at("kernel"), "k").unwrap();
    fs::write(at("initrd"), "i").unwrap();
    fs::hard_link(at("initrd"), at("link")).unwrap();
    let text = format!(
        "[kernel]\nimage = {:?}\ninitrd = {:?}\n",
        at("kernel"),
        at("initrd")
    );
    fs::write(at("vm.toml"), text).unwrap();
    let console = |name| format!("console.output.file={}", at(name));
    let results = |name| format!("results.path={}", at(name));
    let socket = |name| format!("control.socket={}", at(name));
    for (sets, wrong) in [
        (vec![console("log"), results("r.json"), socket("s")], None),
        (vec![console("kernel")], Some("console.output.file")),
        (vec![console("link")], Some("console.output.file")),
        (vec![results("vm.toml")], Some("results.path")),
        (
            vec![results("new"), console("new")],
            Some("console.output.file"),
        ),
        (
            vec![results("new"), socket("./new")],
            Some("control.socket"),
        ),
        (vec![console("new"), socket("new")], Some("control.socket")),
        // Shared by design.
        (
            vec![
                "console.output.file=/dev/null".into(),
                "results.path=/dev/null".into(),
            ],
            None,
        ),
    ] {
        let loaded = config::load(directory.join("vm.toml").as_ref(), &sets);
        match (loaded, wrong) {
            (Ok(_), None) => {}
            (Err(error), Some(key)) => {
                let error = error.to_string();
                assert!(error.contains(key) && error.contains("is also"), "{error}");
            }
            (loaded, _) => panic!("{sets:?}: {loaded:?}"),
        }
    }
    assert_eq!(fs::read(at("kernel")).unwrap(), b"k");
    fs::remove_dir_all(&directory).unwrap();
}
