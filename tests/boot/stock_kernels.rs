//! Distribution kernels, unmodified: they boot, find the balloon, inflate and deflate,
//! report, and leave bits 6 and 7 alone.

use crate::artifacts::StockKernel;
use crate::balloon::{REBOUND, works_after_rebinding};
use crate::lab::Lab;
use crate::{Case, Failure};

pub(crate) fn cases(lab: &Lab) -> Vec<Case> {
    let stock = lab.artifacts.stock.clone().into_iter();
    stock
        .map(|kernel| {
            Case::new(
                format!("stock::{}_reports_and_takes_no_promise", kernel.name),
                move |lab| reports(lab, &kernel),
            )
        })
        .collect()
}

fn reports(lab: &Lab, kernel: &StockKernel) -> Result<(), Failure> {
    // It has no flush: the step waits for the reporting that comes by itself.
    let steps = format!("{REBOUND} dirty=128M,thp flush populate=128M,thp,check");
    let mut config = lab.config(&steps, &["balloon.target=64M"])?;
    config.kernel.image.clone_from(&kernel.image);
    config.kernel.initrd = Some(kernel.initrd.clone());
    let ran = lab.run_config(&config)?;
    ran.exits(0)?;

    let init = ran.lines("init");
    let init = &init.first().ok_or("no init line")?.line;
    assert_eq!(init["balloon"]["found"], true, "{init}");
    let series = kernel
        .name
        .trim_start_matches("debian-")
        .trim_end_matches("-cloud");
    let release = init["kernel"]["release"].as_str().unwrap_or_default();
    assert!(
        release.starts_with(series),
        "booted {release}, not {series}"
    );

    let features = &ran.results.features;
    let acknowledged = features.acknowledged.clone().ok_or("no driver came up")?;
    let has = |list: &[String], name: &str| list.iter().any(|feature| feature.contains(name));
    assert!(
        has(&features.offered, "DEVICE_INIT_REPORTED"),
        "{features:?}"
    );
    assert!(has(&acknowledged, "REPORTING"), "{features:?}");
    assert!(!has(&acknowledged, "DEVICE_INIT"), "{features:?}");

    let counters = ran.results.counters;
    assert!(counters.reported_bytes >= 128 << 20, "{counters:?}");
    works_after_rebinding(&ran, None)
}
