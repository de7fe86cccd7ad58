//! Runs a guest on the KVM of the machine this program runs on, which may
//! itself be an emulated one.

use crate::config::Config;
use crate::host_facts;
use crate::memory::pools::pools;
use crate::results::{HostKind, RunResults};
use crate::run_io::RunIo;

/// Set to `emulated` by the agent for the runs it starts.
pub const HOST_KIND_VARIABLE: &str = "AEROSTAT_HOST_KIND";

/// Which kind of host this program runs on. An inner run leaves messages for
/// people to the outer one.
#[must_use]
pub fn kind() -> HostKind {
    kind_from(std::env::var_os(HOST_KIND_VARIABLE).as_deref())
}

fn kind_from(value: Option<&std::ffi::OsStr>) -> HostKind {
    if value.is_some_and(|value| value == "emulated") {
        HostKind::Emulated
    } else {
        HostKind::Native
    }
}

/// Runs one guest.
pub fn run(config: &Config, io: RunIo) -> RunResults {
    let kind = kind();
    crate::run::run(config, kind, host_facts::gather(kind, pools()), io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_agents_word_makes_a_host_emulated() {
        assert_eq!(kind_from(None), HostKind::Native);
        assert_eq!(kind_from(Some("native".as_ref())), HostKind::Native);
        assert_eq!(kind_from(Some("emulated".as_ref())), HostKind::Emulated);
    }
}
