//! Runs that ended before, or without, a word from the inner run.

use devices::balloon::counters::CountersSnapshot;
use devices::balloon::device::FeaturesSnapshot;

use crate::config::Config;
use crate::outcome::{FailureClass, Verdict};
use crate::results::{Dropped, HostFacts, HostKind, RunResults, SCHEMA_VERSION, Timings};

/// A failure of this class.
pub(crate) fn failed(class: FailureClass, message: impl Into<String>) -> Verdict {
    Verdict::Failed { class, message: message.into() }
}

/// Results that hold nothing but the verdict.
pub(crate) fn results(config: &Config, host: HostFacts, verdict: Verdict) -> RunResults {
    RunResults {
        schema_version: SCHEMA_VERSION,
        aerostat: env!("CARGO_PKG_VERSION").to_owned(),
        exit_code: verdict.exit_code(),
        verdict,
        host,
        config: config_value(config),
        features: FeaturesSnapshot::default(),
        counters: CountersSnapshot::default(),
        timings: Timings::default(),
        footprint: None,
        guest: Vec::new(),
        dropped: Dropped::default(),
    }
}

/// The configuration as it appears in results.
pub(crate) fn config_value(config: &Config) -> serde_json::Value {
    // The configuration has string keys and finite numbers only; null says otherwise.
    serde_json::to_value(config).unwrap_or_default()
}

/// What is known of a host that never came up.
pub(crate) fn no_facts(kind: HostKind) -> HostFacts {
    HostFacts { kind, kernel: String::new(), cpu: String::new(), cpus: 0, thp: None, pools: Vec::new() }
}
