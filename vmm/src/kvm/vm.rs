//! The machine's file descriptor: memory slots, interrupt lines, vCPUs.

// UNSAFETY: KVM takes guest memory as a host address, which the type system cannot vouch for.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

use kvm_bindings::{KVMIO, kvm_userspace_memory_region};
use kvm_ioctls::{IoEventAddress, Kvm, VcpuFd, VmFd};
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::ioctl::{_IOC_NONE, ioctl, ioctl_expr};

use super::irq_line::IrqLine;
use super::open::KvmError;
use crate::x86::layout::KVM_TSS_START;

/// `_IO(KVMIO, 0xce)` in `<linux/kvm.h>`; kvm-ioctls has no call for it.
const KVM_GET_STATS_FD: libc::c_ulong = ioctl_expr(_IOC_NONE, KVMIO, 0xce, 0);

/// The file with the binary statistics of `vcpu`.
///
/// # Errors
/// Those of the call; `ENOTTY` before Linux 5.14.
pub(super) fn statistics(vcpu: &VcpuFd) -> io::Result<File> {
    // SAFETY: the call takes no argument and changes nothing.
    let fd = unsafe { ioctl(vcpu, KVM_GET_STATS_FD) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is a new descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A virtual machine with its memory and its interrupt controllers, without vCPUs.
pub struct Vm {
    fd: VmFd,
    /// Keeps the mappings alive that the memory slots point to.
    memory: GuestMemoryMmap,
}

impl Vm {
    /// Creates it over `memory`.
    ///
    /// # Errors
    /// [`KvmError::Call`] with the call that failed.
    pub fn create(kvm: &Kvm, memory: GuestMemoryMmap) -> Result<Self, KvmError> {
        let fd = loop {
            match kvm.create_vm() {
                Ok(fd) => break fd,
                // A signal may arrive while the kernel allocates.
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(KvmError::call("create a virtual machine")(error)),
            }
        };
        let vm = Self { fd, memory };
        vm.map_memory()?;
        vm.fd
            .set_tss_address(KVM_TSS_START)
            .map_err(KvmError::call("set the TSS address"))?;
        vm.fd
            .create_irq_chip()
            .map_err(KvmError::call("create the interrupt controllers"))?;
        Ok(vm)
    }

    fn map_memory(&self) -> Result<(), KvmError> {
        for (slot, region) in (0..).zip(self.memory.iter()) {
            let slot = kvm_userspace_memory_region {
                slot,
                flags: 0,
                guest_phys_addr: region.start_addr().0,
                memory_size: region.len(),
                userspace_addr: region.as_ptr() as u64,
            };
            // SAFETY: the region is mapped, `memory_size` bytes long, overlaps no
            // other slot (the collection checks that), and stays mapped: `self`
            // and each vCPU hold the collection, and nothing outside guest RAM
            // lies in it.
            unsafe { self.fd.set_user_memory_region(slot) }
                .map_err(KvmError::call("map guest RAM"))?;
        }
        Ok(())
    }

    /// The interrupt line `gsi` (global system interrupt, an I/O APIC pin).
    ///
    /// # Errors
    /// [`KvmError`] if the event or its binding cannot be made.
    pub fn irq_line(&self, gsi: u32) -> Result<IrqLine, KvmError> {
        let event = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        let event = event.map_err(KvmError::EventFd)?;
        self.fd
            .register_irqfd(&event, gsi)
            .map_err(KvmError::call("bind an interrupt line"))?;
        Ok(IrqLine::new(event))
    }

    /// Makes a 32-bit guest write of `value` at `address` signal `event` without
    /// leaving the kernel.
    ///
    /// # Errors
    /// [`KvmError::Call`] if the binding is refused.
    pub fn write_signals(&self, address: u64, value: u32, event: &EventFd) -> Result<(), KvmError> {
        self.fd
            .register_ioevent(event, &IoEventAddress::Mmio(address), value)
            .map_err(KvmError::call("bind a doorbell"))
    }

    /// Creates vCPU `id`, whose APIC has the same id.
    ///
    /// # Errors
    /// [`KvmError::Call`].
    pub(super) fn create_vcpu(&self, id: u8) -> Result<VcpuFd, KvmError> {
        self.fd
            .create_vcpu(u64::from(id))
            .map_err(KvmError::call("create a vCPU"))
    }

    /// Guest memory, for a vCPU to hold on to.
    pub(super) fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Whether the local APIC timer has TSC deadline mode.
    #[must_use]
    pub fn has_tsc_deadline_timer(&self) -> bool {
        self.fd.check_extension(kvm_ioctls::Cap::TscDeadlineTimer)
    }
}
