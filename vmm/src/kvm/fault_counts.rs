//! How often a vCPU faulted on guest memory, and how often that was fixed: from
//! KVM's binary statistics (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD).
//!
//! A vCPU that waits inside KVM for a page of an empty pool faults over and over
//! and no fault is fixed; nothing else of it is seen from outside.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use kvm_bindings::kvm_stats_header;

/// Faults taken by the guest that KVM had to look at.
const TAKEN: &str = "pf_taken";
/// Those that ended with a page mapped.
const FIXED: &str = "pf_fixed";
/// Bytes of `struct kvm_stats_desc` before its name, and where `offset` is in it.
const DESCRIPTOR: usize = 16;
const DESCRIPTOR_OFFSET: usize = 8;
/// More than any kernel has: bounds what is read.
const MOST_DESCRIPTORS: u32 = 4096;
const LONGEST_NAME: u32 = 256;

/// Both counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Faults taken.
    pub taken: u64,
    /// Faults fixed.
    pub fixed: u64,
}

/// Reads the counts of one vCPU.
#[derive(Debug)]
pub struct FaultCounts {
    file: File,
    taken: u64,
    fixed: u64,
}

impl FaultCounts {
    /// Finds the counts in the statistics file of a vCPU.
    ///
    /// # Errors
    /// Those of reading it; `NotFound` if this KVM does not count faults.
    pub fn find(file: File) -> io::Result<Self> {
        let mut words = [[0; 4]; size_of::<kvm_stats_header>() / 4];
        file.read_exact_at(words.as_flattened_mut(), 0)?;
        let [_flags, name_size, count, _id, descriptors, data] = words.map(u32::from_ne_bytes);
        if count > MOST_DESCRIPTORS || name_size > LONGEST_NAME {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let stride = DESCRIPTOR + usize::try_from(name_size).unwrap_or(0);
        let mut table = vec![0; stride * usize::try_from(count).unwrap_or(0)];
        file.read_exact_at(&mut table, descriptors.into())?;
        let at = |name: &str| {
            let named = table.chunks_exact(stride).find(|descriptor| {
                let found = descriptor.iter().skip(DESCRIPTOR);
                let found = found.take_while(|byte| **byte != 0);
                found.eq(name.as_bytes())
            });
            let offset = named?
                .get(DESCRIPTOR_OFFSET..)?
                .first_chunk()
                .copied()
                .map(u32::from_ne_bytes)?;
            Some(u64::from(data) + u64::from(offset))
        };
        let (taken, fixed) = at(TAKEN).zip(at(FIXED)).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { file, taken, fixed })
    }

    /// Reads both.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn read(&self) -> io::Result<Faults> {
        let one = |at| {
            let mut word = [0; 8];
            self.file.read_exact_at(&mut word, at)?;
            Ok::<_, io::Error>(u64::from_ne_bytes(word))
        };
        // In this order a fault that is fixed meanwhile counts as fixed.
        Ok(Faults {
            taken: one(self.taken)?,
            fixed: one(self.fixed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A statistics file with these names, 48 bytes each as Linux has it, whose
    /// data are 100, 101 and so on, in reverse order.
    fn statistics(names: &[&str]) -> File {
        let count = u32::try_from(names.len()).unwrap();
        let data = 24 + count * 64;
        let mut bytes: Vec<u8> = [0, 48, count, 0, 24, data]
            .iter()
            .flat_map(|word: &u32| word.to_ne_bytes())
            .collect();
        for (name, number) in names.iter().zip(0..) {
            let mut descriptor = [0; 64];
            descriptor[8..12].copy_from_slice(&(8 * (count - 1 - number)).to_ne_bytes());
            descriptor[16..16 + name.len()].copy_from_slice(name.as_bytes());
            bytes.extend(descriptor);
        }
        for number in (0..u64::from(count)).rev() {
            bytes.extend((100 + number).to_ne_bytes());
        }
        let mut file = tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    fn tempfile() -> io::Result<File> {
        let name = rustix::fs::memfd_create("statistics", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(File::from(name))
    }

    #[test]
    fn counts_are_found_by_name_wherever_they_are() {
        let names = ["pf_takenx", "exits", "pf_fixed", "halt", "pf_taken"];
        let counts = FaultCounts::find(statistics(&names)).unwrap();
        let faults = Faults {
            taken: 104,
            fixed: 102,
        };
        assert_eq!(counts.read().unwrap(), faults);
    }

    #[test]
    fn a_kvm_that_does_not_count_faults_is_told_apart() {
        let none = FaultCounts::find(statistics(&["exits", "pf_taken"]));
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
        let empty = FaultCounts::find(tempfile().unwrap());
        assert_eq!(empty.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
