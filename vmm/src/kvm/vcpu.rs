//! One vCPU: made, given its first state, and run until the machine stops.

use std::sync::Arc;

use devices::mmio_bus::Bus;
use kvm_bindings::CpuId;
use kvm_ioctls::{VcpuExit, VcpuFd};
use vm_memory::GuestMemoryMmap;

use super::fault_counts::FaultCounts;
use super::open::KvmError;
use super::pool_wait::{PoolShortage, PoolWait};
use super::vcpu_pause::Gate;
use super::vm::{self, Vm};
use crate::ending::{StopCause, Stopper};
use crate::x86::cpu_state::EntryState;
use crate::x86::msrs;

/// What a vCPU's exits are answered by.
pub struct Buses {
    /// Port I/O.
    pub ports: Bus,
    /// Memory-mapped I/O.
    pub mmio: Bus,
}

/// Whether an access that finds no page waits for one.
#[derive(Clone)]
pub enum EmptyPool {
    /// It waits, and that is counted here.
    Waits(Arc<PoolShortage>),
    /// It cannot happen: there is no pool. If it does, it is a failure.
    IsABug,
}

/// A vCPU that is not running yet.
pub struct Vcpu {
    fd: VcpuFd,
    id: u8,
    /// Keeps guest RAM mapped as long as this vCPU may run.
    _memory: GuestMemoryMmap,
}

impl Vcpu {
    /// Creates vCPU `id` and tells the guest through `cpuid` what it is.
    ///
    /// # Errors
    /// [`KvmError::Call`] with the call that failed.
    pub fn create(vm: &Vm, id: u8, cpuid: &CpuId) -> Result<Self, KvmError> {
        let fd = vm.create_vcpu(id)?;
        fd.set_cpuid2(cpuid)
            .map_err(KvmError::call("set the CPUID of a vCPU"))?;
        let msrs = msrs::at_boot().map_err(KvmError::TooManyEntries)?;
        let set = fd
            .set_msrs(&msrs)
            .map_err(KvmError::call("set the MSRs of a vCPU"))?;
        if set != msrs.as_slice().len() {
            // KVM stops at the first MSR it does not take.
            let refused = kvm_ioctls::Error::new(libc::EINVAL);
            return Err(KvmError::call("set the MSRs of a vCPU")(refused));
        }
        Ok(Self {
            fd,
            id,
            _memory: vm.memory().clone(),
        })
    }

    /// Puts it into the state in which the kernel is entered. Only for the
    /// boot CPU; the others wait for the guest to start them.
    ///
    /// # Errors
    /// [`KvmError::Call`] with the call that failed.
    pub fn enter_at(&self, entry: &EntryState) -> Result<(), KvmError> {
        let mut sregs = self
            .fd
            .get_sregs()
            .map_err(KvmError::call("read the registers of a vCPU"))?;
        entry.apply(&mut sregs);
        self.fd
            .set_sregs(&sregs)
            .map_err(KvmError::call("set the system registers of a vCPU"))?;
        self.fd
            .set_regs(&entry.registers())
            .map_err(KvmError::call("set the registers of a vCPU"))
    }

    /// Its fault counts; `None` if this KVM has none.
    #[must_use]
    pub fn fault_counts(&self) -> Option<FaultCounts> {
        let counts = vm::statistics(&self.fd).and_then(FaultCounts::find);
        counts
            .inspect_err(|error| log::debug!("no fault counts of vCPU {}: {error}", self.id))
            .ok()
    }

    /// Its number, which is its APIC id too.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Runs until the machine stops, which it may cause itself; not while `gate`
    /// is closed.
    pub fn run(mut self, buses: &Buses, empty_pool: &EmptyPool, gate: &Gate, stopper: &Stopper) {
        let nothing = PoolShortage::default();
        let mut wait = PoolWait::new(match empty_pool {
            EmptyPool::Waits(shortage) => shortage,
            EmptyPool::IsABug => &nothing,
        });
        while !stopper.is_requested() {
            if gate.pass(stopper) {
                // Tells the guest's watchdogs that it stood still. Refused where
                // the guest has no clock of KVM's, and then they see a gap.
                let _ = self.fd.kvmclock_ctrl();
                continue;
            }
            match self.run_once(buses) {
                Exit::Handled => wait.served(),
                Exit::Signal => {}
                Exit::NoPage if matches!(empty_pool, EmptyPool::Waits(_)) => wait.pause(),
                Exit::NoPage => stopper.request(self.broken("found no page behind guest RAM")),
                Exit::Shutdown => stopper.request(StopCause::TripleFault),
                Exit::Broken(why) => stopper.request(self.broken(&why)),
            }
        }
    }

    fn run_once(&mut self, buses: &Buses) -> Exit {
        match self.fd.run() {
            Ok(VcpuExit::IoIn(port, data)) => {
                buses.ports.read(u64::from(port), data);
                Exit::Handled
            }
            Ok(VcpuExit::IoOut(port, data)) => {
                buses.ports.write(u64::from(port), data);
                Exit::Handled
            }
            Ok(VcpuExit::MmioRead(address, data)) => {
                buses.mmio.read(address, data);
                Exit::Handled
            }
            Ok(VcpuExit::MmioWrite(address, data)) => {
                buses.mmio.write(address, data);
                Exit::Handled
            }
            Ok(VcpuExit::Shutdown) => Exit::Shutdown,
            Ok(VcpuExit::MemoryFault { .. }) => Exit::NoPage,
            Ok(VcpuExit::Intr) => Exit::Signal,
            Ok(VcpuExit::FailEntry(reason, _)) => {
                Exit::Broken(format!("could not enter the guest: reason {reason:#x}"))
            }
            Ok(VcpuExit::InternalError) => Exit::Broken(format!(
                "KVM could not emulate the instruction{}",
                self.at_instruction()
            )),
            Ok(VcpuExit::SystemEvent(kind, _)) => {
                Exit::Broken(format!("unexpected system event {kind}"))
            }
            Ok(VcpuExit::Unsupported(reason)) => Exit::Broken(format!("unexpected exit {reason}")),
            Ok(_) => Exit::Broken("unexpected exit".to_string()),
            Err(error) => match error.errno() {
                libc::EINTR | libc::EAGAIN => Exit::Signal,
                libc::EFAULT => Exit::NoPage,
                libc::EHWPOISON => Exit::Broken("met broken memory of the host".to_string()),
                _ => Exit::Broken(format!("KVM_RUN failed: {error}")),
            },
        }
    }

    fn at_instruction(&self) -> String {
        match self.fd.get_regs() {
            Ok(regs) => format!(" at {:#x}", regs.rip),
            Err(_) => String::new(),
        }
    }

    fn broken(&self, why: &str) -> StopCause {
        StopCause::Broken(format!("vCPU {}: {why}", self.id))
    }
}

/// What became of one KVM_RUN.
enum Exit {
    /// The guest asked for something and got it.
    Handled,
    /// A signal: look whether the machine stops.
    Signal,
    /// Guest RAM has no page there and none could be had.
    NoPage,
    /// Triple fault.
    Shutdown,
    /// Cannot go on.
    Broken(String),
}
