//! What the first line says of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::modules::Loaded;
use crate::failure::StepError;
use crate::kernel_file;
use crate::measure::meminfo::Meminfo;
use crate::measure::perf::now_ns;

/// Number of the balloon in the virtio specification, section 5.
const BALLOON_DEVICE_ID: u32 = 5;
/// Parameters of the guest kernel's zero tracking.
pub(crate) const PAGE_ZEROED: &str = "/sys/module/page_zeroed/parameters";
/// How huge pages are cleared.
pub(crate) const FOLIO_ZERO: &str = "/sys/module/folio_zero/parameters";
/// Parameters of free page reporting.
pub(crate) const PAGE_REPORTING: &str = "/sys/module/page_reporting/parameters";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct InitLine {
    version: &'static str,
    kernel: Kernel,
    uptime_ms: u64,
    cpus: u64,
    mem_total_bytes: u64,
    balloon: Balloon,
    page_zeroed: PageZeroed,
    reporting: Reporting,
    modules: Vec<Loaded>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Kernel {
    release: String,
    version: String,
}

/// The balloon of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Balloon {
    found: bool,
    driver_bound: bool,
    /// Numbers of the negotiated feature bits.
    features: Vec<u8>,
    /// Name on the virtio bus.
    #[serde(skip)]
    device: String,
}

/// The guest kernel's knowledge of zeroed pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PageZeroed {
    /// Whether the kernel has it at all.
    present: bool,
    /// Whether a driver turned it on.
    key: Option<String>,
    /// Whether pages claimed zero are verified.
    verify: Option<String>,
    /// The kill switch.
    off: Option<String>,
}

/// Free page reporting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Reporting {
    /// Whether the kernel has it at all.
    present: bool,
    /// Smallest order that is reported.
    order: Option<String>,
    /// Whether it can be flushed.
    flush: bool,
}

impl InitLine {
    /// Looks at the machine.
    pub(crate) fn now(modules: Vec<Loaded>) -> Result<Self, StepError> {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            kernel: Kernel {
                release: text(uname.release()),
                version: text(uname.version()),
            },
            uptime_ms: now_ns(rustix::time::ClockId::Boottime) / 1_000_000,
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            mem_total_bytes: Meminfo::now()?.entry("MemTotal"),
            balloon: Balloon::now(),
            page_zeroed: PageZeroed::now(),
            reporting: Reporting::now(),
            modules,
        })
    }
}

impl Balloon {
    /// Looks for it on the virtio bus.
    pub(crate) fn now() -> Self {
        Self::on_bus(Path::new("/sys/bus/virtio/devices"))
    }

    fn on_bus(bus: &Path) -> Self {
        let mut devices: Vec<PathBuf> = fs::read_dir(bus)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        devices.sort();
        for device in devices {
            let id = kernel_file::read_if_any(device.join("device"))
                .and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
            if id == Some(BALLOON_DEVICE_ID) {
                let bits = kernel_file::read_if_any(device.join("features")).unwrap_or_default();
                let name = device.file_name().unwrap_or_default();
                return Self {
                    found: true,
                    driver_bound: device.join("driver").exists(),
                    features: feature_bits(&bits),
                    device: name.to_string_lossy().into_owned(),
                };
            }
        }
        Self::default()
    }

    /// Name of the device on the virtio bus; none if there is no balloon.
    pub(crate) fn device(&self) -> Option<&str> {
        self.found.then_some(&self.device)
    }

    /// Whether a driver has the device.
    pub(crate) fn driver_bound(&self) -> bool {
        self.driver_bound
    }

    /// Numbers of the negotiated feature bits.
    pub(crate) fn into_features(self) -> Vec<u8> {
        self.features
    }
}

/// sysfs writes bit 0 first, one letter per bit.
fn feature_bits(letters: &str) -> Vec<u8> {
    (0_u8..)
        .zip(letters.bytes())
        .filter(|(_, letter)| *letter == b'1')
        .map(|(bit, _)| bit)
        .collect()
}

impl PageZeroed {
    /// Reads its parameters.
    pub(crate) fn now() -> Self {
        let parameter = |name: &str| kernel_file::read_if_any(Path::new(PAGE_ZEROED).join(name));
        Self {
            present: Path::new(PAGE_ZEROED).exists(),
            key: parameter("key"),
            verify: parameter("verify"),
            off: parameter("off"),
        }
    }
}

impl Reporting {
    /// Reads its parameters.
    pub(crate) fn now() -> Self {
        let parameters = Path::new(PAGE_REPORTING);
        Self {
            present: parameters.exists(),
            order: kernel_file::read_if_any(parameters.join("page_reporting_order")),
            flush: parameters.join("flush").exists(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balloon_is_found_by_its_number() {
        let bus = std::env::temp_dir().join(format!("guest-init-bus-{}", std::process::id()));
        for (name, id) in [("virtio0", "0x0002"), ("virtio1", "0x0005")] {
            fs::create_dir_all(bus.join(name)).unwrap();
            fs::write(bus.join(name).join("device"), format!("{id}\n")).unwrap();
        }
        let features = format!("{}{}1{}", "01100110", "0".repeat(24), "0".repeat(31));
        fs::write(bus.join("virtio1/features"), features).unwrap();
        let balloon = Balloon::on_bus(&bus);
        fs::remove_dir_all(&bus).unwrap();
        assert!(balloon.found && !balloon.driver_bound);
        assert_eq!(balloon.features, [1, 2, 5, 6, 32]);
        assert_eq!(balloon.device(), Some("virtio1"));
        let none = Balloon::on_bus(&bus);
        assert_eq!(none, Balloon::default());
        assert_eq!(none.device(), None);
    }
}
