//! Guests of different shapes: image formats, vCPUs, RAM above the 4 GiB hole.

use vmm::config::Config;

use crate::lab::Lab;
use crate::{Case, Failure};

/// The guest sees this much less than it was given: kernel, page structures, the
/// first megabyte.
const KERNEL_TAKES: u64 = 160 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let images = [("bzimage", false), ("elf", true)];
    let shapes = [
        ("1_vcpu_512m_2m", 1, "512M", ["memory.page=2M"].as_slice()),
        ("4_vcpus_512m_2m", 4, "512M", &["memory.page=2M"]),
        ("4_vcpus_6g_2m", 4, "6G", &["memory.page=2M"]),
        ("1_vcpu_6g_pages", 1, "6G", &["memory.backing=pages"]),
        ("4_vcpus_2g_1g", 4, "2G", &["memory.page=1G"]),
        (
            "2_vcpus_512m_thp_prefault",
            2,
            "512M",
            &["memory.backing=thp", "memory.prefault=true"],
        ),
    ];
    let all = shapes
        .into_iter()
        .flat_map(|shape| images.map(|image| (shape, image)));
    all.map(|((shape, cpus, size, sets), (image, elf))| {
        // How it is loaded does not depend on what backs it.
        let usual = !elf || sets.contains(&"memory.page=2M");
        let case = Case::new(format!("boot::{image}_{shape}"), move |lab| {
            let shape = [format!("cpus.count={cpus}"), format!("memory.size={size}")];
            let mut sets = sets.to_vec();
            sets.extend(shape.iter().map(String::as_str));
            let mut config = lab.config("info", &sets)?;
            if elf {
                config.kernel.image.clone_from(&lab.artifacts.vmlinux);
            }
            boots(lab, &config)
        });
        if usual { case } else { case.long() }
    })
    .collect()
}

fn boots(lab: &Lab, config: &Config) -> Result<(), Failure> {
    let ran = lab.run_config(config)?;
    ran.exits(0)?;
    let init = ran.lines("init");
    let init = &init.first().ok_or("no init line")?.line;
    assert_eq!(init["cpus"], config.cpus.count);
    let seen = init["mem_total_bytes"]
        .as_u64()
        .ok_or("no mem_total_bytes")?;
    let size = config.memory.size;
    let floor = size - KERNEL_TAKES - size / 32;
    assert!(
        (floor..=size).contains(&seen),
        "the guest sees {seen} bytes of {size}"
    );
    assert_eq!(init["balloon"]["found"], true, "{init}");

    let footprint = ran.results.footprint.ok_or("no footprint")?;
    if config.memory.prefault {
        // It counts what was not there yet; some of RAM is by then.
        let prefault = ran.results.timings.prefault.ok_or("no prefault")?;
        assert!(
            prefault.bytes > size / 2 && prefault.gib_per_s > 0.0,
            "{prefault:?}"
        );
        let resident = footprint.guest_resident_bytes;
        assert!(
            resident >= size - (4 << 20),
            "{resident} of {size} bytes are resident"
        );
    }
    // To beat: 4.1 MB for the leanest peer on the same host.
    assert!(
        footprint.vmm_rss_bytes < 4_300_000,
        "the VMM itself uses {} bytes",
        footprint.vmm_rss_bytes
    );
    Ok(())
}
