//! What the device offers, and which accepted sets it can work with.

use std::io;

use super::device::{BalloonSpec, Hinting};
use super::spec::{
    DEFLATE_ON_OOM, DEVICE_INIT_ON_INFLATE, DEVICE_INIT_REPORTED, FREE_PAGE_HINT, MUST_TELL_HOST,
    NAMES, PAGE_POISON, PAGE_REPORTING, STATS_VQ,
};
use crate::virtio::device::Refused;
use crate::virtio::features::{Features, RING_EVENT_IDX, VERSION_1};

/// Features that mean nothing without another one.
const NEEDS: [(Features, Features); 1] = [(DEVICE_INIT_REPORTED, PAGE_REPORTING)];

/// The offered set of `spec`: exactly what it asks for and the device serves.
///
/// # Errors
/// `InvalidInput` for a spec that promises what cannot be held.
pub(crate) fn offered(spec: &BalloonSpec) -> io::Result<Features> {
    let unsound = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if spec.device_init_reported && !spec.reporting {
        return unsound("device_init_reported needs reporting");
    }
    if spec.device_init_reported && spec.on_report.zero_by().is_none() {
        return unsound("device_init_reported needs an on_report that zeroes, not keep");
    }
    if spec.device_init_on_inflate && spec.on_inflate.zero_by().is_none() {
        return unsound("device_init_on_inflate needs an on_inflate that zeroes, not keep");
    }
    let hinting = spec.hinting != Hinting::Off;
    if spec.device_init_reported && hinting && !spec.accept_bit6_ambiguity {
        return unsound(
            "device_init_reported beside hinting needs accept_bit6_ambiguity: a driver may take \
             bit 6 for HINT_WAIT_ON_ACK",
        );
    }
    if spec.hinting == Hinting::Discard && !spec.accept_hint_race {
        return unsound(
            "hinting that discards needs accept_hint_race: it loses what a guest writes to a page \
             it hinted at before",
        );
    }
    Ok(VERSION_1
        .with(RING_EVENT_IDX)
        .with_if(MUST_TELL_HOST, spec.must_tell_host)
        .with_if(STATS_VQ, spec.statistics)
        .with_if(DEFLATE_ON_OOM, spec.deflate_on_oom)
        .with_if(FREE_PAGE_HINT, hinting)
        .with_if(PAGE_POISON, spec.page_poison)
        .with_if(PAGE_REPORTING, spec.reporting)
        .with_if(DEVICE_INIT_REPORTED, spec.device_init_reported)
        .with_if(DEVICE_INIT_ON_INFLATE, spec.device_init_on_inflate))
}

/// Whether the device can work with what the driver accepts of `offered`.
///
/// # Errors
/// Which bits it cannot.
pub(crate) fn check_accepted(offered: Features, accepted: Features) -> Result<(), Refused> {
    let extra = accepted.without(offered);
    if !extra.is_none() {
        let bits: Vec<_> = extra.bits().collect();
        return Err(Refused(format!("bits {bits:?} were not offered")));
    }
    if !accepted.contains(VERSION_1) {
        return Err(Refused(
            "a driver without VERSION_1 is not supported".to_owned(),
        ));
    }
    for (feature, needed) in NEEDS {
        if accepted.contains(feature) && !accepted.contains(needed) {
            let [feature, needed] = [feature, needed].map(|set| names(set).join(" "));
            return Err(Refused(format!("{feature} needs {needed}")));
        }
    }
    Ok(())
}

/// The bits of `set` by name, ascending.
pub(crate) fn names(set: Features) -> Vec<String> {
    set.bits()
        .map(|bit| {
            let named = NAMES.iter().find(|(one, _)| *one == Features::bit(bit));
            named.map_or_else(|| format!("bit {bit}"), |(_, name)| (*name).to_owned())
        })
        .collect()
}
