//! How fast a small guest boots, and how little its VMM takes.

use vmm::host::Session;

use super::guest;
use crate::Failure;
use crate::artifacts::Artifacts;

/// Boots measured; one would say little.
const BOOTS: usize = 3;

/// What booting showed.
pub(super) struct Boots {
    /// Milliseconds from exec of the VMM to the guest's init, of each boot.
    pub(super) init_ms: Vec<f64>,
    /// The largest memory of the VMM itself, beside guest RAM, in bytes.
    pub(super) vmm_rss_bytes: u64,
}

/// Boots a guest with 1 vCPU and 512 MiB on 2M pages some times.
pub(super) fn measure(session: &mut Session, built: &Artifacts) -> Result<Boots, Failure> {
    let sets = ["memory.size=512M".to_owned(), "memory.page=2M".to_owned()];
    let mut boots = Boots {
        init_ms: Vec::new(),
        vmm_rss_bytes: 0,
    };
    for _ in 0..BOOTS {
        let (results, _) = guest::run(session, built, "poweroff", &sets)?;
        let footprint = results.footprint.ok_or("the guest's init never came up")?;
        boots.init_ms.extend(results.timings.init_ms);
        boots.vmm_rss_bytes = boots.vmm_rss_bytes.max(footprint.vmm_rss_bytes);
    }
    Ok(boots)
}
