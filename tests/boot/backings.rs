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
        (
            "1_vcpu_512m_2m",
            1,
            512 << 20,
            ["memory.page=2M"].as_slice(),
        ),
        ("4_vcpus_512m_2m", 4, 512 << 20, &["memory.page=2M"]),
        ("4_vcpus_6g_2m", 4, 6 << 30, &["memory.page=2M"]),
        ("1_vcpu_6g_pages", 1, 6 << 30, &["memory.backing=pages"]),
        ("4_vcpus_2g_1g", 4, 2 << 30, &["memory.page=1G"]),
        (
            "2_vcpus_512m_thp_prefault",
            2,
            512 << 20,
            &["memory.backing=thp", "memory.prefault=true"],
        ),
    ];
    let all = shapes
        .into_iter()
        .flat_map(|shape| images.map(|image| (shape, image)));
    all.map(|((shape, cpus, size, sets), (image, elf))| {
        Case::new(format!("boot::{image}_{shape}"), move |lab| {
            let mut config = lab.config("info", sets)?;
            config.cpus.count = cpus;
            config.memory.size = size;
            if elf {
                config.kernel.image.clone_from(&lab.artifacts.vmlinux);
            }
            boots(lab, &config)
        })
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

    let prefault = ran.results.timings.prefault;
    assert_eq!(
        prefault.map(|p| p.bytes),
        config.memory.prefault.then_some(size)
    );
    let footprint = ran.results.footprint.ok_or("no footprint")?;
    // To beat: 4.1 MB for the leanest peer on the same host.
    assert!(
        footprint.vmm_rss < 4_300_000,
        "the VMM itself uses {} bytes",
        footprint.vmm_rss
    );
    Ok(())
}
