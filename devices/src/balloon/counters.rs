//! What the device counted: bytes reported, zeroed and released are three
//! different things, and never mixed up.

use serde::{Deserialize, Serialize};

/// A reading of the counters. All cumulative since the device was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersSnapshot {
    /// Reporting buffers completed.
    pub reports: u64,
    /// Bytes of guest RAM the guest reported free.
    pub reported_bytes: u64,
    /// Bytes of those that were made to read zero.
    pub zeroed_bytes: u64,
    /// Bytes of those that went back to the host.
    pub released_bytes: u64,
    /// Bytes promised zero through a used length.
    pub promised_bytes: u64,
    /// 4 KiB pages the guest put into the balloon.
    pub inflated_pages: u64,
    /// 4 KiB pages the guest took out of the balloon.
    pub deflated_pages: u64,
    /// Bytes of inflated pages that went back to the host.
    pub inflate_released_bytes: u64,
    /// Chains that were malformed; each was completed with length 0.
    pub malformed_chains: u64,
    /// Ranges or pages named by the guest that are not guest RAM.
    pub not_ram: u64,
    /// Ranges the host could not make zero; nothing was promised of them.
    pub zero_failures: u64,
}
