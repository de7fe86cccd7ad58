use super::*;

const QEMU_PATH: &str = "/usr/bin/qemu-system-x86_64";

fn decided(choice: HostChoice, kvm: Kvm, qemu: bool) -> Result<(bool, String), (u8, String)> {
    let found = Found {
        kvm,
        qemu: qemu.then(|| QEMU_PATH.into()),
    };
    match decide(choice, &found) {
        Ok((chosen, line)) => {
            if let Chosen::Emulated(path) = &chosen {
                assert_eq!(path, Path::new(QEMU_PATH));
            }
            Ok((chosen == Chosen::Native, line))
        }
        Err(verdict) => match &verdict {
            Verdict::Failed { message, .. } => Err((verdict.exit_code(), message.clone())),
            verdict => panic!("{verdict:?}"),
        },
    }
}

#[test]
fn the_choice_is_this_table() {
    use HostChoice::{Auto, Emulated, Native};
    const NATIVE: bool = true;
    let broken = || Kvm::Broken("ENODEV".into());
    let table = [
        (Auto, Kvm::Usable, true, Ok((NATIVE, "hardware support"))),
        (Auto, Kvm::Usable, false, Ok((NATIVE, "hardware support"))),
        (Auto, Kvm::Software, true, Ok((!NATIVE, "software KVM"))),
        (Auto, Kvm::Missing, true, Ok((!NATIVE, "no /dev/kvm"))),
        (Auto, Kvm::Forbidden, true, Ok((!NATIVE, "group kvm"))),
        (Auto, broken(), true, Ok((!NATIVE, "ENODEV"))),
        (
            Auto,
            Kvm::Software,
            false,
            Err("apt-get install qemu-system-x86"),
        ),
        (
            Auto,
            Kvm::Missing,
            false,
            Err("apt-get install qemu-system-x86"),
        ),
        (Native, Kvm::Usable, false, Ok((NATIVE, "as asked"))),
        (
            Native,
            Kvm::Software,
            true,
            Ok((NATIVE, "although /dev/kvm is a software KVM")),
        ),
        (Native, Kvm::Missing, true, Err("--host emulated")),
        (Native, Kvm::Forbidden, true, Err("group kvm")),
        (Emulated, Kvm::Usable, true, Ok((!NATIVE, "as asked"))),
        (Emulated, Kvm::Missing, true, Ok((!NATIVE, "as asked"))),
        (
            Emulated,
            Kvm::Usable,
            false,
            Err("apt-get install qemu-system-x86"),
        ),
    ];
    for (choice, kvm, qemu, expected) in table {
        let row = format!("{choice:?} {kvm:?} qemu={qemu}");
        match (decided(choice, kvm, qemu), expected) {
            (Ok((native, line)), Ok((want_native, want))) => {
                assert_eq!(native, want_native, "{row}");
                assert!(line.contains(want) && !line.contains('\n'), "{row}: {line}");
            }
            (Err((code, message)), Err(want)) => {
                assert_eq!(code, 65, "{row}");
                assert!(
                    message.contains(want) && !message.contains('\n'),
                    "{row}: {message}"
                );
            }
            (got, want) => panic!("{row}: {got:?} instead of {want:?}"),
        }
    }
}

/// A machine made of files.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("aerostat-choose-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        Self(root)
    }

    fn file(self, name: &str, content: &str, mode: u32) -> Self {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    fn look(&self) -> Found {
        look(&Places {
            kvm: self.0.join("kvm"),
            cpuinfo: self.0.join("cpuinfo"),
            path: vec![self.0.join("nowhere"), self.0.join("bin")],
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_bare_machine_has_neither() {
    assert_eq!(
        Machine::new("bare").look(),
        Found {
            kvm: Kvm::Missing,
            qemu: None
        }
    );
}

#[test]
fn hardware_support_is_read_from_the_flags_and_from_nowhere_else() {
    for (name, cpuinfo, expected) in [
        (
            "amd",
            "vendor_id\t: AuthenticAMD\nflags\t\t: fpu svm npt\n",
            Kvm::Usable,
        ),
        (
            "intel",
            "flags\t\t: fpu vmx\nvmx flags\t: vnmi\n",
            Kvm::Usable,
        ),
        (
            "none",
            "flags\t\t: fpu hypervisor\nbugs\t\t: svm\n",
            Kvm::Software,
        ),
        (
            "similar",
            "flags\t\t: svm_lock\nmodel name\t: vmx\n",
            Kvm::Software,
        ),
        ("empty", "", Kvm::Software),
    ] {
        let machine = Machine::new(name)
            .file("kvm", "", 0o600)
            .file("cpuinfo", cpuinfo, 0o600);
        assert_eq!(machine.look().kvm, expected, "{name}");
    }
}

#[test]
fn a_device_that_does_not_open_is_broken() {
    let machine = Machine::new("directory");
    fs::create_dir(machine.0.join("kvm")).unwrap();
    assert!(matches!(machine.look().kvm, Kvm::Broken(_)));
}

#[test]
fn qemu_has_to_be_executable() {
    let machine = Machine::new("plain").file("bin/qemu-system-x86_64", "", 0o644);
    assert_eq!(machine.look().qemu, None);
    let machine = machine.file("bin/qemu-system-x86_64", "", 0o755);
    assert_eq!(
        machine.look().qemu,
        Some(machine.0.join("bin/qemu-system-x86_64"))
    );
}
