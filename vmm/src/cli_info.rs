//! `aerostat info`.

use std::fmt::Write;

use vmm::config::units::format_size;
use vmm::host_facts;
use vmm::memory::pools::pools;
use vmm::outcome::FailureClass;
use vmm::results::{HostFacts, HostKind};

use crate::talk::{print, say};

/// Prints the facts of this host; returns the exit code.
pub(crate) fn run(json: bool) -> u8 {
    let facts = host_facts::gather(HostKind::Native, pools());
    if !json {
        return print(&table(&facts));
    }
    match serde_json::to_string_pretty(&facts) {
        Ok(document) => print(&format!("{document}\n")),
        Err(error) => {
            say(&format_args!("internal error: {error}"));
            FailureClass::Internal.exit_code()
        }
    }
}

fn table(facts: &HostFacts) -> String {
    let mut text = format!(
        "kernel  {}\ncpu     {} ({} online)\nthp     {}\n",
        facts.kernel,
        facts.cpu,
        facts.cpus,
        facts.thp.as_deref().unwrap_or("not there"),
    );
    for pool in &facts.pools {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "pool    {} pages: {} in all, {} free, {} of those reserved",
            format_size(pool.page_bytes),
            pool.total,
            pool.free,
            pool.reserved,
        );
    }
    text
}
