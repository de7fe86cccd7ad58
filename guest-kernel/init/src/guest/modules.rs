//! Modules of a stock kernel, given in the initrd as `/modules/*.ko`.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;

use rustix::io::Errno;
use rustix::system::finit_module;
use serde::Serialize;

use super::cmdline::module_parameters;

/// What became of one module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Loaded {
    /// Name of the file.
    file: String,
    /// Why it could not be loaded.
    error: Option<String>,
}

/// Loads every `*.ko` in `directory`, in the order of the names, each with its
/// parameters from the kernel command line. No directory means no modules.
pub(crate) fn load_all(directory: &Path, cmdline: &str) -> Vec<Loaded> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ko"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| Loaded {
            file: path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            error: load(path, cmdline).err(),
        })
        .collect()
}

fn load(path: &Path, cmdline: &str) -> Result<(), String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parameters = CString::new(module_parameters(cmdline, module_name(&stem)))
        .map_err(|error| error.to_string())?;
    let file = File::open(path).map_err(|error| error.to_string())?;
    match finit_module(&file, &parameters, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The name without the number that gives the order: `10-virtio_mmio`.
fn module_name(stem: &str) -> &str {
    let name = stem.trim_start_matches(|letter: char| letter.is_ascii_digit());
    match name.strip_prefix(['-', '_', '.']) {
        Some(rest) if name.len() < stem.len() => rest,
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_number_is_no_part_of_the_name() {
        for (stem, name) in [
            ("10-virtio_mmio", "virtio_mmio"),
            ("02_virtio-ring", "virtio-ring"),
            ("virtio_mmio", "virtio_mmio"),
            ("8250_pci", "pci"),
            ("9p", "9p"),
            ("1-9pnet_virtio", "9pnet_virtio"),
        ] {
            assert_eq!(module_name(stem), name, "{stem}");
        }
    }

    #[test]
    fn no_directory_means_no_modules() {
        assert_eq!(load_all(Path::new("/nonexistent"), ""), []);
    }
}
