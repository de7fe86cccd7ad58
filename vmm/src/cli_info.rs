//! `aerostat info`.

use std::fmt::Write;

use vmm::config::units::format_size;
use vmm::host::HostChoice;
use vmm::host::choose::{self, Chosen, Places};
use vmm::host_facts;
use vmm::memory::pools::pools;
use vmm::outcome::FailureClass;
use vmm::results::{HostFacts, HostKind};

use crate::talk::{print, say};

/// Prints the facts of this host; returns the exit code.
pub(crate) fn run(json: bool) -> u8 {
    let choice = choose::decide(HostChoice::Auto, &choose::look(&Places::default()));
    let (kind, would_run) = match choice {
        Ok((Chosen::Native, why)) => (HostKind::Native, why),
        Ok((Chosen::Emulated(_), why)) => (HostKind::Emulated, why),
        // Nothing runs here at all; the facts are this machine's all the same.
        Err(verdict) => (HostKind::Native, verdict.to_string()),
    };
    let facts = host_facts::gather(kind, pools());
    if !json {
        return print(&format!("{would_run}\n{}", table(&facts)));
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
