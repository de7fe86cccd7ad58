//! The results document: what ran, where, and what was counted.

use devices::balloon::counters::CountersSnapshot;
use devices::balloon::device::FeaturesSnapshot;
use serde::{Deserialize, Serialize};

use crate::outcome::Verdict;

/// Version of the document's layout; raised when a reader has to change.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResults {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of Aerostat.
    pub aerostat: String,
    /// How it ended.
    pub verdict: Verdict,
    /// The process exit code that belongs to `verdict`.
    pub exit_code: u8,
    /// Where it ran.
    pub host: HostFacts,
    /// The merged configuration.
    pub config: serde_json::Value,
    /// Balloon features by name.
    pub features: FeaturesSnapshot,
    /// Balloon counters at the end.
    pub counters: CountersSnapshot,
    /// How long things took.
    pub timings: Timings,
    /// The VMM's own footprint.
    pub footprint: Option<Footprint>,
    /// JSON lines from the guest's second serial port, in order.
    pub guest: Vec<GuestLine>,
    /// Lines and bytes that were dropped because a bound was reached.
    pub dropped: Dropped,
}

/// Whether the CPU that ran the guest is real.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// KVM on this machine.
    Native,
    /// KVM in a host emulated by QEMU: counters are exact, times are emulated.
    Emulated,
}

/// The host that ran the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Native or emulated.
    pub kind: HostKind,
    /// Kernel release and version of the host that ran KVM.
    pub kernel: String,
    /// CPU model name.
    pub cpu: String,
    /// CPUs online.
    pub cpus: u32,
    /// Mode of transparent huge pages, the selected word.
    pub thp: Option<String>,
    /// Huge page pools at start.
    pub pools: Vec<PoolFacts>,
}

/// One hugetlb pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages in no use.
    pub free: u64,
    /// Free pages that are promised to a mapping.
    pub reserved: u64,
}

/// Durations in milliseconds since Aerostat was executed on the host that ran KVM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Guest RAM mapped.
    pub memory_ms: Option<f64>,
    /// Populating guest RAM, if asked for.
    pub prefault: Option<Prefault>,
    /// What was seen of an empty pool; `None` where memory is reserved.
    #[serde(default)]
    pub pool_shortage: Option<PoolShortage>,
    /// vCPUs started.
    pub started_ms: Option<f64>,
    /// First line from the guest's init.
    pub init_ms: Option<f64>,
    /// The machine stopped.
    pub stopped_ms: Option<f64>,
}

/// What populating guest RAM took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prefault {
    /// Bytes populated.
    pub bytes: u64,
    /// Threads used.
    pub threads: u16,
    /// Wall time in milliseconds.
    pub ms: f64,
    /// GiB per second.
    pub gib_per_s: f64,
}

/// An empty huge page pool (`memory.overcommit`): vCPUs that touched new memory
/// waited meanwhile, most of them inside KVM, where it cannot be counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolShortage {
    /// Milliseconds during which the pool was empty, sampled ten times a second.
    pub empty_ms: f64,
    /// Accesses that KVM refused and a vCPU tried again.
    pub refused: u64,
}

/// The VMM's own memory beside guest RAM, in bytes, when the guest's init was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Resident set without guest RAM.
    pub vmm_rss: u64,
    /// Resident guest RAM.
    pub guest_resident: u64,
    /// Page tables of the process.
    pub page_tables: u64,
}

/// One line of the guest, stamped by the VMM when it arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestLine {
    /// Milliseconds since exec.
    pub at_ms: f64,
    /// The line; a string if it was not JSON.
    pub line: serde_json::Value,
    /// Balloon counters at that moment.
    pub counters: CountersSnapshot,
    /// Free pages of the pool that backs the guest at that moment.
    pub pool_free: Option<u64>,
}

/// What was dropped because a bound was reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Console bytes a slow reader did not take.
    pub console_bytes: u64,
    /// Guest lines past the limit.
    pub guest_lines: u64,
}
