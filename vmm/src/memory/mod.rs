//! Guest RAM: reserved, mapped, populated, and made to read zero.
//!
//! Read it in this order: [`layout`] (where RAM lies), `mapping` (what backs
//! it), [`guest_ram`] (how it comes and goes), `residency` (what is there at
//! all), `proof_of_zero` (how a range is made zero, and why that can be
//! promised), `self_test` (why the calls are trusted).
//!
//! | backing | mapping | whole backing pages are discarded by | parts of one, and `zero` policy |
//! |---|---|---|---|
//! | `hugetlb` 2M, 1G | private anonymous `MAP_HUGETLB` | `MADV_DONTNEED` | zeros stored; absent pages left alone |
//! | `hugetlb`, `shared` | memfd `MFD_HUGETLB` | hole punch, and a new reservation | zeros stored where mapped, hole punch elsewhere |
//! | `thp`, `pages` | private anonymous | `MADV_DONTNEED` (4 KiB) | zeros stored; absent pages left alone |
//! | `thp`, `pages`, `shared` | memfd | hole punch (4 KiB) | zeros stored where mapped, hole punch elsewhere |

mod byte_size;
pub mod error;
pub mod guest_ram;
mod host_nodes;
mod host_total;
pub mod layout;
mod mapping;
mod piece;
pub mod pools;
mod prefault;
mod proof_of_zero;
mod residency;
mod self_test;

pub use byte_size::ByteSize;
pub use error::MemoryError;
pub use guest_ram::GuestRam;

#[cfg(test)]
mod tests;
