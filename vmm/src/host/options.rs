//! What the user can say about the host.

use std::path::PathBuf;

use crate::config::{Backing, Config, PageSize};

const GIB: u64 = 1 << 30;
/// RAM of a session's emulated host, if nobody says.
const SESSION_MEMORY: u64 = 4 * GIB;
/// RAM of an emulated host beside the guest's: kernel, VMM, files.
const BESIDE_GUEST: u64 = GIB;
/// CPUs of an emulated host, if nobody says.
const CPUS: u8 = 2;

/// Which host is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostChoice {
    /// Native where this machine's KVM can run a guest, else emulated.
    #[default]
    Auto,
    /// This machine's KVM, whatever it is.
    Native,
    /// QEMU, whatever this machine has.
    Emulated,
}

/// What an emulated host is made of; a native one needs none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Its kernel. `None` takes `host.kernel` of the configuration, and then `kernel.image`.
    pub host_kernel: Option<PathBuf>,
    /// The static `aerostat` binary that becomes its init. `None` is this program.
    pub agent: Option<PathBuf>,
    /// Its RAM in bytes. `None` takes `host.memory` of the configuration, and then
    /// what the guest needs; a session takes 4 GiB.
    pub memory: Option<u64>,
    /// Its CPUs. `None` is 2.
    pub cpus: Option<u8>,
    /// 1 GiB pages set aside when it boots. A kernel without CONFIG_CONTIG_ALLOC
    /// can make none later; a single run sets aside what its guest takes.
    pub gigantic_pages: u64,
}

/// What can be said about one run in a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// Pages of the guest's hugetlb pool on an emulated host. `None` is exactly
    /// what guest RAM takes; fewer make a pool that is too small on purpose.
    pub pool_pages: Option<u64>,
}

impl HostOptions {
    /// Completed with what the configuration says.
    pub(super) fn completed_by(&self, config: &Config) -> Self {
        let kernel = config
            .host
            .kernel
            .clone()
            .unwrap_or_else(|| config.kernel.image.clone());
        Self {
            host_kernel: self.host_kernel.clone().or(Some(kernel)),
            agent: self.agent.clone(),
            memory: self
                .memory
                .or(config.host.memory)
                .or(Some(memory_for(config))),
            cpus: self.cpus,
            gigantic_pages: self.gigantic_pages.max(gigantic_pages_for(config)),
        }
    }

    pub(super) fn agent_path(&self) -> PathBuf {
        self.agent
            .clone()
            .unwrap_or_else(|| "/proc/self/exe".into())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(SESSION_MEMORY)
    }

    pub(super) fn cpu_count(&self) -> u8 {
        self.cpus.unwrap_or(CPUS)
    }
}

/// RAM of an emulated host that runs this guest only.
///
/// Pages of 1 GiB need whole aligned gigabytes. The first holds the kernel, the
/// last what it allocates at boot, and one more the initrd until it is
/// unpacked, so three cannot become such pages when the kernel starts.
fn memory_for(config: &Config) -> u64 {
    let unusable = if gigantic_pages_for(config) > 0 {
        2 * GIB
    } else {
        0
    };
    config
        .memory
        .size
        .saturating_add(BESIDE_GUEST)
        .saturating_add(unusable)
}

fn gigantic_pages_for(config: &Config) -> u64 {
    let gigantic =
        config.memory.backing == Backing::Hugetlb && config.memory.page == PageSize::Size1G;
    if gigantic {
        config.memory.size.div_ceil(GIB)
    } else {
        0
    }
}
