//! The results document: what ran, where, and what was counted.

use devices::balloon::counters::CountersSnapshot;
use devices::balloon::device::FeaturesSnapshot;
use devices::balloon::hinting::HintingStatus;
use devices::balloon::queue_map::QueueNumbering;
use devices::balloon::statistics::StatisticsSample;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::outcome::{FailureClass, Verdict};

/// Version of the document's layout; raised when a reader has to change.
pub const SCHEMA_VERSION: u32 = 1;

/// Ends [`RunResults::console_tail`] where no panic ended the guest.
pub const TRIPLE_FAULT: &str = "(triple fault: the CPU was reset without a word of the kernel)";

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
    /// What the guest's balloon driver told beside that.
    #[serde(default)]
    pub balloon: BalloonTold,
    /// Balloon counters at the end.
    pub counters: CountersSnapshot,
    /// How long things took.
    pub timings: Timings,
    /// The VMM's own footprint when the guest's init was up.
    pub footprint: Option<Footprint>,
    /// The same when the machine had stopped.
    #[serde(default)]
    pub footprint_at_end: Option<Footprint>,
    /// JSON lines from the guest's second serial port, in order.
    pub guest: Vec<GuestLine>,
    /// Lines and bytes that were dropped because a bound was reached.
    pub dropped: Dropped,
    /// The last lines of the console, whether they were read or not, of a run that
    /// ended in another way than the guest asked for.
    #[serde(default)]
    pub console_tail: Vec<String>,
}

impl RunResults {
    /// A document in which nothing has been counted yet.
    #[must_use]
    pub fn new(config: &Config, host: HostFacts, verdict: Verdict) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            aerostat: env!("CARGO_PKG_VERSION").to_owned(),
            exit_code: verdict.exit_code(),
            verdict,
            host,
            // Only a path that is not UTF-8 fails, and checked ones are.
            config: serde_json::to_value(config).unwrap_or_default(),
            features: FeaturesSnapshot::default(),
            balloon: BalloonTold::default(),
            counters: CountersSnapshot::default(),
            timings: Timings::default(),
            footprint: None,
            footprint_at_end: None,
            guest: Vec::new(),
            dropped: Dropped::default(),
            console_tail: Vec::new(),
        }
    }

    /// A document of a run that failed before anything was counted.
    #[must_use]
    pub fn failed(
        config: &Config,
        host: HostFacts,
        class: FailureClass,
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        Self::new(config, host, Verdict::Failed { class, message })
    }

    /// Sets how the run ended, and the exit code that belongs to it.
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.exit_code = verdict.exit_code();
        self.verdict = verdict;
    }

    /// The document as text, with a line feed at its end.
    ///
    /// # Errors
    /// A value has no JSON form.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

/// What the balloon driver of the guest told; each is `None` if it never did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalloonTold {
    /// How it numbers its queues.
    pub queue_numbering: Option<QueueNumbering>,
    /// What the guest fills its free pages with.
    pub poison: Option<u32>,
    /// The last sample of statistics.
    pub statistics: Option<StatisticsSample>,
    /// The last hinting run.
    pub hinting: Option<HintingStatus>,
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

/// An empty huge page pool (`memory.overcommit`), sampled ten times a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolShortage {
    /// Milliseconds during which the pool was empty.
    pub empty_ms: f64,
    /// How often a vCPU began to wait for a page.
    #[serde(default)]
    pub waits: u64,
    /// Milliseconds during which one waited.
    #[serde(default)]
    pub waited_ms: f64,
    /// Accesses that KVM refused and a vCPU tried again.
    pub refused: u64,
}

/// The VMM's own memory beside guest RAM, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Resident set without guest RAM.
    pub vmm_rss_bytes: u64,
    /// Resident guest RAM.
    pub guest_resident_bytes: u64,
    /// Page tables of the process.
    pub page_tables_bytes: u64,
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
    pub pool_free_pages: Option<u64>,
}

/// What was dropped because a bound was reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Console bytes a slow reader did not take.
    pub console_bytes: u64,
    /// Guest lines past the limit.
    pub guest_lines: u64,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::config;

    fn document() -> RunResults {
        let text = "[kernel]\nimage = \"/k\"\n[console]\noutput = { file = \"/c\" }\n";
        let config = config::load_str(text, "vm.toml", Path::new("/"), &[]).expect("valid");
        let host = HostFacts {
            kind: HostKind::Emulated,
            kernel: "7.3.4".to_owned(),
            cpu: "a CPU".to_owned(),
            cpus: 2,
            thp: None,
            pools: vec![PoolFacts {
                page_bytes: 2 << 20,
                total: 4,
                free: 3,
                reserved: 1,
            }],
        };
        let mut results = RunResults::new(&config, host, Verdict::Success);
        results.timings.prefault = Some(Prefault {
            bytes: 1,
            threads: 1,
            ms: 0.5,
            gib_per_s: 2.0,
        });
        results.footprint = Some(Footprint {
            vmm_rss_bytes: 1,
            guest_resident_bytes: 2,
            page_tables_bytes: 3,
        });
        results.footprint_at_end = results.footprint;
        results.guest.push(GuestLine {
            at_ms: 1.5,
            line: Value::from("text"),
            counters: CountersSnapshot::default(),
            pool_free_pages: None,
        });
        results
    }

    /// Dotted paths of all keys; elements of an array are written `[]`.
    fn paths(prefix: &str, value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    paths(&format!("{prefix}.{key}"), value, into);
                }
            }
            Value::Array(values) if values.iter().any(Value::is_object) => {
                values
                    .iter()
                    .for_each(|value| paths(&format!("{prefix}[]"), value, into));
            }
            _ => into.push(prefix.trim_start_matches('.').to_owned()),
        }
    }

    /// Whoever changes this list changes what readers of results rely on:
    /// adding is fine, renaming or removing raises [`SCHEMA_VERSION`].
    #[test]
    fn the_shape_is_what_readers_rely_on() {
        let mut found = Vec::new();
        let value = serde_json::to_value(document()).expect("JSON");
        paths("", &value, &mut found);
        let counters = "reports reported_bytes zeroed_bytes released_bytes promised_bytes inflated_pages \
                        deflated_pages inflate_zeroed_bytes inflate_released_bytes inflate_promised_pages \
                        hinted_bytes hint_discarded_bytes malformed_chains not_ram zero_failures";
        let mut want: Vec<String> = [
            "schema_version aerostat verdict.kind exit_code",
            "host.kind host.kernel host.cpu host.cpus host.thp",
            "host.pools[].page_bytes host.pools[].total host.pools[].free host.pools[].reserved",
            "config.kernel.image config.kernel.initrd config.kernel.cmdline config.cpus.count",
            "config.memory.size config.memory.backing config.memory.page config.memory.shared",
            "config.memory.overcommit config.memory.prefault config.memory.prefault_threads",
            "config.balloon.reporting config.balloon.device_init_reported config.balloon.on_report",
            "config.balloon.deflate_on_oom config.balloon.target",
            "config.console.output.file config.console.input config.results.path",
            "config.timeout.boot_ms config.timeout.run_ms config.host.kernel config.host.memory",
            "features.offered features.acknowledged",
            "balloon.queue_numbering balloon.poison balloon.statistics balloon.hinting",
            "timings.memory_ms timings.started_ms timings.init_ms timings.stopped_ms",
            "timings.prefault.bytes timings.prefault.threads timings.prefault.ms timings.prefault.gib_per_s",
            "footprint.vmm_rss_bytes footprint.guest_resident_bytes footprint.page_tables_bytes",
            "footprint_at_end.vmm_rss_bytes footprint_at_end.guest_resident_bytes",
            "footprint_at_end.page_tables_bytes",
            "guest[].at_ms guest[].line guest[].pool_free_pages",
            "dropped.console_bytes dropped.guest_lines console_tail",
        ]
        .iter()
        .flat_map(|line| line.split_whitespace().map(str::to_owned))
        .chain(counters.split_whitespace().map(|key| format!("counters.{key}")))
        .chain(counters.split_whitespace().map(|key| format!("guest[].counters.{key}")))
        .collect();
        want.sort();
        found.sort();
        let missing: Vec<_> = want.iter().filter(|path| !found.contains(path)).collect();
        assert!(missing.is_empty(), "gone: {missing:?}; there is: {found:?}");
    }

    #[test]
    fn a_document_survives_json() {
        let document = document();
        let text = document.to_json().expect("JSON");
        let back: RunResults = serde_json::from_str(&text).expect("document");
        assert_eq!(back, document);
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn the_exit_code_follows_the_verdict() {
        let mut results = document();
        assert_eq!(results.exit_code, 0);
        results.set_verdict(Verdict::GuestPanic);
        assert_eq!(results.exit_code, 67);
    }
}
