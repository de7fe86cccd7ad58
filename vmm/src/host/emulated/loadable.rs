//! The part of an ELF program that is needed to run it.
//!
//! A developer's build carries debug information many times its code; the
//! emulated host would unpack all of it on an emulated CPU at each boot.

/// Offsets in the ELF-64 file header (System V gABI, "ELF Header").
mod ehdr {
    pub(super) const MAGIC: &[u8] = b"\x7fELF\x02\x01";
    pub(super) const PHOFF: usize = 0x20;
    pub(super) const SHOFF: usize = 0x28;
    pub(super) const PHENTSIZE: usize = 0x36;
    pub(super) const PHNUM: usize = 0x38;
    pub(super) const SHNUM: usize = 0x3c;
    pub(super) const SHSTRNDX: usize = 0x3e;
    pub(super) const SIZE: usize = 0x40;
}

/// Offsets in an ELF-64 program header.
mod phdr {
    pub(super) const OFFSET: usize = 0x08;
    pub(super) const FILESZ: usize = 0x20;
}

/// Program header type of a requested interpreter (dynamic loader).
const PT_INTERP: u32 = 3;

/// Cuts everything behind the last segment off, and the section table with it.
/// What is no little-endian ELF-64 program is left alone.
pub(super) fn cut_to_segments(program: &mut Vec<u8>) {
    let Some(end) = end_of_segments(program) else {
        return;
    };
    program.truncate(end);
    let zeroed = [(ehdr::SHOFF, 8), (ehdr::SHNUM, 2), (ehdr::SHSTRNDX, 2)];
    for (at, length) in zeroed {
        if let Some(field) = program.get_mut(at..at + length) {
            field.fill(0);
        }
    }
}

/// Whether the program asks for a dynamic loader, which no emulated host has.
pub(super) fn wants_loader(program: &[u8]) -> bool {
    segments(program).is_some_and(|mut segments| {
        segments.any(|segment| number::<4>(segment, 0) == Some(u64::from(PT_INTERP)))
    })
}

fn end_of_segments(program: &[u8]) -> Option<usize> {
    let mut end = u64::try_from(ehdr::SIZE).ok()?;
    let table = number::<8>(program, ehdr::PHOFF)?;
    let mut count = 0;
    for segment in segments(program)? {
        let offset = number::<8>(segment, phdr::OFFSET)?;
        end = end.max(offset.checked_add(number::<8>(segment, phdr::FILESZ)?)?);
        count += u64::try_from(segment.len()).ok()?;
    }
    let end = usize::try_from(end.max(table.checked_add(count)?)).ok()?;
    (end <= program.len()).then_some(end)
}

fn segments(program: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    if !program.starts_with(ehdr::MAGIC) {
        return None;
    }
    let size = usize::try_from(number::<2>(program, ehdr::PHENTSIZE)?).ok()?;
    let count = usize::try_from(number::<2>(program, ehdr::PHNUM)?).ok()?;
    let start = usize::try_from(number::<8>(program, ehdr::PHOFF)?).ok()?;
    let table = program.get(start..start.checked_add(size.checked_mul(count)?)?)?;
    (size > 0).then(|| table.chunks_exact(size))
}

/// The little-endian number of `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(N)?)?;
    Some(
        field
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cut_program_is_smaller_and_still_runs() {
        let mut program = fs::read("/proc/self/exe").unwrap();
        let before = program.len();
        cut_to_segments(&mut program);
        assert!(program.len() < before, "a test program carries symbols");

        let path = std::env::temp_dir().join(format!("aerostat-cut-{}", std::process::id()));
        fs::write(&path, &program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(&path).arg("--help").output();
        fs::remove_file(&path).unwrap();
        assert!(output.unwrap().status.success());
    }

    #[test]
    fn static_and_dynamic_programs_are_told_apart() {
        assert!(
            !wants_loader(&fs::read("/proc/self/exe").unwrap()),
            "everything here is linked statically"
        );
        if let Ok(shell) = fs::read("/bin/sh") {
            assert!(wants_loader(&shell));
        }
    }

    proptest! {
        #[test]
        fn anything_else_is_left_alone_or_cut_within_itself(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400), elf in any::<bool>())
        {
            if elf {
                let head = ehdr::MAGIC.len().min(bytes.len());
                bytes[..head].copy_from_slice(&ehdr::MAGIC[..head]);
            }
            let before = bytes.clone();
            cut_to_segments(&mut bytes);
            prop_assert!(bytes.len() <= before.len());
            if !elf {
                prop_assert_eq!(bytes, before);
            }
        }
    }
}
