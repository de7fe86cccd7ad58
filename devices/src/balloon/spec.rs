//! Numbers of the balloon device from the specification (virtio 1.3, 5.5) and
//! from the proposals for DEVICE_INIT_REPORTED and DEVICE_INIT_ON_INFLATE
//! (virtio-spec issues 244 and 242).

use crate::virtio::features::{Features, RING_EVENT_IDX, VERSION_1};

/// Device type (5.5.1). Equal to `VIRTIO_ID_BALLOON`.
pub(crate) const DEVICE_ID: u32 = virtio_bindings::virtio_ids::VIRTIO_ID_BALLOON;

/// log2 of the unit of page numbers, whatever the guest's page size (5.5.6).
pub(crate) const PFN_SHIFT: u32 = 12;
/// Bytes of one page number: a 32-bit little-endian word (5.5.6.1).
pub(crate) const PFN_BYTES: usize = 4;

/// The driver waits for the answer to a deflate request before it uses a page
/// again (5.5.3).
pub(crate) const MUST_TELL_HOST: Features = Features::bit(0);
/// Statistics queue.
pub(crate) const STATS_VQ: Features = Features::bit(1);
/// The guest may deflate by itself when it runs out of memory.
pub(crate) const DEFLATE_ON_OOM: Features = Features::bit(2);
/// Free page hinting queue.
pub(crate) const FREE_PAGE_HINT: Features = Features::bit(3);
/// The driver says what it fills free pages with.
pub(crate) const PAGE_POISON: Features = Features::bit(4);
/// Free page reporting queue.
pub(crate) const PAGE_REPORTING: Features = Features::bit(5);
/// Reported pages read zero up to the used length (virtio-spec issue 244).
pub(crate) const DEVICE_INIT_REPORTED: Features = Features::bit(6);
/// Inflate requests end in a bitmap for the device to write: which of their
/// pages read zero until they are deflated (virtio-spec issue 242).
pub(crate) const DEVICE_INIT_ON_INFLATE: Features = Features::bit(7);

/// Every feature bit this device may offer, by name.
pub(crate) const NAMES: [(Features, &str); 10] = [
    (MUST_TELL_HOST, "MUST_TELL_HOST"),
    (STATS_VQ, "STATS_VQ"),
    (DEFLATE_ON_OOM, "DEFLATE_ON_OOM"),
    (FREE_PAGE_HINT, "FREE_PAGE_HINT"),
    (PAGE_POISON, "PAGE_POISON"),
    (PAGE_REPORTING, "PAGE_REPORTING"),
    (DEVICE_INIT_REPORTED, "DEVICE_INIT_REPORTED"),
    (DEVICE_INIT_ON_INFLATE, "DEVICE_INIT_ON_INFLATE"),
    (RING_EVENT_IDX, "RING_EVENT_IDX"),
    (VERSION_1, "VERSION_1"),
];

/// Indices in either numbering: inflate, deflate, stats, hinting, reporting
/// (5.5.2).
pub(crate) const QUEUES: usize = 5;
/// Inflate and deflate always exist, at 0 and 1; the others are optional.
pub(crate) const FIRST_OPTIONAL_QUEUE: usize = 2;

/// Size of every queue. Linux needs at least 32 entries for reporting, or its
/// driver does not probe; it fills up to 256 page numbers into one inflate
/// request, but waits for each.
pub(crate) const QUEUE_SIZE: u16 = 256;

/// num_pages: the size the device asks for, in 4 KiB pages (5.5.4).
pub(crate) const CONFIG_NUM_PAGES: usize = 0;
/// actual: the size the driver says it has.
pub(crate) const CONFIG_ACTUAL: usize = 4;
/// free_page_hint_cmd_id: which hints the device asks for.
pub(crate) const CONFIG_CMD_ID: usize = 8;
/// poison_val: what the driver fills free pages with.
pub(crate) const CONFIG_POISON: usize = 12;
/// Length of the configuration space. A driver looks only at what belongs to
/// the features it accepted, so there is no need for a shorter one.
pub(crate) const CONFIG_LEN: usize = 16;

/// Bytes of one statistic: a 16-bit tag and a 64-bit value (5.5.6.3).
pub(crate) const STAT_BYTES: usize = 10;
/// What is read of a buffer of statistics: 409 of them; Linux sends 16.
pub(crate) const STATS_BYTES_MAX: usize = 4096;

/// Command id: no hints are wanted, or there are no more (5.5.6.5).
pub(crate) const CMD_ID_STOP: u32 = 0;
/// Command id: the device has no more use for hinted pages.
pub(crate) const CMD_ID_DONE: u32 = 1;
/// The lowest command id that stands for a run.
pub(crate) const CMD_ID_FIRST: u32 = 2;
/// Bytes of a command in the hint queue: a 32-bit little-endian word.
pub(crate) const CMD_ID_BYTES: usize = 4;
