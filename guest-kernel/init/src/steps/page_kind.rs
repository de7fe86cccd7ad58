//! Which pages a mapping asks the kernel for.

use std::fmt;
use std::str::FromStr;

use super::size::{format_size, parse_size};

/// Base page of x86-64, in bytes.
pub(crate) const BASE_PAGE_BYTES: u64 = 4096;
/// What a page middle directory entry maps on x86-64, in bytes.
pub(crate) const PMD_PAGE_BYTES: u64 = 2 << 20;
/// What a page upper directory entry maps on x86-64, in bytes.
pub(crate) const PUD_PAGE_BYTES: u64 = 1 << 30;

/// Which pages a mapping asks the kernel for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Base pages: `MADV_NOHUGEPAGE`.
    Small,
    /// Transparent huge pages of 2 MiB: `MADV_HUGEPAGE`.
    Thp,
    /// Transparent huge pages of this many bytes, below 2 MiB.
    Mthp(u64),
    /// hugetlb pages of this many bytes, surplus ones where the pool is empty.
    Hugetlb(u64),
    /// Shared anonymous memory in folios of this many bytes.
    Shmem(u64),
    /// A mapped memfd in folios of this many bytes: base pages or 2 MiB.
    Memfd(u64),
}

impl PageKind {
    /// Whether the memory is shared, and so no slice of bytes to Rust.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Shmem(_) | Self::Memfd(_))
    }

    /// Size of the pages asked for, in bytes.
    pub(crate) fn page_bytes(self) -> u64 {
        match self {
            Self::Small => BASE_PAGE_BYTES,
            Self::Thp => PMD_PAGE_BYTES,
            Self::Mthp(bytes) | Self::Hugetlb(bytes) | Self::Shmem(bytes) | Self::Memfd(bytes) => {
                bytes
            }
        }
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Small => f.write_str("small"),
            Self::Thp => f.write_str("thp"),
            Self::Mthp(bytes) => write!(f, "mthp={}", format_size(*bytes)),
            Self::Hugetlb(bytes) => write!(f, "hugetlb={}", format_size(*bytes)),
            Self::Shmem(BASE_PAGE_BYTES) => f.write_str("shmem"),
            Self::Shmem(bytes) => write!(f, "shmem={}", format_size(*bytes)),
            Self::Memfd(BASE_PAGE_BYTES) => f.write_str("memfd"),
            Self::Memfd(bytes) => write!(f, "memfd={}", format_size(*bytes)),
        }
    }
}

impl FromStr for PageKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, size) = match text.split_once('=') {
            Some((name, size)) => (name, Some(parse_size(size)?)),
            None => (text, None),
        };
        match (name, size) {
            ("small", None) => Ok(Self::Small),
            ("thp", None) => Ok(Self::Thp),
            ("mthp", Some(bytes))
                if bytes.is_power_of_two() && bytes > BASE_PAGE_BYTES && bytes < PMD_PAGE_BYTES =>
            {
                Ok(Self::Mthp(bytes))
            }
            ("mthp", _) => {
                Err("mthp needs a power of two from 8K to 1M, as in mthp=64K".to_owned())
            }
            ("hugetlb", None) => Ok(Self::Hugetlb(PMD_PAGE_BYTES)),
            ("hugetlb", Some(bytes @ (PMD_PAGE_BYTES | PUD_PAGE_BYTES))) => {
                Ok(Self::Hugetlb(bytes))
            }
            ("hugetlb", Some(_)) => Err("hugetlb pages are 2M or 1G".to_owned()),
            ("shmem", None) => Ok(Self::Shmem(BASE_PAGE_BYTES)),
            ("shmem", Some(bytes @ BASE_PAGE_BYTES..=PMD_PAGE_BYTES))
                if bytes.is_power_of_two() =>
            {
                Ok(Self::Shmem(bytes))
            }
            ("shmem", Some(_)) => Err("shmem folios are a power of two from 4K to 2M".to_owned()),
            ("memfd", None) => Ok(Self::Memfd(BASE_PAGE_BYTES)),
            ("memfd", Some(bytes @ (BASE_PAGE_BYTES | PMD_PAGE_BYTES))) => Ok(Self::Memfd(bytes)),
            ("memfd", Some(_)) => Err("memfd folios are 4K or 2M".to_owned()),
            _ => Err(format!(
                "`{text}` is no page kind; write small, thp, mthp=64K, hugetlb=2M, hugetlb=1G, \
                 shmem, shmem=64K, memfd or memfd=2M"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_their_page_sizes() {
        for (text, kind, bytes) in [
            ("small", PageKind::Small, 4096),
            ("thp", PageKind::Thp, 2 << 20),
            ("mthp=8K", PageKind::Mthp(8192), 8192),
            ("mthp=1M", PageKind::Mthp(1 << 20), 1 << 20),
            ("hugetlb", PageKind::Hugetlb(2 << 20), 2 << 20),
            ("hugetlb=1G", PageKind::Hugetlb(1 << 30), 1 << 30),
            ("shmem", PageKind::Shmem(4096), 4096),
            ("shmem=16K", PageKind::Shmem(16384), 16384),
            ("memfd", PageKind::Memfd(4096), 4096),
            ("memfd=2M", PageKind::Memfd(2 << 20), 2 << 20),
        ] {
            let parsed: PageKind = text.parse().unwrap();
            assert_eq!(parsed, kind, "{text}");
            assert_eq!(parsed.page_bytes(), bytes, "{text}");
            assert_eq!(parsed.to_string().parse(), Ok(kind), "{text}");
        }
        for text in [
            "",
            "huge",
            "thp=2M",
            "small=4K",
            "mthp",
            "mthp=4K",
            "mthp=2M",
            "mthp=24K",
            "hugetlb=4M",
            "hugetlb=",
            "shmem=4M",
            "shmem=2K",
            "shmem=12K",
            "memfd=64K",
        ] {
            assert!(text.parse::<PageKind>().is_err(), "{text}");
        }
    }
}
