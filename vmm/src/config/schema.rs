//! The configuration, key by key. `configs/README.md` documents each.

use std::path::PathBuf;
use std::time::Duration;

use devices::balloon::device::{Hinting, Reclaim};
use serde::{Serialize, Serializer};

/// A whole configuration, merged from defaults, file and command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Config {
    /// What is booted.
    pub kernel: Kernel,
    /// Virtual CPUs.
    pub cpus: Cpus,
    /// Guest RAM.
    pub memory: Memory,
    /// The balloon device.
    pub balloon: Balloon,
    /// The serial console.
    pub console: Console,
    /// The results document.
    pub results: Results,
    /// Time limits.
    pub timeout: Timeout,
    /// Control while it runs.
    pub control: Control,
    /// The host it runs on.
    pub host: Host,
}

/// `[kernel]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// bzImage, or ELF with a PVH note.
    pub image: PathBuf,
    /// Initial RAM file system.
    pub initrd: Option<PathBuf>,
    /// Kernel command line, as given; nothing is added to it.
    pub cmdline: String,
}

/// `[cpus]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// Number of vCPUs, 1 to 64.
    pub count: u8,
}

/// `[memory]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Size of guest RAM in bytes; a multiple of the backing page.
    pub size: u64,
    /// What backs it.
    pub backing: Backing,
    /// Backing page size; only `hugetlb` has a choice.
    pub page: PageSize,
    /// Shared (memfd) instead of private mapping.
    pub shared: bool,
    /// Do not reserve huge pages at create: the pool may run empty at run time.
    pub overcommit: bool,
    /// Populate all of it before the guest starts.
    pub prefault: bool,
    /// Threads that populate; `None` is one per host CPU.
    pub prefault_threads: Option<u16>,
}

/// What backs guest RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// Pages of a hugetlb pool.
    Hugetlb,
    /// Anonymous memory with transparent huge pages.
    Thp,
    /// Anonymous memory in 4 KiB pages.
    Pages,
}

/// A backing page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PageSize {
    /// 4 KiB (backings `thp` and `pages`).
    #[serde(rename = "4K")]
    Size4K,
    /// 2 MiB.
    #[serde(rename = "2M")]
    Size2M,
    /// 1 GiB.
    #[serde(rename = "1G")]
    Size1G,
}

impl Backing {
    /// As written in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hugetlb => "hugetlb",
            Self::Thp => "thp",
            Self::Pages => "pages",
        }
    }
}

impl PageSize {
    /// As written in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size4K => "4K",
            Self::Size2M => "2M",
            Self::Size1G => "1G",
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Size4K => 4 << 10,
            Self::Size2M => 2 << 20,
            Self::Size1G => 1 << 30,
        }
    }
}

/// `[balloon]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balloon {
    /// Free page reporting (bit 5).
    pub reporting: bool,
    /// DEVICE_INIT_REPORTED (bit 6).
    pub device_init_reported: bool,
    /// What is done with reported memory.
    pub on_report: Reclaim,
    /// What is done with memory in the balloon.
    pub on_inflate: Reclaim,
    /// DEVICE_INIT_ON_INFLATE (bit 7).
    pub device_init_on_inflate: bool,
    /// MUST_TELL_HOST (bit 0).
    pub must_tell_host: bool,
    /// The statistics queue (bit 1).
    pub statistics: bool,
    /// Deflate on OOM (bit 2).
    pub deflate_on_oom: bool,
    /// Free page hinting (bit 3), and what is done with hinted memory.
    pub hinting: Hinting,
    /// Hinted memory may be discarded though the guest may have it in use again.
    pub accept_hint_race: bool,
    /// Hinting and bit 6 may be offered together.
    pub accept_bit6_ambiguity: bool,
    /// PAGE_POISON (bit 4).
    pub page_poison: bool,
    /// Most bytes that are cleared in place per second; 0 is no limit.
    #[serde(rename = "zero_rate_bytes_per_s")]
    pub zero_rate: u64,
    /// Balloon size asked for at boot, in bytes.
    pub target: u64,
    /// For tests of the guest's verifier: claim zero without zeroing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lie_about_zero: bool,
}

/// `[console]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Console {
    /// Where the guest's first serial port writes.
    pub output: ConsoleOutput,
    /// Whether stdin goes to it.
    pub input: bool,
}

/// Where the console goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleOutput {
    /// To stdout.
    Stdout,
    /// Nowhere (a panic is still recognised).
    None,
    /// Into a file.
    File(PathBuf),
}

/// `[results]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Results {
    /// Where the JSON document is written; `None` writes none.
    pub path: Option<PathBuf>,
}

/// `[timeout]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Timeout {
    /// From exec until the guest's init gives its first line on the second
    /// serial port; zero is no limit.
    #[serde(rename = "boot_ms", serialize_with = "as_millis")]
    pub boot: Duration,
    /// The whole run; zero is no limit.
    #[serde(rename = "run_ms", serialize_with = "as_millis")]
    pub run: Duration,
    /// A vCPU's wait for a page of an empty pool; zero is no limit.
    #[serde(rename = "pool_ms", serialize_with = "as_millis")]
    pub pool: Duration,
}

/// `[control]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Control {
    /// Unix socket to control the VM through; `None` is no control.
    pub socket: Option<PathBuf>,
}

/// `[host]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Kernel of the emulated host; `None` takes `kernel.image`.
    pub kernel: Option<PathBuf>,
    /// RAM of the emulated host; `None` is guest RAM and 1 GiB, or 3 GiB where the
    /// guest is on 1 GiB pages.
    pub memory: Option<u64>,
}

/// The results document has one unit of time.
fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
