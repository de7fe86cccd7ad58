//! From values to a checked [`Config`]: types, ranges, and keys that depend on
//! each other. The one validator for file and command line.

use std::time::Duration;

use super::error::{ConfigError, Problem};
use super::read_key::{Checked, Checker};
use super::schema::{
    Backing, Config, Console, ConsoleOutput, Control, Cpus, Host, Kernel, Memory, PageSize,
    Results, Timeout,
};
use super::units::format_size;

/// As many as the ACPI tables and the APIC identifiers here are made for.
const MAX_CPUS: u8 = 64;
/// Below this no Linux boots.
const MIN_MEMORY: u64 = 16 << 20;
/// KVM takes at most 2^31 - 1 pages of 4 KiB in one memory slot.
pub(super) const MAX_MEMORY: u64 = 4 << 40;
/// COMMAND_LINE_SIZE of x86 Linux is 2048, with the terminating zero.
const MAX_CMDLINE: usize = 2047;
const MAX_PREFAULT_THREADS: u16 = 1024;

impl Checker<'_> {
    pub(super) fn config(&mut self) -> Checked<Config> {
        let memory = self.memory()?;
        Ok(Config {
            kernel: self.kernel()?,
            cpus: Cpus {
                count: self.number("cpus.count", 1, MAX_CPUS)?.unwrap_or(1),
            },
            balloon: self.balloon(memory.size)?,
            console: self.console()?,
            results: Results {
                path: self.path("results.path")?,
            },
            timeout: Timeout {
                boot: self
                    .duration("timeout.boot")?
                    .unwrap_or(Duration::from_secs(30)),
                run: self.duration("timeout.run")?.unwrap_or(Duration::ZERO),
                pool: self.duration("timeout.pool")?.unwrap_or(Duration::ZERO),
            },
            control: Control {
                socket: self.path("control.socket")?,
            },
            host: self.host(memory.size)?,
            memory,
        })
    }

    fn kernel(&self) -> Checked<Kernel> {
        let cmdline = self
            .text("kernel.cmdline")?
            .unwrap_or("console=ttyS0 panic=-1");
        if let Some(odd) = cmdline.chars().find(|c| !matches!(c, ' '..='~')) {
            return Err(self.not_allowed("kernel.cmdline", &format!("{odd:?}"), "printable ASCII"));
        }
        if cmdline.len() > MAX_CMDLINE {
            let length = format!("a length of {}", cmdline.len());
            let most = format!("at most {MAX_CMDLINE} bytes");
            return Err(self.not_allowed("kernel.cmdline", &length, &most));
        }
        let image = self.path("kernel.image")?.ok_or_else(|| {
            ConfigError::new(
                self.document.clone(),
                Some("kernel.image"),
                Problem::Missing("name a bzImage or ELF kernel in `[kernel]` as image = \"path\""),
            )
        })?;
        Ok(Kernel {
            image,
            initrd: self.path("kernel.initrd")?,
            cmdline: cmdline.to_owned(),
        })
    }

    fn memory(&mut self) -> Checked<Memory> {
        let backing = self
            .choice(
                "memory.backing",
                &[
                    ("hugetlb", Backing::Hugetlb),
                    ("thp", Backing::Thp),
                    ("pages", Backing::Pages),
                ],
            )?
            .unwrap_or(Backing::Hugetlb);
        let page = self.page(backing)?;
        let size = self
            .size("memory.size", MIN_MEMORY, MAX_MEMORY)?
            .unwrap_or(512 << 20);
        if size % page.bytes() != 0 {
            return Err(self.error("memory.size", not_a_multiple(size, page)));
        }
        let prefault = self.boolean("memory.prefault")?.unwrap_or(false);
        let threads = self.number("memory.prefault_threads", 1, MAX_PREFAULT_THREADS)?;
        if threads.is_some() && !prefault {
            self.no_effect("memory.prefault_threads", "memory.prefault = true");
        }
        Ok(Memory {
            size,
            backing,
            page,
            shared: self.boolean("memory.shared")?.unwrap_or(false),
            overcommit: self.overcommit()?,
            prefault,
            prefault_threads: threads,
        })
    }

    fn page(&mut self, backing: Backing) -> Checked<PageSize> {
        let huge = [("2M", PageSize::Size2M), ("1G", PageSize::Size1G)];
        if backing == Backing::Hugetlb {
            return Ok(self
                .choice("memory.page", &huge)?
                .unwrap_or(PageSize::Size2M));
        }
        let [two, one] = huge;
        let given = self.choice("memory.page", &[("4K", PageSize::Size4K), two, one])?;
        if given.is_some_and(|page| page != PageSize::Size4K) {
            self.no_effect("memory.page", "memory.backing = \"hugetlb\"");
        }
        Ok(PageSize::Size4K)
    }

    fn overcommit(&self) -> Checked<bool> {
        let overcommit = self.boolean("memory.overcommit")?;
        let reserve = self.boolean("memory.reserve")?;
        if let (Some(overcommit), Some(reserve)) = (overcommit, reserve) {
            if overcommit == reserve {
                return Err(self.conflict(
                    "memory.reserve",
                    &format!(
                        "{reserve} contradicts memory.overcommit = {overcommit}{}; keep one of them",
                        self.place_of("memory.overcommit"),
                    ),
                ));
            }
        }
        Ok(overcommit
            .or(reserve.map(|reserve| !reserve))
            .unwrap_or(false))
    }

    fn console(&self) -> Checked<Console> {
        let named = self.choice(
            "console.output",
            &[
                ("stdout", ConsoleOutput::Stdout),
                ("none", ConsoleOutput::None),
            ],
        )?;
        let output = match (self.path("console.output.file")?, named) {
            (Some(path), _) => ConsoleOutput::File(path),
            (None, Some(named)) => named,
            (None, None) => ConsoleOutput::Stdout,
        };
        Ok(Console {
            output,
            input: self.boolean("console.input")?.unwrap_or(false),
        })
    }

    fn host(&self, ram: u64) -> Checked<Host> {
        let memory = self.size("host.memory", 0, MAX_MEMORY)?;
        if let Some(memory) = memory.filter(|memory| *memory <= ram) {
            let allowed = format!("more than memory.size, which is {}", format_size(ram));
            return Err(self.not_allowed("host.memory", &format_size(memory), &allowed));
        }
        Ok(Host {
            kernel: self.path("host.kernel")?,
            memory,
        })
    }
}

fn not_a_multiple(size: u64, page: PageSize) -> Problem {
    let below = size - size % page.bytes();
    let above = below + page.bytes();
    let nearest = if below == 0 {
        format_size(above)
    } else {
        format!("{} or {}", format_size(below), format_size(above))
    };
    Problem::NotAMultiple {
        size: format_size(size),
        page: page.name(),
        nearest,
    }
}
