//! Guest RAM, from its configuration to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use devices::balloon::guest_range::GuestRange;
use devices::balloon::host_zeroes::ZeroGuestRange;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use super::byte_size::ByteSize;
use super::error::MemoryError;
use super::host_total::HostTotal;
use super::layout;
use super::mapping::Backing;
use super::piece::{Advice, Piece};
use super::pools::{self, Pools};
use super::proof_of_zero::{DiscardProof, GuestRamZeroer};
use super::residency::Residency;
use super::{prefault, self_test};
use crate::config;
use crate::results;

/// The RAM of one guest: mapped, reserved unless overcommitted, and not
/// populated. When it and every clone of its [`guest_memory`] and [`zeroer`] are
/// gone, all of it is the host's again.
///
/// [`guest_memory`]: GuestRam::guest_memory
/// [`zeroer`]: GuestRam::zeroer
pub struct GuestRam {
    zeroer: Arc<GuestRamZeroer>,
}

impl GuestRam {
    /// Maps guest RAM and tests what zeroing it will rely on.
    ///
    /// Without `overcommit` a guest that does not fit fails here, at once, and
    /// not at a later fault.
    ///
    /// # Errors
    /// [`MemoryError`]. Nothing is left behind.
    pub fn create(config: &config::Memory) -> Result<Self, MemoryError> {
        let backing = Backing::of(config)?;
        check_fits_host(config, backing)?;
        let memory = map(config.size, backing)?;
        for region in memory.iter() {
            advise(Piece::whole(region), backing);
        }
        let mut zeroer = GuestRamZeroer {
            memory,
            backing,
            residency: Residency::of(backing),
            discard_proof: DiscardProof::None,
            this_process: None,
            reservation_lost: AtomicBool::new(false),
        };
        if let Err(error) = self_test::run(&mut zeroer) {
            return Err(not_populated(0, backing.page as u64, backing, &error));
        }
        log::debug!(
            "guest RAM: {} of {:?}, discarding proved {:?}",
            ByteSize(config.size),
            zeroer.backing,
            zeroer.discard_proof
        );
        Ok(Self {
            zeroer: Arc::new(zeroer),
        })
    }

    /// The regions, each one mapping: the host address of a region is its
    /// `as_ptr()`.
    #[must_use]
    pub fn guest_memory(&self) -> &GuestMemoryMmap {
        &self.zeroer.memory
    }

    /// Populates all of it. See [`config::Memory::prefault_threads`]. Only what
    /// was not there before is counted. `give_up` is asked before each chunk,
    /// on any of the threads.
    ///
    /// # Errors
    /// [`MemoryError::NotPopulated`] with what was populated and why it
    /// stopped: with `overcommit` the pool may be exhausted, or it was given up.
    pub fn prefault(
        &self,
        threads: Option<u16>,
        give_up: &(dyn Fn() -> bool + Sync),
    ) -> Result<results::Prefault, MemoryError> {
        let backing = self.zeroer.backing;
        prefault::populate(
            &self.zeroer.memory,
            backing.page,
            self.resident_bytes(),
            threads,
            give_up,
        )
        .map_err(|error| not_populated(self.resident_bytes(), self.size(), backing, &error))
    }

    /// Has memory behind all below `end`. Does nothing where no fault can fail; a
    /// store to a page of a pool that is not surely reserved could raise SIGBUS.
    ///
    /// # Errors
    /// [`MemoryError::NotPopulated`]: the pool is exhausted.
    pub fn make_present_below(&self, end: u64) -> Result<(), MemoryError> {
        let range = GuestRange::new(0, end.min(self.size()));
        let present = range.map_or(Ok(()), |range| self.zeroer.make_present(range));
        present.map_err(|_| self.exhausted())
    }

    /// Why stores to guest RAM fail, if they do.
    #[must_use]
    pub fn shortage(&self) -> Option<MemoryError> {
        let backing = self.zeroer.backing;
        let pool = Pools::host().pool(backing.page as u64)?;
        // What is reserved may be all for this guest.
        let left = match backing.reserved {
            true => pool.free,
            false => pools::available(&pool),
        };
        (backing.is_hugetlb() && left == 0).then(|| self.exhausted())
    }

    fn exhausted(&self) -> MemoryError {
        let error = io::Error::from_raw_os_error(libc::EFAULT);
        not_populated(
            self.resident_bytes(),
            self.size(),
            self.zeroer.backing,
            &error,
        )
    }

    /// What the balloon device acts on guest memory through.
    #[must_use]
    pub fn zeroer(&self) -> Arc<dyn ZeroGuestRange> {
        Arc::clone(&self.zeroer) as Arc<dyn ZeroGuestRange>
    }

    /// Bytes of guest RAM that have memory behind them, without swap and without
    /// the zero page. 0 if this kernel does not tell (thp and pages before Linux
    /// 6.7).
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.zeroer
            .memory
            .iter()
            .filter_map(|region| self.zeroer.present_bytes(Piece::whole(region)).ok())
            .sum()
    }

    /// Whether its pages were reserved when it was made.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.zeroer.backing.reserved
    }

    /// Bytes of a backing page: the least that goes back to the host.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.zeroer.backing.page as u64
    }

    fn size(&self) -> u64 {
        self.zeroer
            .memory
            .iter()
            .map(|region| region.size() as u64)
            .sum()
    }
}

/// Memory without a pool is not reserved by anyone, but more than there is can
/// be refused at once.
fn check_fits_host(config: &config::Memory, backing: Backing) -> Result<(), MemoryError> {
    let Some(HostTotal { total, available }) = HostTotal::read() else {
        return Ok(());
    };
    if backing.is_hugetlb() || config.overcommit {
        return Ok(());
    }
    if config.size > total {
        return Err(MemoryError::LargerThanHost {
            size: ByteSize(config.size),
            total,
            available,
        });
    }
    if config.size > available {
        log::warn!(
            "memory.size = {}: only {} MiB of the host's {} MiB are available now",
            ByteSize(config.size),
            available >> 20,
            total >> 20
        );
    }
    Ok(())
}

/// Maps every region, or none.
fn map(size: u64, backing: Backing) -> Result<GuestMemoryMmap, MemoryError> {
    let refused = |call, source| {
        if backing.is_hugetlb() {
            MemoryError::huge_pages_refused(&Pools::host(), size, backing.page as u64, call, source)
        } else {
            MemoryError::Refused {
                size: ByteSize(size),
                call,
                len: ByteSize(size),
                hint: String::new(),
                source,
            }
        }
    };
    let too_large = || refused("mmap", io::Error::from_raw_os_error(libc::ENOMEM));
    let mapped: Result<Vec<(GuestAddress, MmapRegion)>, _> = layout::ram_regions(size)
        .into_iter()
        .map(|(start, len)| {
            let len = usize::try_from(len)
                .map_err(|_| ("mmap", io::Error::from_raw_os_error(libc::ENOMEM)))?;
            Ok((start, backing.map(len)?))
        })
        .collect();
    // By now an error has unmapped the regions before it, which `refused` needs.
    let mapped = mapped.map_err(|(call, source)| refused(call, source))?;
    let regions = mapped
        .into_iter()
        .map(|(start, region)| GuestRegionMmap::new(region, start))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(too_large)?;
    GuestMemoryMmap::from_regions(regions).map_err(|_| too_large())
}

/// Advice that may be refused: it costs speed or tidiness, never safety.
fn advise(region: Piece<'_>, backing: Backing) {
    let pages = match backing.kind {
        config::Backing::Hugetlb => None,
        config::Backing::Thp => Some(Advice::HugePage),
        config::Backing::Pages => Some(Advice::NoHugePage),
    };
    for advice in pages
        .into_iter()
        .chain([Advice::DontDump, Advice::DontFork])
    {
        // A kernel without transparent huge pages knows neither advice about
        // them, which leaves small pages: what the second one asks for.
        if let Err(error) = region.advise(advice)
            && !matches!(advice, Advice::NoHugePage)
        {
            log::warn!("madvise({advice:?}) of guest RAM: {error}");
        }
    }
}

fn not_populated(done: u64, wanted: u64, backing: Backing, error: &io::Error) -> MemoryError {
    let page = backing.page as u64;
    let pool = Pools::host().pool(page).filter(|_| backing.is_hugetlb());
    let reason = match (error.raw_os_error(), pool) {
        // What MADV_POPULATE_WRITE makes of the SIGBUS an access would raise.
        (Some(libc::EFAULT), Some(pool)) => format!(
            "the pool of {} pages is exhausted: {} free, {} reserved, {} available; \
             fix: echo {} > {}, or memory.overcommit = false to fail at start",
            ByteSize(page),
            pool.free,
            pool.reserved,
            pools::available(&pool),
            pool.total
                + (wanted.saturating_sub(done) / page).saturating_sub(pools::available(&pool)),
            Pools::host().size_file(page).display()
        ),
        _ => error.to_string(),
    };
    MemoryError::NotPopulated {
        done: ByteSize(done),
        wanted: ByteSize(wanted),
        reason,
    }
}
