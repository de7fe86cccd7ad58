//! Every way a kernel can be wrong, against small images made here.

use std::fs;

use vm_memory::Bytes;

use super::*;

const RAM: usize = 32 << 20;

/// Writes `bytes` to a file, loads it, and removes it again.
fn load_bytes(name: &str, bytes: &[u8]) -> Result<LoadedKernel, KernelImageError> {
    load_into(name, bytes, RAM).0
}

fn load_into(
    name: &str,
    bytes: &[u8],
    ram: usize,
) -> (Result<LoadedKernel, KernelImageError>, GuestMemoryMmap) {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), ram)]).unwrap();
    let path = std::env::temp_dir().join(format!("kernel-{name}-{}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let loaded = load(&path, &memory);
    fs::remove_file(&path).unwrap();
    (loaded, memory)
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// One setup sector after the boot sector, and 64 bytes of "kernel".
fn bzimage() -> Vec<u8> {
    let mut image = vec![0; 1024];
    image.extend([0xcc; 64]);
    put(&mut image, 0x1f1, &[1]); // setup_sects
    put(&mut image, 0x1f4, &4_u32.to_le_bytes()); // syssize
    put(&mut image, 0x202, b"HdrS");
    put(&mut image, 0x206, &0x020f_u16.to_le_bytes()); // version
    put(&mut image, 0x211, &[1]); // loadflags: LOADED_HIGH
    put(&mut image, 0x214, &0x10_0000_u32.to_le_bytes()); // code32_start
    put(&mut image, 0x22c, &0x7fff_ffff_u32.to_le_bytes()); // initrd_addr_max
    put(&mut image, 0x236, &1_u16.to_le_bytes()); // xloadflags: XLF_KERNEL_64
    put(&mut image, 0x238, &2047_u32.to_le_bytes()); // cmdline_size
    put(&mut image, 0x258, &0x100_0000_u64.to_le_bytes()); // pref_address
    put(&mut image, 0x260, &0x10_0000_u32.to_le_bytes()); // init_size
    image
}

/// One loaded segment at 16 MiB, and a note with a PVH entry if asked for.
fn elf(note: bool) -> Vec<u8> {
    let mut image = vec![0; 64 + 2 * 56];
    put(&mut image, 0, b"\x7fELF\x02\x01\x01");
    put(&mut image, 16, &2_u16.to_le_bytes()); // e_type: ET_EXEC
    put(&mut image, 24, &0x100_0000_u64.to_le_bytes()); // e_entry
    put(&mut image, 32, &64_u64.to_le_bytes()); // e_phoff
    put(&mut image, 54, &56_u16.to_le_bytes()); // e_phentsize
    put(&mut image, 56, &2_u16.to_le_bytes()); // e_phnum
    let mut segment = |at: usize, kind: u32, offset: u64, paddr: u64, size: u64| {
        put(&mut image, at, &kind.to_le_bytes());
        put(&mut image, at + 8, &offset.to_le_bytes());
        put(&mut image, at + 24, &paddr.to_le_bytes());
        put(&mut image, at + 32, &size.to_le_bytes());
        put(&mut image, at + 40, &size.to_le_bytes());
    };
    segment(64, 1, 176, 0x100_0000, 16); // PT_LOAD
    let kind = if note { 4 } else { 0 }; // PT_NOTE or PT_NULL
    segment(120, kind, 192, 0, 20);
    image.extend([0xcc; 16]);
    image.extend(4_u32.to_le_bytes());
    image.extend(4_u32.to_le_bytes());
    image.extend(18_u32.to_le_bytes()); // XEN_ELFNOTE_PHYS32_ENTRY
    image.extend(b"Xen\0");
    image.extend(0x100_0008_u32.to_le_bytes());
    image
}

#[test]
fn a_bzimage_is_entered_0x200_past_its_load_address() {
    let (kernel, memory) = load_into("good-bz", &bzimage(), RAM);
    let kernel = kernel.unwrap();
    assert_eq!(kernel.entry, EntryState::Linux64(0x10_0200));
    assert_eq!(kernel.end, 0x110_0000, "where it unpacks itself");
    assert_eq!(kernel.initrd_addr_max, 0x7fff_ffff);
    assert_eq!(kernel.cmdline_max, 2047);
    assert_eq!(
        memory.read_obj::<u64>(GuestAddress(0x10_0000)).unwrap(),
        0xcccc_cccc_cccc_cccc
    );
}

#[test]
fn an_elf_is_entered_at_its_pvh_note() {
    let (kernel, memory) = load_into("good-elf", &elf(true), RAM);
    let kernel = kernel.unwrap();
    assert_eq!(kernel.entry, EntryState::Pvh(0x100_0008));
    assert_eq!(kernel.end, 0x100_0010);
    assert!(kernel.header.is_none());
    assert_eq!(
        memory.read_obj::<u64>(GuestAddress(0x100_0000)).unwrap(),
        0xcccc_cccc_cccc_cccc
    );
}

#[test]
fn each_wrong_kernel_is_named_with_its_reason() {
    let edit = |mut image: Vec<u8>, at: usize, bytes: &[u8]| {
        put(&mut image, at, bytes);
        image
    };
    let cut = |mut image: Vec<u8>, len: usize| {
        image.truncate(len);
        image
    };
    #[rustfmt::skip]
    let table = [
        ("empty",        vec![],                                     "neither a bzImage nor an ELF"),
        ("text",         b"#!/bin/sh\n".repeat(100),                 "neither a bzImage nor an ELF"),
        ("bz-cut",       cut(bzimage(), 1040),                       "speaks of 1088 bytes, and it has 1040"),
        ("bz-header",    cut(bzimage(), 0x210),                      "truncated in its header"),
        ("bz-32-bit",    edit(bzimage(), 0x236, &[0, 0]),            "no 64-bit entry (boot protocol 2.15)"),
        ("bz-old",       edit(bzimage(), 0x206, &[6, 2]),            "no 64-bit entry (boot protocol 2.06)"),
        ("bz-zimage",    edit(bzimage(), 0x211, &[0]),               "corrupt"),
        ("bz-low",       edit(bzimage(), 0x214, &[0, 0, 1, 0]),      "corrupt"),
        ("bz-large",     edit(bzimage(), 0x260, &[0, 0, 0, 0x10]),   "up to 272 MiB, and memory.size gives 32 MiB"),
        ("bz-overflow",  edit(bzimage(), 0x258, &[0xff; 8]),         "memory.size gives 32 MiB"),
        ("elf-no-note",  elf(false),                                 "without a PVH entry"),
        ("elf-shared",   edit(elf(true), 16, &[3]),                  "not a kernel"),
        ("elf-32-bit",   edit(elf(true), 4, &[1]),                   "32-bit ELF"),
        ("elf-big",      edit(elf(true), 5, &[2]),                   "corrupt"),
        ("elf-header",   cut(elf(true), 40),                         "truncated in its header"),
        ("elf-cut",      cut(elf(true), 180),                        "speaks of 192 bytes, and it has 180"),
        ("elf-segments", edit(elf(true), 56, &[0xff, 0xff]),         "truncated"),
        ("elf-far",      edit(elf(true), 95, &[1]),                  "memory.size gives 32 MiB"),
        ("elf-huge",     edit(elf(true), 96, &[0xff; 8]),            "truncated"),
        ("elf-low",      edit(elf(true), 24, &[0; 8]),               "corrupt: invalid entry address"),
        ("elf-past-end", edit(elf(true), 208, &[0x10, 0, 0, 1]),     "PVH entry 0x1000010 is in none"),
        ("elf-nowhere",  edit(elf(true), 208, &[0xff; 4]),           "PVH entry 0xffffffff is in none"),
    ];
    for (name, image, reason) in table {
        let message = load_bytes(name, &image).unwrap_err().to_string();
        assert!(message.starts_with("kernel.image /"), "{name}: {message}");
        assert!(message.contains(reason), "{name}: {message}");
        assert!(!message.contains('\n'), "{name}: {message}");
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
    let message = |path: &str| load(Path::new(path), &memory).unwrap_err().to_string();
    assert!(message("/nonexistent/vmlinux").contains("No such file"));
    assert_eq!(message("/"), "kernel.image /: is not a regular file");
    assert_eq!(
        message("/dev/zero"),
        "kernel.image /dev/zero: is not a regular file"
    );
}
