//! The `[balloon]` table: what of it can be offered together, and kept.

use devices::balloon::device::{Hinting, Reclaim};

use super::check::MAX_MEMORY;
use super::entries::{Value, quote};
use super::read_key::{Checked, Checker};
use super::schema::Balloon;
use super::units::format_size;

/// The balloon counts in pages of 4 KiB (virtio 1.3, 5.5.6).
const BALLOON_PAGE: u64 = 4 << 10;
/// Less would have a guest wait for minutes for its largest report (128 MiB).
const MIN_RATE: u64 = 1 << 20;
/// 4 TiB/s: more than any memory takes.
const MAX_RATE: u64 = 4 << 40;
const RECLAIM: [(&str, Reclaim); 3] = [
    (Reclaim::Discard.name(), Reclaim::Discard),
    (Reclaim::Zero.name(), Reclaim::Zero),
    (Reclaim::Keep.name(), Reclaim::Keep),
];

impl Checker<'_> {
    pub(super) fn balloon(&mut self, ram: u64) -> Checked<Balloon> {
        let reporting = self.boolean("balloon.reporting")?.unwrap_or(true);
        let given = self.choice("balloon.on_report", &RECLAIM)?;
        if given.is_some() && !reporting {
            self.no_effect("balloon.on_report", "balloon.reporting = true");
        }
        let on_report = given.unwrap_or(Reclaim::Discard);
        let target = self.size("balloon.target", 0, MAX_MEMORY)?.unwrap_or(0);
        if target >= ram {
            let allowed = format!("less than memory.size, which is {}", format_size(ram));
            return Err(self.not_allowed("balloon.target", &format_size(target), &allowed));
        }
        if target % BALLOON_PAGE != 0 {
            let value = format_size(target);
            return Err(self.not_allowed("balloon.target", &value, "multiples of 4K"));
        }
        let on_inflate = self
            .choice("balloon.on_inflate", &RECLAIM)?
            .unwrap_or(Reclaim::Discard);
        let hinting = self.hinting()?;
        let device_init_reported = self.device_init_reported(reporting, on_report, hinting)?;
        Ok(Balloon {
            reporting,
            device_init_reported,
            on_report,
            on_inflate,
            device_init_on_inflate: self.device_init_on_inflate(on_inflate)?,
            must_tell_host: self.flag("balloon.must_tell_host", true)?,
            statistics: self.flag("balloon.statistics", true)?,
            deflate_on_oom: self.flag("balloon.deflate_on_oom", true)?,
            hinting,
            accept_hint_race: self.flag("balloon.accept_hint_race", false)?,
            accept_bit6_ambiguity: self.flag("balloon.accept_bit6_ambiguity", false)?,
            page_poison: self.flag("balloon.page_poison", true)?,
            zero_rate: self.zero_rate()?,
            target,
            lie_about_zero: self.lie_about_zero()?,
        })
    }

    fn zero_rate(&self) -> Checked<u64> {
        const KEY: &str = "balloon.zero_rate";
        let rate = self.size(KEY, 0, MAX_RATE)?.unwrap_or(0);
        if rate != 0 && rate < MIN_RATE {
            let allowed = format!("at least {}, or \"0\" for no limit", format_size(MIN_RATE));
            return Err(self.not_allowed(KEY, &format_size(rate), &allowed));
        }
        Ok(rate)
    }

    fn flag(&self, key: &'static str, default: bool) -> Checked<bool> {
        Ok(self.boolean(key)?.unwrap_or(default))
    }

    fn device_init_on_inflate(&self, on_inflate: Reclaim) -> Checked<bool> {
        const KEY: &str = "balloon.device_init_on_inflate";
        let wanted = self.flag(KEY, false)?;
        if wanted && on_inflate == Reclaim::Keep {
            return Err(self.conflict(
                KEY,
                &format!(
                    "true needs balloon.on_inflate = \"discard\" or \"zero\", not \"keep\"{}",
                    self.place_of("balloon.on_inflate")
                ),
            ));
        }
        Ok(wanted)
    }

    /// A hint says that a page was free, not that it still is.
    fn hinting(&self) -> Checked<Hinting> {
        const KEY: &str = "balloon.hinting";
        let names = [Hinting::Off, Hinting::Count, Hinting::Discard].map(|h| (h.name(), h));
        let hinting = self.choice(KEY, &names)?.unwrap_or(Hinting::Off);
        if hinting == Hinting::Discard && !self.flag("balloon.accept_hint_race", false)? {
            return Err(self.conflict(
                KEY,
                "\"discard\" loses what a guest writes to a page between hinting at it and the \
                 discard; use \"count\", or accept that with balloon.accept_hint_race = true",
            ));
        }
        Ok(hinting)
    }

    /// "auto" offers bit 6 whenever the device can keep its promise.
    fn device_init_reported(
        &self,
        reporting: bool,
        on_report: Reclaim,
        hinting: Hinting,
    ) -> Checked<bool> {
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
        let kept = on_report == Reclaim::Keep;
        let ambiguous =
            hinting != Hinting::Off && !self.flag("balloon.accept_bit6_ambiguity", false)?;
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
            // Another proposal gives bit 6 a meaning of its own beside bit 3.
            Some(true) if ambiguous => Err(self.conflict(
                KEY,
                &format!(
                    "true beside hinting{} lets a guest take bit 6 for HINT_WAIT_ON_ACK; set \
                     balloon.hinting = \"off\", or balloon.accept_bit6_ambiguity = true",
                    self.place_of("balloon.hinting")
                ),
            )),
            wanted => Ok(wanted.unwrap_or(reporting && !kept && !ambiguous)),
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
}
