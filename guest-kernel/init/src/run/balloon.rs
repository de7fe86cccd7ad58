//! The balloon: waiting for its size, and binding its driver.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::ClockId;

use crate::failure::StepError;
use crate::guest::facts::Balloon;
use crate::kernel_file;
use crate::lines::{BindingLine, WaitBalloonLine};
use crate::measure::meminfo::Meminfo;
use crate::measure::perf::now_ns;
use crate::measure::vmstat::Vmstat;
use crate::steps::table::Binding;

/// Its driver, on the virtio bus.
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_balloon";
/// Time between two looks at the size of the balloon.
const POLL: Duration = Duration::from_millis(10);

/// Waits until the balloon holds exactly `bytes`.
pub(crate) fn wait(bytes: u64, patience: Duration) -> Result<WaitBalloonLine, StepError> {
    let before = Vmstat::now()?;
    let missing = || StepError::Missing("count of balloon pages in /proc/vmstat".to_owned());
    let mut held = before.balloon_bytes().ok_or_else(missing)?;
    let start = now_ns(ClockId::Monotonic);
    let deadline = Instant::now() + patience;
    while held != bytes {
        if Instant::now() >= deadline {
            return Err(StepError::Balloon {
                wanted: bytes,
                held,
                seconds: patience.as_secs_f64(),
            });
        }
        thread::sleep(POLL);
        // The two counters can be read at a moment between them.
        held = Vmstat::now()?.balloon_bytes().unwrap_or(held);
    }
    Ok(WaitBalloonLine {
        size_bytes: bytes,
        wall_ns: now_ns(ClockId::Monotonic).saturating_sub(start),
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
        vmstat: Vmstat::now()?.since(&before).into_counters(),
    })
}

/// Binds the driver to the balloon or unbinds it. Unbinding returns when the
/// balloon is deflated, binding before it is inflated.
pub(crate) fn bind(binding: Binding) -> Result<BindingLine, StepError> {
    let before = Vmstat::now()?;
    let start = now_ns(ClockId::Monotonic);
    write_binding(binding)?;
    let wall_ns = now_ns(ClockId::Monotonic).saturating_sub(start);
    let balloon = Balloon::now();
    Ok(BindingLine {
        driver_bound: balloon.driver_bound(),
        features: balloon.into_features(),
        wall_ns,
        mem_free_bytes: Meminfo::now()?.entry("MemFree"),
        vmstat: Vmstat::now()?.since(&before).into_counters(),
    })
}

fn write_binding(binding: Binding) -> Result<(), StepError> {
    let balloon = Balloon::now();
    let device = balloon
        .device()
        .ok_or_else(|| StepError::Missing("balloon device".to_owned()))?;
    let file = match binding {
        Binding::Bind => "bind",
        Binding::Unbind => "unbind",
    };
    kernel_file::write(Path::new(DRIVER).join(file), device)
}

/// Binds and unbinds the driver in turn, and leaves it bound.
#[derive(Debug, Default)]
pub(crate) struct Rebinder {
    bound: bool,
    /// How often the driver was unbound.
    pub(crate) unbinds: u64,
    /// How often it was bound.
    pub(crate) binds: u64,
}

impl Rebinder {
    /// The balloon has to have its driver.
    pub(crate) fn new() -> Result<Self, StepError> {
        if !Balloon::now().driver_bound() {
            return Err(StepError::Missing("balloon with a driver".to_owned()));
        }
        Ok(Self {
            bound: true,
            ..Self::default()
        })
    }

    /// Unbinds the driver if it is bound, and binds it if it is not.
    pub(crate) fn toggle(&mut self) -> Result<(), StepError> {
        if self.bound {
            write_binding(Binding::Unbind)?;
            self.unbinds += 1;
        } else {
            write_binding(Binding::Bind)?;
            self.binds += 1;
        }
        self.bound = !self.bound;
        Ok(())
    }

    /// Binds the driver if it is not.
    pub(crate) fn finish(&mut self) -> Result<(), StepError> {
        if self.bound { Ok(()) } else { self.toggle() }
    }
}
