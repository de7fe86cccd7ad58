//! Wrong input: one clear line, the documented exit code, nothing left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::lab::Lab;
use crate::{Case, Failure};

/// A configuration that boots, but for what a row changes.
const GOOD: &str =
    "[kernel]\nimage = \"@bzimage@\"\ninitrd = \"@initrd@\"\n[memory]\nsize = \"512M\"\n";

/// What is wrong, the text to replace, what by, further arguments, exit code, and
/// what the line must name.
type Row = (
    &'static str,
    (&'static str, &'static str),
    &'static [&'static str],
    i32,
    &'static [&'static str],
);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("missing_kernel", ("@bzimage@", "/nonexistent/bzImage"), &[], 2, &["kernel.image", "/nonexistent/bzImage"]),
    ("corrupt_kernel", ("@bzimage@", "@garbage@"), &[], 2, &["garbage", "bzImage"]),
    ("kernel_is_a_directory", ("@bzimage@", "/"), &[], 2, &["kernel.image"]),
    ("initrd_larger_than_ram", ("@initrd@", "@large@"), &["--set", "memory.size=64M"], 2, &["initrd"]),
    ("size_not_a_multiple_of_the_page", ("512M", "513M"), &[], 2, &["memory.size", "512M", "514M"]),
    ("unknown_key", ("size =", "sizze ="), &[], 2, &["unknown_key.toml:5:1", "memory.sizze", "memory.size"]),
    ("unknown_table", ("[memory]", "[memroy]"), &[], 2, &["unknown_table.toml:4:", "memroy", "memory"]),
    ("wrong_type", ("\"512M\"", "true"), &[], 2, &["wrong_type.toml:5:8", "memory.size"]),
    ("page_4m", ("", ""), &["--set", "memory.page=4M"], 2, &["memory.page", "4M", "2M", "1G"]),
    ("zero_cpus", ("", ""), &["--set", "cpus.count=0"], 2, &["cpus.count", "0"]),
    ("not_toml", ("[memory]", "[memory"), &[], 2, &["not_toml.toml:4:"]),
    ("no_such_option", ("", ""), &["--nonsense"], 2, &["unexpected argument", "--nonsense"]),
    ("a_promise_that_cannot_be_kept", ("", ""),
        &["--set", "balloon.on_report=keep", "--set", "balloon.device_init_reported=true"], 2,
        &["balloon.device_init_reported", "balloon.on_report"]),
    ("a_lie_without_leave", ("", ""), &["--set", "balloon.lie_about_zero=true"], 2, &["lie_about_zero"]),
    ("results_cannot_be_written", ("", ""), &["--results", "/nonexistent/folder/r.json"], 2, &["/nonexistent/folder"]),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = ROWS
        .iter()
        .map(|row| {
            Case::new(format!("bad_input::{}", row.0), move |lab| {
                refused(lab, row)
            })
        })
        .collect();
    cases.push(Case::new("bad_input::config_is_a_directory", |lab| {
        let (code, lines) = run(Command::new(&lab.artifacts.aerostat).args(["run", "/"]))?;
        expect(code, &lines, 2, &["directory"])
    }));
    cases.push(Case::new("bad_input::config_is_missing", |lab| {
        let (code, lines) =
            run(Command::new(&lab.artifacts.aerostat).args(["run", "/nonexistent.toml"]))?;
        expect(code, &lines, 2, &["/nonexistent.toml"])
    }));
    cases.push(Case::new("bad_input::kvm_not_permitted", kvm_not_permitted));
    cases.push(Case::new(
        "bad_input::no_kvm_and_no_qemu",
        no_kvm_and_no_qemu,
    ));
    cases
}

fn refused(lab: &Lab, row: &Row) -> Result<(), Failure> {
    let (name, (old, new), arguments, code, words) = *row;
    let path = write_config(lab, name, &GOOD.replace(old, new))?;
    let mut command = Command::new(&lab.artifacts.aerostat);
    command.arg("run").arg(&path).args(arguments);
    let (found, lines) = run(&mut command)?;
    expect(found, &lines, code, words)
}

/// As a user who may not open /dev/kvm; the built binaries may lie where that user
/// cannot reach, so it runs a copy.
fn kvm_not_permitted(lab: &Lab) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("aerostat-test-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let done = (|| {
        for (from, to) in [
            (&lab.artifacts.aerostat, "aerostat"),
            (&lab.artifacts.bzimage, "bzImage"),
            (&lab.artifacts.initrd, "initrd"),
        ] {
            fs::copy(from, folder.join(to))?;
        }
        let text = GOOD
            .replace("@bzimage@", "bzImage")
            .replace("@initrd@", "initrd");
        fs::write(folder.join("vm.toml"), text)?;
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
            .arg(folder.join("aerostat"))
            .arg("run")
            .arg(folder.join("vm.toml"));
        let (code, lines) = run(command.args(["--host", "native"]))?;
        expect(code, &lines, 65, &["/dev/kvm"])
    })();
    fs::remove_dir_all(&folder)?;
    done
}

/// Where there is neither, it says both and how to get one.
fn no_kvm_and_no_qemu(lab: &Lab) -> Result<(), Failure> {
    let path = write_config(lab, "no_qemu", GOOD)?;
    let mut command = Command::new(&lab.artifacts.aerostat);
    command
        .arg("run")
        .arg(&path)
        .args(["--host", "emulated"])
        .env("PATH", "/nonexistent");
    let (code, lines) = run(&mut command)?;
    expect(code, &lines, 65, &["qemu-system-x86"])
}

fn write_config(lab: &Lab, name: &str, text: &str) -> Result<std::path::PathBuf, Failure> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let garbage = folder.join("garbage");
    fs::write(&garbage, "this is no kernel\n".repeat(4096))?;
    let large = folder.join("large");
    // Sparse: it is refused for its size, before it is read.
    fs::File::create(&large)?.set_len(100 << 20)?;
    let path = folder.join(format!("{name}.toml"));
    let text = text
        .replace("@bzimage@", &lab.artifacts.bzimage.display().to_string())
        .replace("@initrd@", &lab.artifacts.initrd.display().to_string())
        .replace("@garbage@", &garbage.display().to_string())
        .replace("@large@", &large.display().to_string());
    fs::write(&path, text)?;
    Ok(path)
}

/// Exit code, and the lines on stderr that are not mere progress.
fn run(command: &mut Command) -> Result<(Option<i32>, Vec<String>), Failure> {
    let out = command.stdin(Stdio::null()).output()?;
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    Ok((
        out.status.code(),
        stderr.lines().map(String::from).collect(),
    ))
}

/// The code is right, and one line names all of `words`.
fn expect(code: Option<i32>, lines: &[String], wanted: i32, words: &[&str]) -> Result<(), Failure> {
    let all = lines.join("\n");
    assert_eq!(code, Some(wanted), "{all}");
    let names_all = |line: &&String| words.iter().all(|word| line.contains(word));
    assert_eq!(
        lines.iter().filter(names_all).count(),
        1,
        "one line must name {words:?}:\n{all}"
    );
    assert!(!all.contains("panicked"), "{all}");
    Ok(())
}
