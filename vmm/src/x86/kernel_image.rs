//! Reads a kernel into guest memory: bzImage, or ELF with a PVH entry.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use linux_loader::bootparam::setup_header;
use linux_loader::elf::{self, Elf64_Ehdr, Elf64_Phdr};
use linux_loader::loader::elf::PvhBootCapability;
use linux_loader::loader::{self, BzImage, Elf, KernelLoader};
use thiserror::Error;
use vm_memory::{ByteValued, GuestAddress, GuestMemoryMmap};

use super::address_map::low_ram_end;
use super::command_line::LINUX_MAX;
use super::cpu_state::EntryState;
use super::layout::HIGH_RAM_START;

/// Magic number at [`BZIMAGE_MAGIC_AT`], "HdrS" (Documentation/arch/x86/boot.rst).
const BZIMAGE_MAGIC: u32 = 0x5372_6448;
const BZIMAGE_MAGIC_AT: u64 = 0x202;
/// First protocol version with `xloadflags`, and so with a 64-bit entry.
const VERSION_64_BIT: u16 = 0x020c;
/// `XLF_KERNEL_64`: there is a 64-bit entry, at [`ENTRY_64_BIT`].
const XLF_KERNEL_64: u16 = 1 << 0;
const ENTRY_64_BIT: u64 = 0x200;

/// A kernel in guest memory.
#[derive(Debug)]
pub struct LoadedKernel {
    /// How it is entered.
    pub entry: EntryState,
    /// The header of a bzImage, which its boot parameters start from.
    pub header: Option<setup_header>,
    /// First address past what it needs to start; an initrd lies higher.
    pub end: u64,
    /// Highest address of an initrd's last byte.
    pub initrd_addr_max: u64,
    /// Longest command line it takes, without the terminating zero.
    pub cmdline_max: u64,
}

/// Why a kernel cannot be booted.
#[derive(Debug, Error)]
pub enum KernelImageError {
    /// It cannot be read.
    #[error("kernel.image {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It is something else, or broken.
    #[error("kernel.image {path}: {reason}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Guest RAM is too small for it.
    #[error(
        "kernel.image {path}: needs guest RAM up to {} MiB, and memory.size gives {} MiB",
        need.div_ceil(1 << 20), have >> 20
    )]
    TooLittleRam {
        /// The file.
        path: PathBuf,
        /// First address past what it needs.
        need: u64,
        /// First address past guest RAM.
        have: u64,
    },
}

/// Reads the kernel at `path` into `memory`.
///
/// # Errors
/// [`KernelImageError`], one line with the path and what is wrong.
pub fn load(path: &Path, memory: &GuestMemoryMmap) -> Result<LoadedKernel, KernelImageError> {
    let read = |source| KernelImageError::Read {
        path: path.to_path_buf(),
        source,
    };
    // A directory or a FIFO must not be opened and waited for.
    let metadata = path.metadata().map_err(read)?;
    if !metadata.is_file() {
        return Err(bad(path, "is not a regular file"));
    }
    let file = File::open(path).map_err(read)?;
    let mut image = Image {
        path,
        file,
        len: metadata.len(),
        ram_end: low_ram_end(memory),
    };
    if image.read_at::<4>(0).map_err(read)? == *b"\x7fELF" {
        image.load_elf(memory)
    } else if image.read_at(BZIMAGE_MAGIC_AT).map_err(read)? == BZIMAGE_MAGIC.to_le_bytes() {
        image.load_bzimage(memory)
    } else {
        Err(bad(path, "is neither a bzImage nor an ELF kernel"))
    }
}

fn bad(path: &Path, reason: impl Into<String>) -> KernelImageError {
    KernelImageError::Bad {
        path: path.to_path_buf(),
        reason: reason.into(),
    }
}

struct Image<'a> {
    path: &'a Path,
    file: File,
    len: u64,
    ram_end: u64,
}

impl Image<'_> {
    /// `N` bytes at `offset`, zeros where the file is shorter.
    fn read_at<const N: usize>(&mut self, offset: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.seek(SeekFrom::Start(offset))?;
        let mut left = bytes.as_mut_slice();
        while !left.is_empty() {
            match self.file.read(left) {
                Ok(0) => break,
                Ok(n) => left = left.get_mut(n..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn bad(&self, reason: impl Into<String>) -> KernelImageError {
        bad(self.path, reason)
    }

    fn check_len(&self, need: u64) -> Result<(), KernelImageError> {
        if need > self.len {
            return Err(self.bad(format!(
                "is truncated: its header speaks of {need} bytes, and it has {}",
                self.len
            )));
        }
        Ok(())
    }

    fn check_ram(&self, need: u64) -> Result<(), KernelImageError> {
        if need > self.ram_end {
            return Err(KernelImageError::TooLittleRam {
                path: self.path.to_path_buf(),
                need,
                have: self.ram_end,
            });
        }
        Ok(())
    }

    fn load_bzimage(&mut self, memory: &GuestMemoryMmap) -> Result<LoadedKernel, KernelImageError> {
        let header: setup_header = self.read_struct(0x1f1)?;
        let (version, xloadflags) = (header.version, header.xloadflags);
        if version < VERSION_64_BIT || xloadflags & XLF_KERNEL_64 == 0 {
            return Err(self.bad(format!(
                "has no 64-bit entry (boot protocol {}.{:02}): use an x86-64 kernel",
                version >> 8,
                version & 0xff
            )));
        }
        // 0 means 4, for kernels older than the protocol.
        let setup_sectors = match header.setup_sects {
            0 => 4,
            n => u64::from(n),
        };
        // Paragraphs of 16 bytes.
        let protected_mode_bytes = u64::from(header.syssize) * 16;
        self.check_len((setup_sectors + 1) * 512 + protected_mode_bytes)?;
        // Where it unpacks itself, with all the room it needs for that.
        let unpacked_end = header
            .pref_address
            .saturating_add(u64::from(header.init_size));
        self.check_ram(unpacked_end)?;

        let high = Some(GuestAddress(HIGH_RAM_START));
        let loaded =
            BzImage::load(memory, None, &mut self.file, high).map_err(|e| self.broken(e))?;
        self.check_ram(loaded.kernel_end)?;
        Ok(LoadedKernel {
            entry: EntryState::Linux64(loaded.kernel_load.0.saturating_add(ENTRY_64_BIT)),
            header: loaded.setup_header,
            end: unpacked_end.max(loaded.kernel_end),
            initrd_addr_max: u64::from(header.initrd_addr_max),
            cmdline_max: u64::from(header.cmdline_size),
        })
    }

    fn load_elf(&mut self, memory: &GuestMemoryMmap) -> Result<LoadedKernel, KernelImageError> {
        let header: Elf64_Ehdr = self.read_struct(0)?;
        if header.e_ident.get(elf::EI_CLASS) != Some(&ELF_CLASS_64) {
            return Err(self.bad("is a 32-bit ELF: use an x86-64 kernel"));
        }
        if header.e_type != ELF_TYPE_EXEC {
            return Err(self.bad("is an ELF file, but not a kernel: its type is not EXEC"));
        }
        let mut segments = Vec::new();
        for n in 0..u64::from(header.e_phnum) {
            let at = header.e_phoff.saturating_add(n * PROGRAM_HEADER_BYTES);
            self.check_len(at.saturating_add(PROGRAM_HEADER_BYTES))?;
            let segment: Elf64_Phdr = self.read_struct(at)?;
            if segment.p_type == elf::PT_LOAD {
                self.check_len(segment.p_offset.saturating_add(segment.p_filesz))?;
                let size = segment.p_memsz.max(segment.p_filesz);
                let end = segment.p_paddr.saturating_add(size);
                self.check_ram(end)?;
                segments.push(segment.p_paddr..end);
            }
        }
        let high = Some(GuestAddress(HIGH_RAM_START));
        let loaded = Elf::load(memory, None, &mut self.file, high).map_err(|e| self.broken(e))?;
        let PvhBootCapability::PvhEntryPresent(entry) = loaded.pvh_boot_cap else {
            return Err(self.bad(
                "is an ELF without a PVH entry: build it with CONFIG_PVH=y, or use its bzImage",
            ));
        };
        if !segments.iter().any(|segment| segment.contains(&entry.0)) {
            let entry = entry.0;
            return Err(self.bad(format!(
                "is corrupt: its PVH entry {entry:#x} is in none of its segments"
            )));
        }
        Ok(LoadedKernel {
            entry: EntryState::Pvh(entry.0),
            header: None,
            end: loaded.kernel_end,
            // PVH sets no limit; below the hole is where an initrd goes anyway.
            initrd_addr_max: u64::from(u32::MAX),
            cmdline_max: LINUX_MAX,
        })
    }

    fn read_struct<T: ByteValued + Default>(&mut self, at: u64) -> Result<T, KernelImageError> {
        let mut value = T::default();
        let read = self
            .file
            .seek(SeekFrom::Start(at))
            .and_then(|_| self.file.read_exact(value.as_mut_slice()));
        match read {
            Ok(()) => Ok(value),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.bad("is truncated in its header"))
            }
            Err(source) => Err(KernelImageError::Read {
                path: self.path.to_path_buf(),
                source,
            }),
        }
    }

    /// Says what the loader could not do; its texts begin with a heading that
    /// says nothing.
    fn broken(&self, error: loader::Error) -> KernelImageError {
        let text = match &error {
            loader::Error::Elf(inner) => inner.to_string(),
            loader::Error::Bzimage(inner) => inner.to_string(),
            other => other.to_string(),
        };
        let text = text.trim_start_matches("Kernel Loader: ").to_lowercase();
        self.bad(format!("is corrupt: {text}"))
    }
}

/// `ELFCLASS64`.
const ELF_CLASS_64: u8 = 2;
/// `ET_EXEC`, linked to a fixed address, as a kernel is and no shared object.
const ELF_TYPE_EXEC: u16 = 2;
/// Size of a program header of 64-bit ELF.
const PROGRAM_HEADER_BYTES: u64 = 56;

#[cfg(test)]
#[path = "kernel_image_tests.rs"]
mod tests;
