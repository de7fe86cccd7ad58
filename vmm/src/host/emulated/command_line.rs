//! QEMU's command line for the emulated host.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

use crate::host::agent;

/// The emulated machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine<'a> {
    /// Its kernel: bzImage, or ELF with a PVH note.
    pub(super) kernel: &'a Path,
    /// Descriptor, in QEMU, of the initial RAM file system.
    pub(super) initrd: RawFd,
    /// Descriptor, in QEMU, of the connected control socket.
    pub(super) control: RawFd,
    /// RAM in bytes; rounded up to a MiB.
    pub(super) memory: u64,
    /// CPUs.
    pub(super) cpus: u8,
    /// 1 GiB pages set aside at boot.
    pub(super) gigantic_pages: u64,
    /// Frequency of the time stamp counter.
    pub(super) tsc_khz: u64,
}

/// An AMD CPU, because QEMU emulates SVM with nested paging and no VMX;
/// 1 GiB pages are not in the model.
///
/// No CMPXCHG16B: QEMU 7.2 computes its flags from a stale `cc_op` (no
/// `gen_update_cc_op` before the helper in `target/i386/tcg/translate.c`; 10.0 is
/// right). An interrupt or VM exit right behind it then saves garbage as RFLAGS,
/// nested task included, and the next IRET faults. A kernel that sees the
/// instruction uses it in its slab allocator.
const CPU: &str = "EPYC,+svm,+npt,+pdpe1gb,-cx16";
const MIB: u64 = 1 << 20;

/// All arguments behind the program's name.
pub(super) fn arguments(machine: &Machine<'_>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut option = |name: &str, value: OsString| {
        arguments.push(name.into());
        if !value.is_empty() {
            arguments.push(value);
        }
    };
    // Nothing but what is named here, and gone when it stops.
    option("-nodefaults", OsString::new());
    option("-no-user-config", OsString::new());
    option("-no-reboot", OsString::new());
    option("-display", "none".into());
    option("-machine", "microvm".into());
    option("-accel", "tcg,thread=multi".into());
    option("-cpu", CPU.into());
    option("-smp", machine.cpus.to_string().into());
    option("-m", format!("{}M", machine.memory.div_ceil(MIB)).into());
    option("-kernel", machine.kernel.into());
    option(
        "-initrd",
        format!("/proc/self/fd/{}", machine.initrd).into(),
    );
    option("-append", kernel_command_line(machine).into());
    option("-chardev", "stdio,id=console,signal=off".into());
    option("-serial", "chardev:console".into());
    option(
        "-chardev",
        format!("socket,id=control,fd={}", machine.control).into(),
    );
    option("-device", "virtio-serial-device".into());
    option(
        "-device",
        format!("virtserialport,chardev=control,name={}", agent::PORT_NAME).into(),
    );
    arguments
}

/// - `oops=panic panic=-1 reboot=t`: a broken host ends QEMU at once.
/// - `tsc_early_khz`: a microvm has no clock to calibrate the counter against,
///   and QEMU passes the real one through.
fn kernel_command_line(machine: &Machine<'_>) -> String {
    let tsc_khz = machine.tsc_khz;
    let mut line = format!(
        "console=ttyS0 quiet oops=panic panic=-1 reboot=t tsc_early_khz={tsc_khz} tsc=reliable \
         random.trust_cpu=on"
    );
    if machine.gigantic_pages > 0 {
        line.push_str(&format!(
            " hugepagesz=1G hugepages={}",
            machine.gigantic_pages
        ));
    }
    line + " rdinit=" + agent::INIT_PATH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_everything_the_host_has() {
        let mut machine = Machine {
            kernel: Path::new("/k,1/vm linux"),
            initrd: 7,
            control: 9,
            memory: (3 << 30) + 1,
            cpus: 2,
            gigantic_pages: 0,
            tsc_khz: 2_445_404,
        };
        let line: Vec<_> = arguments(&machine)
            .into_iter()
            .map(|a| a.into_string().unwrap())
            .collect();
        assert_eq!(
            line.join(" "),
            "-nodefaults -no-user-config -no-reboot -display none -machine microvm \
             -accel tcg,thread=multi -cpu EPYC,+svm,+npt,+pdpe1gb,-cx16 -smp 2 -m 3073M \
             -kernel /k,1/vm linux -initrd /proc/self/fd/7 \
             -append console=ttyS0 quiet oops=panic panic=-1 reboot=t tsc_early_khz=2445404 \
             tsc=reliable random.trust_cpu=on rdinit=/aerostat-host \
             -chardev stdio,id=console,signal=off -serial chardev:console \
             -chardev socket,id=control,fd=9 -device virtio-serial-device \
             -device virtserialport,chardev=control,name=aerostat"
        );
        assert!(
            line.contains(&"/k,1/vm linux".to_owned()),
            "a path is one argument, whatever is in it"
        );

        machine.gigantic_pages = 6;
        assert!(
            kernel_command_line(&machine)
                .ends_with(" hugepagesz=1G hugepages=6 rdinit=/aerostat-host")
        );
    }
}
