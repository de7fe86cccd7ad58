//! A split ring from the driver's side (virtio 1.3, 2.7).

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// One buffer of a chain to be submitted.
#[derive(Debug, Clone, Copy)]
pub struct Buf {
    pub addr: u64,
    pub len: u32,
    pub writable: bool,
}

pub fn readable(addr: u64, len: u32) -> Buf {
    let writable = false;
    Buf {
        addr,
        len,
        writable,
    }
}

pub fn writable(addr: u64, len: u32) -> Buf {
    let writable = true;
    Buf {
        addr,
        len,
        writable,
    }
}

/// The driver's view of one ring in guest memory.
#[derive(Clone)]
pub struct Ring {
    memory: GuestMemoryMmap,
    pub size: u16,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    /// Next available index to be published.
    pub next_available: u16,
    /// Used entries the driver has seen.
    pub seen: u16,
}

impl Ring {
    /// A ring of `size` in 16 KiB of memory at `base`.
    pub fn new(memory: &GuestMemoryMmap, base: u64, size: u16) -> Self {
        let zeros = [0; 0x4000];
        memory.write_slice(&zeros, GuestAddress(base)).unwrap();
        Self {
            memory: memory.clone(),
            size,
            descriptors: base,
            available: base + 0x1000,
            used: base + 0x2000,
            next_available: 0,
            seen: 0,
        }
    }

    /// Bytes of guest memory the ring lies in.
    pub fn area(base: u64) -> std::ops::Range<u64> {
        base..base + 0x4000
    }

    pub fn put_u16(&self, addr: u64, value: u16) {
        self.memory.write_obj(value, GuestAddress(addr)).unwrap();
    }

    pub fn get_u16(&self, addr: u64) -> u16 {
        self.memory.read_obj(GuestAddress(addr)).unwrap()
    }

    pub fn write_descriptor(&self, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        let at = self.descriptors + u64::from(index) * 16;
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&addr.to_le_bytes());
        raw[8..12].copy_from_slice(&len.to_le_bytes());
        raw[12..14].copy_from_slice(&flags.to_le_bytes());
        raw[14..].copy_from_slice(&next.to_le_bytes());
        self.memory.write_slice(&raw, GuestAddress(at)).unwrap();
    }

    /// Writes `chain` to consecutive descriptors from `head` on.
    pub fn write_chain(&self, head: u16, chain: &[Buf]) {
        for (i, buf) in (head..).zip(chain) {
            let last = usize::from(i - head) + 1 == chain.len();
            let flags = if last { 0 } else { NEXT } | if buf.writable { WRITE } else { 0 };
            self.write_descriptor(i, buf.addr, buf.len, flags, i + 1);
        }
    }

    /// Puts `head` into the available ring and publishes the index.
    pub fn make_available(&mut self, head: u16) {
        let slot = u64::from(self.next_available % self.size);
        self.put_u16(self.available + 4 + 2 * slot, head);
        self.next_available = self.next_available.wrapping_add(1);
        self.publish(self.next_available);
    }

    /// Publishes an available index, whatever it is.
    pub fn publish(&self, index: u16) {
        let at = GuestAddress(self.available + 2);
        let order = std::sync::atomic::Ordering::Release;
        self.memory.store(index, at, order).unwrap();
    }

    /// Available flags: 1 asks for no interrupts.
    pub fn set_available_flags(&self, flags: u16) {
        self.put_u16(self.available, flags);
    }

    /// Asks for an interrupt when this used index is passed.
    pub fn set_used_event(&self, index: u16) {
        self.put_u16(self.available + 4 + 2 * u64::from(self.size), index);
    }

    pub fn used_flags(&self) -> u16 {
        self.get_u16(self.used)
    }

    /// The device's used index.
    pub fn used_index(&self) -> u16 {
        let at = GuestAddress(self.used + 2);
        let order = std::sync::atomic::Ordering::Acquire;
        self.memory.load(at, order).unwrap()
    }

    /// Entry `index` of the used ring: head and used length.
    pub fn used_entry(&self, index: u16) -> (u32, u32) {
        let at = self.used + 4 + 8 * u64::from(index % self.size);
        let read = |at| self.memory.read_obj(GuestAddress(at)).unwrap();
        (read(at), read(at + 4))
    }
}
