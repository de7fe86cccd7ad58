//! Builds, boots, and prints.

use std::fs;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use vmm::host::{HostChoice, HostOptions, Session};
use vmm::results::HostKind;
use vmm_sys_util::eventfd::EventFd;

use super::boot::{self, Boots};
use super::machine::{Figures, MACHINES, Populate, SMALL_MIB, THP_MIB};
use super::verdict::{complaints, percent};
use crate::Failure;
use crate::artifacts::{self, Artifacts};
use crate::command::say;
use crate::packages;

/// Options of `cargo xtask demo`.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the VMs run
    #[arg(long, value_name = "HOST", default_value = "auto", value_parser = ["auto", "native", "emulated"])]
    host: String,
}

/// 1 GiB pages that an emulated host sets aside at boot, for the guest of 2 GiB.
const GIGANTIC_PAGES: u64 = 2;
/// RAM of an emulated host: those, a guest of 2 GiB on 2M pages, and the host itself.
const HOST_MEMORY: u64 = 6 << 30;

/// Builds what is missing, boots the four VMs, prints the table; fails if it does
/// not show what it must.
pub(crate) fn demo(options: &Options) -> Result<(), Failure> {
    packages::install_missing()?;
    let built = artifacts::build()?;
    let started = Instant::now();
    let mut session = open_session(&options.host, &built)?;
    let mut all = Vec::new();
    for machine in MACHINES {
        say(&format!("booting the {machine}"));
        all.push(machine.run(&mut session, &built)?);
    }
    say("booting a small VM three times");
    let boots = boot::measure(&mut session, &built)?;
    let kind = session.kind();
    drop(session);

    println!("{}", table(&all, kind));
    println!("{}", notes(&boots, kind, &built, started.elapsed())?);
    let wrong: Vec<_> = MACHINES
        .iter()
        .zip(&all)
        .flat_map(|(m, f)| complaints(m, f))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("this is not what it must show:\n{}", wrong.join("\n")).into())
}

fn open_session(host: &str, built: &Artifacts) -> Result<Session, Failure> {
    let choice = match host {
        "native" => HostChoice::Native,
        "emulated" => HostChoice::Emulated,
        _ => HostChoice::Auto,
    };
    let options = HostOptions {
        host_kernel: Some(built.bzimage.clone()),
        agent: Some(built.aerostat.clone()),
        memory: Some(HOST_MEMORY),
        gigantic_pages: GIGANTIC_PAGES,
        ..HostOptions::default()
    };
    let session = Session::start(choice, &options, EventFd::new(0)?);
    session.map_err(|verdict| format!("no host to run on: {verdict}").into())
}

fn table(all: &[Figures], kind: HostKind) -> Table {
    let clock = match kind {
        HostKind::Native => "task-clock, ms",
        HostKind::Emulated => "task-clock, ms (emulated)",
    };
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.add_row(["", "baseline", "optimized", "baseline", "optimized"]);
    table.add_row(["pages that back the guest", "2M", "2M", "1G", "1G"]);
    table.add_row([
        "reported memory is",
        "discarded",
        "discarded",
        "zeroed",
        "zeroed",
    ]);
    table.add_row(["and promised zero (bit 6)", "no", "yes", "no", "yes"]);
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
        let cells = all.iter().map(cell);
        table.add_row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("host, as the guest flushes", &|_| String::new());
    row("  reported, MiB", &|f| mib(f.flush.reported));
    row("  zeroed, MiB", &|f| mib(f.flush.zeroed));
    row("  released, MiB", &|f| mib(f.flush.released));
    row("  free pool grew by, MiB", &|f| {
        (f.flush.pool_growth >> 20).to_string()
    });
    row(&format!("guest allocates {THP_MIB} MiB, THP"), &|_| {
        String::new()
    });
    row("  4K pages cleared", &|f| f.thp.cleared.to_string());
    row("  4K pages skipped", &|f| f.thp.skipped.to_string());
    row("  skipped, %", &|f| share(&f.thp));
    row(&format!("  {clock}"), &|f| milliseconds(&f.thp));
    row(&format!("guest allocates {SMALL_MIB} MiB, 4K"), &|_| {
        String::new()
    });
    row("  skipped, %", &|f| share(&f.small));
    row("both again, claims verified", &|_| String::new());
    row("  skipped, % (THP)", &|f| share(&f.verified_thp));
    row("  skipped, % (4K)", &|f| share(&f.verified_small));
    row("  4K pages claimed, not zero", &|f| {
        f.mismatches.to_string()
    });
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What is measured beside the loop.
fn notes(
    boots: &Boots,
    kind: HostKind,
    built: &Artifacts,
    took: Duration,
) -> Result<String, Failure> {
    let host = match kind {
        HostKind::Native => "native KVM",
        HostKind::Emulated => "an emulated host (counters are exact, times are emulated)",
    };
    let init: Vec<_> = boots
        .init_ms
        .iter()
        .map(|ms| format!("{:.2}", ms / 1e3))
        .collect();
    let binary = fs::metadata(&built.aerostat)?.len();
    Ok(format!(
        "Run on {host},\n\
         guests of 2 GiB and 1 vCPU, in {:.0} s. Both VMs of a pair report; only the\n\
         optimized one offers bit 6, so only its guest learns what is zero.\n\
         Reported: by the flush; the guest also reports by itself, before it.\n\
         Zeroed: known to read zero, because it was released or written, or, where that\n\
         is promised, was never touched. Released: what the host got back.\n\
         Cleared: with page tables. The share of 4K pages is lower because free blocks\n\
         below 2 MiB are not reported.\n\
         \n\
         A VM with 1 vCPU and 512 MiB on 2M pages:\n  \
           from exec of aerostat to the guest's init: {} s\n  \
           memory of aerostat itself, beside guest RAM: {:.1} MB\n  \
           the aerostat binary, static and stripped: {:.1} MB",
        took.as_secs_f64(),
        init.join(", "),
        megabytes(boots.vmm_rss_bytes),
        megabytes(binary),
    ))
}

fn share(populate: &Populate) -> String {
    format!("{:.1}", percent(populate.skipped, populate.pages))
}

fn milliseconds(populate: &Populate) -> String {
    format!(
        "{:.1}",
        Duration::from_nanos(populate.task_clock_ns).as_secs_f64() * 1e3
    )
}

fn mib(bytes: u64) -> String {
    (bytes >> 20).to_string()
}

/// Bytes in millions of bytes.
fn megabytes(bytes: u64) -> f64 {
    // Sizes of programs, far below 2^52.
    #[expect(clippy::cast_precision_loss)]
    let bytes = bytes as f64;
    bytes / 1e6
}
