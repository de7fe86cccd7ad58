//! Two kernels as Debian ships them, to see that an unmodified distribution
//! kernel boots and leaves bits 6 and 7 alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::apt::Apt;
use crate::artifacts::{Extras, StockKernel, out, write_initrd};
use crate::command::{output, run, say};

/// Kernel series, and the suite that has its cloud flavour.
const STOCK: &[(&str, &str)] = &[("6.1", "bookworm"), ("6.12", "bookworm-backports")];

/// What the balloon needs, in load order; a kernel may have some built in.
const MODULES: &[&str] = &["virtio", "virtio_ring", "virtio_mmio", "virtio_balloon"];

/// Fetches what is not there yet, and makes an initrd with `init` for each.
pub(crate) fn fetch(init: &Path) -> Result<Vec<StockKernel>, Failure> {
    STOCK
        .iter()
        .map(|(series, suite)| {
            let folder = out().join("stock").join(series);
            if !folder.join("vmlinuz").exists() {
                unpack(series, suite, &folder)?;
            }
            let initrd = folder.join("initrd.cpio");
            let extras = Extras {
                modules: modules(&folder)?,
                ..Extras::default()
            };
            write_initrd(init, &extras, &initrd)?;
            Ok(StockKernel {
                name: format!("debian-{series}-cloud"),
                image: folder.join("vmlinuz"),
                initrd,
            })
        })
        .collect()
}

/// Takes the kernel and its modules out of the package; the kernel goes last, so
/// that its presence means that all is there.
fn unpack(series: &str, suite: &str, folder: &Path) -> Result<(), Failure> {
    say(&format!("fetching Debian's {series} cloud kernel"));
    let apt = Apt::open(&out().join("apt").join(suite), suite)?;
    let package = newest(&apt, series)?;
    let deb = apt.download(&package)?;
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(&tree)?;
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&tree))?;
    fs::remove_file(&deb)?;

    let release = only_entry(&tree.join("lib/modules"))?;
    let from = release.join("kernel/drivers/virtio");
    for (number, name) in MODULES.iter().enumerate() {
        let to = folder.join(format!("{number}-{name}.ko"));
        let (plain, packed) = (
            from.join(format!("{name}.ko")),
            from.join(format!("{name}.ko.xz")),
        );
        if plain.exists() {
            fs::rename(plain, to)?;
        } else if packed.exists() {
            run(Command::new("xz").arg("-d").arg(&packed))?;
            fs::rename(plain, to)?;
        }
    }
    let version = release.file_name().unwrap_or_default().to_string_lossy();
    let image = tree.join("boot").join(format!("vmlinuz-{version}"));
    fs::write(folder.join("version"), format!("{version}\n"))?;
    fs::rename(image, folder.join("vmlinuz"))?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}

/// The newest cloud image of `series`, by Debian's version order.
fn newest(apt: &Apt, series: &str) -> Result<String, Failure> {
    let series_pattern = series.replace('.', r"\.");
    let names = apt.names(&format!(r"^linux-image-{series_pattern}\..*-cloud-amd64$"))?;
    names
        .into_iter()
        .reduce(|best, other| if is_newer(&other, &best) { other } else { best })
        .ok_or_else(|| format!("no cloud kernel {series} in this Debian").into())
}

fn is_newer(name: &str, than: &str) -> bool {
    let mut dpkg = Command::new("dpkg");
    output(dpkg.args(["--compare-versions", name, "gt", than])).is_ok()
}

fn modules(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let mut modules: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "ko"))
        .collect();
    modules.sort();
    Ok(modules)
}

fn only_entry(folder: &Path) -> Result<PathBuf, Failure> {
    let entry = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .next();
    entry.ok_or_else(|| format!("{} is empty", folder.display()).into())
}
