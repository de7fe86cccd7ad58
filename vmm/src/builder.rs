//! Builds a machine from its configuration, step by step.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use devices::balloon::device::{Balloon, BalloonSpec, MMIO_LEN};
use devices::mmio_bus::{Bus, BusError};
use devices::serial::{SERIAL_PORTS, SerialPort};
use linux_loader::configurator;
use thiserror::Error;
use vm_memory::{GuestMemoryError, GuestMemoryMmap};

use crate::config::{Backing, Config};
use crate::console_output::ConsoleOutput;
use crate::control::command::BALLOON_PAGE;
use crate::early_stop::EarlyStop;
use crate::ending::Stopper;
use crate::fault_injection::LyingZeroer;
use crate::kvm::open::{self, KvmError};
use crate::kvm::pool_wait::PoolShortage;
use crate::kvm::vcpu::{Buses, EmptyPool, Vcpu};
use crate::kvm::vm::Vm;
use crate::machine::{BalloonCounts, Machine};
use crate::memory::{GuestRam, MemoryError};
use crate::milestones::Milestones;
use crate::outcome::FailureClass;
use crate::results::{HostKind, Timings};
use crate::results_port::{ResultsSink, SharedRecord};
use crate::x86::command_line::{self, CommandLineError};
use crate::x86::cpu_state::EntryState;
use crate::x86::initrd::{self, InitrdError};
use crate::x86::kernel_image::{self, KernelImageError};
use crate::x86::layout::{
    BALLOON_GSI, BALLOON_MMIO_START, COM1_GSI, COM1_PORT, COM2_GSI, COM2_PORT, HIGH_RAM_START,
    KEYBOARD_PORT, POWER_PORT,
};
use crate::x86::power_ports::{KeyboardResetPort, POWER_PORTS, PowerPorts};
use crate::x86::{acpi, address_map, bzimage_boot, cpuid, pvh_boot, reset_vector};

/// Offset of QueueNotify in the virtio-mmio registers (virtio 1.3, 4.2.2).
const QUEUE_NOTIFY: u64 = 0x50;

/// Why a machine could not be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// KVM.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// Guest RAM.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The kernel.
    #[error(transparent)]
    Kernel(#[from] KernelImageError),
    /// The initrd.
    #[error(transparent)]
    Initrd(#[from] InitrdError),
    /// The command line.
    #[error(transparent)]
    CommandLine(#[from] CommandLineError),
    /// Guest RAM ends below what a kernel needs at boot.
    #[error("memory.size is too small for the boot structures: {0}")]
    BootStructures(#[from] GuestMemoryError),
    /// The same, found by the loader.
    #[error("memory.size is too small for the boot parameters: {0}")]
    BootParameters(#[from] configurator::Error),
    /// A device could not be made.
    #[error("cannot make {what}: {source}")]
    Device {
        /// The device.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// Two devices at one address.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The balloon cannot have this size.
    #[error("balloon.target = {target} bytes is more than memory.size = {size}: lower it")]
    BalloonTarget {
        /// Bytes asked for.
        target: u64,
        /// Bytes of guest RAM.
        size: u64,
    },
}

impl BuildError {
    /// Whose failure it is.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Kvm(error) => error.class(),
            Self::Memory(error) => error.class(),
            Self::Kernel(_)
            | Self::Initrd(_)
            | Self::CommandLine(_)
            | Self::BootStructures(_)
            | Self::BootParameters(_)
            | Self::BalloonTarget { .. } => FailureClass::Usage,
            Self::Device { .. } | Self::Bus(_) => FailureClass::Internal,
        }
    }
}

/// What a machine is connected to.
pub struct Ends {
    /// Takes console output.
    pub output: Box<dyn Write + Send>,
    /// Takes requests to stop.
    pub stopper: Arc<Stopper>,
    /// Tells whether to give up while guest RAM is populated.
    pub early_stop: EarlyStop,
    /// When Aerostat was executed; times count from here.
    pub exec: Instant,
}

/// Builds the machine; nothing runs yet. Times go into `timings` as they are
/// known.
///
/// # Errors
/// [`BuildError`]; what was made is gone again.
pub fn build(
    config: &Config,
    host: HostKind,
    ends: Ends,
    timings: &mut Timings,
) -> Result<Machine, BuildError> {
    let device = |what| move |source| BuildError::Device { what, source };

    // 1. KVM, before anything costs time or memory.
    let kvm = open::open()?;

    // 2. Guest RAM: reserved and mapped, not populated.
    let ram = GuestRam::create(&config.memory)?;
    let memory = ram.guest_memory();
    timings.memory_ms = Some(ends.exec.elapsed().as_secs_f64() * 1e3);

    // 3. Kernel, initrd and command line, and all the kernel is told at boot.
    ram.make_present_below(HIGH_RAM_START)?;
    let entry = load_guest(config, memory)
        .map_err(|error| ram.shortage().map_or(error, BuildError::Memory))?;

    // 4. Populate the rest of guest RAM, if wanted: after the kernel, so that a
    //    wrong kernel is told at once.
    if config.memory.prefault {
        timings.prefault = Some(ram.prefault(config.memory.prefault_threads, &|| {
            ends.early_stop.is_due("populating guest RAM")
        })?);
    }

    // 5. The virtual machine over that RAM, with its interrupt controllers.
    let vm = Vm::create(&kvm, memory.clone())?;

    // 6. The balloon, the only virtio device.
    let zeroer = match config.balloon.lie_about_zero {
        false => ram.zeroer(),
        true => Arc::new(LyingZeroer::new(ram.zeroer())),
    };
    let interrupt = Arc::new(vm.irq_line(BALLOON_GSI)?);
    let balloon = Balloon::new(balloon_spec(config)?, memory.clone(), zeroer, interrupt)
        .map_err(device("the balloon"))?;
    for (queue, event) in (0..).zip(balloon.queue_notify_events()) {
        vm.write_signals(BALLOON_MMIO_START + QUEUE_NOTIFY, queue, event)?;
    }
    let mut mmio = Bus::default();
    mmio.insert(BALLOON_MMIO_START, MMIO_LEN, balloon.mmio())?;

    // 7. The console, and the port for results.
    let milestones = Arc::new(Milestones::new().map_err(device("an event"))?);
    let console = ConsoleOutput::start(ends.output, Arc::clone(&ends.stopper))
        .map_err(device("the console"))?;
    let console_sink = Box::new(console.sink(Arc::clone(&milestones)));
    let com1 = Arc::new(SerialPort::new(
        Arc::new(vm.irq_line(COM1_GSI)?),
        console_sink,
    ));
    let record = SharedRecord::default();
    let balloon = Arc::new(Mutex::new(balloon));
    let counts = Arc::new(BalloonCounts::new(Arc::clone(&balloon), &config.memory));
    let results_sink = ResultsSink::new(
        record.clone(),
        counts.clone(),
        Arc::clone(&milestones),
        ends.exec,
    );
    let com2 = SerialPort::new(Arc::new(vm.irq_line(COM2_GSI)?), Box::new(results_sink));
    let mut ports = Bus::default();
    ports.insert(u64::from(COM1_PORT), SERIAL_PORTS, com1.clone())?;
    ports.insert(u64::from(COM2_PORT), SERIAL_PORTS, Arc::new(com2))?;

    // 8. The ways to power off and reset.
    let power = Arc::new(PowerPorts(Arc::clone(&ends.stopper)));
    ports.insert(u64::from(POWER_PORT), u64::from(POWER_PORTS), power)?;
    let keyboard = Arc::new(KeyboardResetPort(Arc::clone(&ends.stopper)));
    ports.insert(u64::from(KEYBOARD_PORT), 1, keyboard)?;

    // 9. vCPUs; the first one enters the kernel, the others wait to be started.
    let supported = cpuid::supported(&kvm).map_err(|source| KvmError::Call {
        what: "list the CPUID it supports",
        source,
    })?;
    let cpus = cpuid::Machine {
        cpus: config.cpus.count,
        host,
        tsc_deadline: vm.has_tsc_deadline_timer(),
    };
    let vcpus = (0..config.cpus.count)
        .map(|id| {
            let cpuid = cpuid::of_vcpu(&supported, cpus, id).map_err(KvmError::TooManyEntries)?;
            Ok(Vcpu::create(&vm, id, &cpuid)?)
        })
        .collect::<Result<Vec<_>, BuildError>>()?;
    if let Some(boot_cpu) = vcpus.first() {
        boot_cpu.enter_at(&entry)?;
    }

    let faults = vcpus.iter().filter_map(Vcpu::fault_counts).collect();

    Ok(Machine {
        vcpus,
        buses: Arc::new(Buses { ports, mmio }),
        empty_pool: match config.memory.backing == Backing::Hugetlb {
            true => EmptyPool::Waits(Arc::new(PoolShortage::new(faults))),
            false => EmptyPool::IsABug,
        },
        balloon,
        counts,
        com1,
        console,
        record,
        milestones,
        stopper: ends.stopper,
        _vm: vm,
        ram,
    })
}

/// Reads kernel and initrd and writes what the kernel is told about the
/// machine; returns how it is entered.
fn load_guest(config: &Config, memory: &GuestMemoryMmap) -> Result<EntryState, BuildError> {
    let kernel = kernel_image::load(&config.kernel.image, memory)?;
    let initrd = match &config.kernel.initrd {
        Some(path) => Some(initrd::load(
            path,
            memory,
            kernel.end,
            kernel.initrd_addr_max,
        )?),
        None => None,
    };
    command_line::write(memory, &config.kernel.cmdline, kernel.cmdline_max)?;
    acpi::write(memory, config.cpus.count)?;
    reset_vector::write(memory)?;
    let map = address_map::of(memory);
    match kernel.header {
        Some(header) => bzimage_boot::write(memory, header, initrd, &map)?,
        None => pvh_boot::write(memory, initrd, &map)?,
    }
    kernel.entry.write_tables(memory)?;
    Ok(kernel.entry)
}

fn balloon_spec(config: &Config) -> Result<BalloonSpec, BuildError> {
    let target = config.balloon.target;
    let target_pages = u32::try_from(target / BALLOON_PAGE).ok();
    let fits = target_pages.filter(|_| target <= config.memory.size);
    Ok(BalloonSpec {
        reporting: config.balloon.reporting,
        device_init_reported: config.balloon.device_init_reported,
        on_report: config.balloon.on_report,
        on_inflate: config.balloon.on_inflate,
        device_init_on_inflate: config.balloon.device_init_on_inflate,
        must_tell_host: config.balloon.must_tell_host,
        statistics: config.balloon.statistics,
        deflate_on_oom: config.balloon.deflate_on_oom,
        hinting: config.balloon.hinting,
        accept_hint_race: config.balloon.accept_hint_race,
        accept_bit6_ambiguity: config.balloon.accept_bit6_ambiguity,
        page_poison: config.balloon.page_poison,
        zero_rate: NonZeroU64::new(config.balloon.zero_rate),
        target_pages: fits.ok_or(BuildError::BalloonTarget {
            target,
            size: config.memory.size,
        })?,
        ..BalloonSpec::default()
    })
}
