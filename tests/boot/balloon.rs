//! The standard balloon device with real drivers: what they accept, how they
//! number their queues, what they tell. Each case with its baseline.

use devices::balloon::queue_map::QueueNumbering;
use devices::balloon::statistics::Statistic;
use vmm::config::Config;

use crate::artifacts::StockKernel;
use crate::lab::{Lab, Ran};
use crate::{Case, Failure};

const STEPS: &str = "dirty=128M,thp flush populate=128M,thp,check";
const MEMORY: u64 = 512 << 20;
/// Pages of 64 MiB.
const BALLOON: u64 = 16384;

/// Inflates, takes the driver away and brings it back.
pub(crate) const REBOUND: &str =
    "wait_balloon=64M balloon=unbind wait_balloon=0 balloon=bind wait_balloon=64M";

pub(crate) fn cases(lab: &Lab) -> Vec<Case> {
    let mut cases = vec![
        Case::new("balloon::queues_are_counted", queues_are_counted),
        Case::new("balloon::all_standard_features_at_once", all_at_once),
        Case::new("balloon::what_is_not_offered_is_not_told", nothing_optional),
        Case::new("balloon::poison_of_zero_is_as_none", poison_of_zero),
    ];
    let stock = lab.artifacts.stock.clone().into_iter();
    cases.extend(stock.map(|kernel| {
        // Both have been seen to do the same; the newer one stands for them.
        let usual = kernel.name.contains("6.12");
        let name = format!("balloon::{}_tells_statistics_and_poison", kernel.name);
        let case = Case::new(name, move |lab| distribution_kernel(lab, &kernel));
        if usual { case } else { case.long() }
    }));
    cases
}

/// Bits 1 and 5 without bit 3 between them: Linux leaves no gap.
fn queues_are_counted(lab: &Lab) -> Result<(), Failure> {
    let ran = lab.run(STEPS, &[])?;
    ran.exits(0)?;
    let told = &ran.results.balloon;
    assert_eq!(told.queue_numbering, Some(QueueNumbering::Dense));
    assert!(accepted(&ran, "STATS_VQ") && accepted(&ran, "PAGE_REPORTING"));
    assert!(!accepted(&ran, "FREE_PAGE_HINT"), "not offered");
    assert!(
        ran.results.counters.reports > 0,
        "the right queue was served"
    );
    statistics_are_plausible(&ran)
}

fn all_at_once(lab: &Lab) -> Result<(), Failure> {
    let sets = [
        "balloon.must_tell_host=true",
        "balloon.hinting=count",
        "balloon.device_init_reported=true",
        "balloon.accept_bit6_ambiguity=true",
    ];
    let ran = lab.run(STEPS, &sets)?;
    ran.exits(0)?;
    let told = &ran.results.balloon;
    assert_eq!(told.queue_numbering, Some(QueueNumbering::Both));
    for name in [
        "MUST_TELL_HOST",
        "STATS_VQ",
        "DEFLATE_ON_OOM",
        "FREE_PAGE_HINT",
        "PAGE_REPORTING",
        "DEVICE_INIT_REPORTED",
    ] {
        assert!(accepted(&ran, name), "{name}: {:?}", ran.results.features);
    }
    assert_eq!(told.poison, None, "this guest does not poison");
    assert!(ran.results.counters.promised_bytes > 0);
    statistics_are_plausible(&ran)
}

fn nothing_optional(lab: &Lab) -> Result<(), Failure> {
    let sets = [
        "balloon.statistics=false",
        "balloon.page_poison=false",
        "balloon.reporting=false",
    ];
    let mut config = lab.config(STEPS, &sets)?;
    on_command_line(&mut config, "init_on_free=1");
    let ran = lab.run_config(&config)?;
    ran.exits(0)?;
    let told = &ran.results.balloon;
    assert_eq!(told.queue_numbering, Some(QueueNumbering::Both), "0 and 1");
    assert_eq!((told.poison, told.statistics.is_some()), (None, false));
    assert_eq!(ran.results.counters.reported_bytes, 0);
    Ok(())
}

/// A guest that clears pages when it frees them says so, and loses no promise.
fn poison_of_zero(lab: &Lab) -> Result<(), Failure> {
    let mut config = lab.config(STEPS, &[])?;
    on_command_line(&mut config, "init_on_free=1");
    let ran = lab.run_config(&config)?;
    ran.exits(0)?;
    assert_eq!(ran.results.balloon.poison, Some(0));
    let counters = ran.results.counters;
    assert!(counters.released_bytes > 0, "{counters:?}");
    assert!(counters.promised_bytes > 0, "{counters:?}");
    Ok(())
}

/// No distribution's cloud kernel can poison with another value than 0.
fn distribution_kernel(lab: &Lab, kernel: &StockKernel) -> Result<(), Failure> {
    let steps = format!("{REBOUND} {STEPS}");
    let mut config = lab.config(&steps, &["balloon.target=64M"])?;
    config.kernel.image.clone_from(&kernel.image);
    config.kernel.initrd = Some(kernel.initrd.clone());
    on_command_line(&mut config, "init_on_free=1");
    let ran = lab.run_config(&config)?;
    ran.exits(0)?;
    works_after_rebinding(&ran, Some(0))
}

/// For a guest that went through [`REBOUND`] with a target of 64 MiB.
pub(crate) fn works_after_rebinding(ran: &Ran, poison: Option<u32>) -> Result<(), Failure> {
    assert_eq!(ran.results.balloon.poison, poison);
    let counters = ran.results.counters;
    assert!(counters.released_bytes > 0, "{counters:?}");
    assert_eq!(counters.promised_bytes, 0, "{counters:?}");
    let inflations = (counters.inflated_pages, counters.deflated_pages);
    assert_eq!(inflations, (2 * BALLOON, BALLOON), "before and after");
    statistics_are_plausible(ran)
}

fn on_command_line(config: &mut Config, word: &str) {
    config.kernel.cmdline.insert_str(0, &format!("{word} "));
}

fn accepted(ran: &Ran, name: &str) -> bool {
    let acknowledged = ran.results.features.acknowledged.iter().flatten();
    acknowledged.into_iter().any(|feature| feature == name)
}

/// The sample the driver gives when it starts.
fn statistics_are_plausible(ran: &Ran) -> Result<(), Failure> {
    let told = &ran.results.balloon;
    let sample = told.statistics.as_ref().ok_or("no statistics")?;
    let value = |statistic: Statistic| {
        let value = sample.values.get(&statistic).copied();
        value.ok_or(format!("no {}: {sample:?}", statistic.name()))
    };
    let total = value(Statistic::Total)?;
    assert!((MEMORY / 2..MEMORY).contains(&total), "{sample:?}");
    let available = value(Statistic::Available)?;
    assert!((total / 2..total).contains(&available), "{sample:?}");
    assert!(value(Statistic::Free)? < total, "{sample:?}");
    assert_eq!(value(Statistic::SwapIn)?, 0, "there is no swap: {sample:?}");
    assert!(sample.values.len() >= 10, "{sample:?}");
    assert!(sample.unknown.is_empty(), "{sample:?}");
    Ok(())
}
