//! From values to a checked [`Config`]: types, ranges, and keys that depend on
//! each other. The one validator for file and command line.

use std::time::Duration;

use devices::balloon::device::OnReport;

use super::entries::{Value, quote};
use super::error::{ConfigError, Problem};
use super::read_key::{Checked, Checker};
use super::schema::{
    Backing, Balloon, Config, Console, ConsoleOutput, Cpus, Host, Kernel, Memory, PageSize,
    Results, Timeout,
};
use super::units::format_size;

/// As many as the ACPI tables and the APIC identifiers here are made for.
const MAX_CPUS: u8 = 64;
/// Below this no Linux boots.
const MIN_MEMORY: u64 = 16 << 20;
/// KVM takes at most 2^31 - 1 pages of 4 KiB in one memory slot.
const MAX_MEMORY: u64 = 4 << 40;
/// COMMAND_LINE_SIZE of x86 Linux is 2048, with the terminating zero.
const MAX_CMDLINE: usize = 2047;
const MAX_PREFAULT_THREADS: u16 = 1024;
/// The balloon counts in pages of 4 KiB (virtio 1.3, 5.5.6).
const BALLOON_PAGE: u64 = 4 << 10;

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

    fn balloon(&mut self, ram: u64) -> Checked<Balloon> {
        let reporting = self.boolean("balloon.reporting")?.unwrap_or(true);
        let given = self.choice(
            "balloon.on_report",
            &[
                ("discard", OnReport::Discard),
                ("zero", OnReport::Zero),
                ("keep", OnReport::Keep),
            ],
        )?;
        if given.is_some() && !reporting {
            self.no_effect("balloon.on_report", "balloon.reporting = true");
        }
        let on_report = given.unwrap_or(OnReport::Discard);
        let target = self.size("balloon.target", 0, MAX_MEMORY)?.unwrap_or(0);
        if target >= ram {
            let allowed = format!("less than memory.size, which is {}", format_size(ram));
            return Err(self.not_allowed("balloon.target", &format_size(target), &allowed));
        }
        if target % BALLOON_PAGE != 0 {
            let value = format_size(target);
            return Err(self.not_allowed("balloon.target", &value, "multiples of 4K"));
        }
        Ok(Balloon {
            reporting,
            device_init_reported: self.device_init_reported(reporting, on_report)?,
            on_report,
            deflate_on_oom: self.boolean("balloon.deflate_on_oom")?.unwrap_or(true),
            target,
            lie_about_zero: self.lie_about_zero()?,
        })
    }

    /// "auto" offers bit 6 whenever the device can keep its promise.
    fn device_init_reported(&self, reporting: bool, on_report: OnReport) -> Checked<bool> {
        const KEY: &str = "balloon.device_init_reported";
        let wanted = match self.entries.get(KEY).map(|entry| &entry.value) {
            None => None,
            Some(Value::Boolean(wanted)) => Some(*wanted),
            Some(Value::Text(text)) if text == "auto" => None,
            Some(Value::Text(text)) => {
                return Err(self.not_allowed(KEY, &quote(text), "true, false, \"auto\""));
            }
            Some(_) => return Err(self.wrong_type(KEY)),
        };
        let kept = on_report == OnReport::Keep;
        match wanted {
            Some(true) if !reporting => Err(self.conflict(
                KEY,
                &format!(
                    "true needs balloon.reporting = true{}",
                    self.place_of("balloon.reporting")
                ),
            )),
            Some(true) if kept => Err(self.conflict(
                KEY,
                &format!(
                    "true needs balloon.on_report = \"discard\" or \"zero\", not \"keep\"{}",
                    self.place_of("balloon.on_report")
                ),
            )),
            wanted => Ok(wanted.unwrap_or(reporting && !kept)),
        }
    }

    fn lie_about_zero(&self) -> Checked<bool> {
        let lie = self.boolean("balloon.lie_about_zero")?.unwrap_or(false);
        if lie && !self.test_faults {
            return Err(self.conflict(
                "balloon.lie_about_zero",
                "true leaks host memory to the guest; only tests set it, with AEROSTAT_TEST_FAULTS=1",
            ));
        }
        Ok(lie)
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
