//! Time rules and quota periods: when a rule holds, when that changes next, and when a period ends.

use std::time::Duration;

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use crate::config::{GatewayConfig, RuleSettings, check_rates};

/// Days and times of day at which a rule holds.
#[derive(Clone, Debug)]
pub(crate) struct TimeRule {
    days: Vec<Weekday>,
    from: Time,
    to: Time,
    zone: TimeZone,
}

impl TimeRule {
    pub(crate) fn new(settings: &RuleSettings, config: &GatewayConfig) -> Result<TimeRule, String> {
        let zone = match settings.zone.as_str() {
            "" => &config.time_zone,
            zone => zone,
        };
        let levels = usize::from(config.scheduler_priority_levels);
        if !settings.weights.is_empty() && settings.weights.len() != levels {
            return Err(format!(
                "`weights`: expected one per class, {levels} in total"
            ));
        }
        let tenants = settings.tenant.iter();
        let none = tenants
            .clone()
            .any(|tenant| tenant.weight == Some(0) || tenant.max_concurrent == Some(0));
        if none || settings.weights.contains(&0) || settings.max_concurrent == Some(0) {
            return Err("weights and max_concurrent must be at least 1".to_owned());
        }
        check_rates([settings.max_rps, settings.max_tokens_per_sec])?;
        for tenant in &settings.tenant {
            check_rates([tenant.max_rps, tenant.max_tokens_per_sec])?;
        }
        Ok(TimeRule {
            days: settings
                .days
                .iter()
                .map(|day| parse_weekday(day))
                .collect::<Result<_, _>>()?,
            from: parse_time(&settings.from)?,
            to: parse_time(&settings.to)?,
            zone: TimeZone::get(zone).map_err(|error| error.to_string())?,
        })
    }

    /// Whether the rule holds at `now`.
    pub(crate) fn holds(&self, now: Timestamp) -> bool {
        let here = now.to_zoned(self.zone.clone());
        let (today, time) = (here.weekday(), here.time());
        let on = |day: Weekday| self.days.is_empty() || self.days.contains(&day);
        if self.from < self.to {
            return on(today) && self.from <= time && time < self.to;
        }
        // A rule over midnight belongs to the day on which it begins.
        (on(today) && time >= self.from) || (on(today.previous()) && time < self.to)
    }

    /// The next time at which the rule may begin or end. Its days are not considered, so the rule
    /// may also stay as it is.
    pub(crate) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let here: Zoned = now.to_zoned(self.zone.clone());
        // Today and tomorrow suffice: both times of day occur once in each.
        let moments = (0..=1).flat_map(|days| {
            let date = here.date().checked_add(days.days()).ok();
            [self.from, self.to]
                .into_iter()
                .filter_map(move |time| Some(date?.to_datetime(time)))
        });
        moments
            .filter_map(|moment| moment.to_zoned(self.zone.clone()).ok())
            .map(|moment| moment.timestamp())
            .filter(|moment| *moment > now)
            .min()
    }
}

fn parse_time(text: &str) -> Result<Time, String> {
    match text {
        "" | "24:00" => Ok(Time::midnight()),
        text => text
            .parse()
            .map_err(|_| format!("invalid time of day `{text}`: expected one such as \"08:30\"")),
    }
}

fn parse_weekday(text: &str) -> Result<Weekday, String> {
    let short = text.get(..3).unwrap_or(text).to_ascii_lowercase();
    Ok(match short.as_str() {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => {
            return Err(format!(
                "invalid day `{text}`: expected one such as \"mon\""
            ));
        }
    })
}

/// Calendar period of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Day,
    Month,
}

impl Period {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Month => "month",
        }
    }

    /// Time until the next period begins.
    pub(crate) fn remaining(self, now: Timestamp, zone: &TimeZone) -> Option<Duration> {
        let next = self.next(now, zone)?;
        Duration::try_from(next.duration_since(now)).ok()
    }

    /// The time at which the next period begins.
    pub(crate) fn next(self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let here = now.to_zoned(zone.clone());
        let next = match self {
            Period::Day => here.tomorrow().ok()?,
            Period::Month => here.last_of_month().ok()?.tomorrow().ok()?,
        };
        Some(next.start_of_day().ok()?.timestamp())
    }
}

/// A calendar day as a number: 15 November 2026 is 20261115.
pub(crate) fn day(now: Timestamp, zone: &TimeZone) -> u32 {
    let here = now.to_zoned(zone.clone());
    let (year, month, day) = (here.year(), here.month(), here.day());
    u32::try_from(i32::from(year) * 10_000 + i32::from(month) * 100 + i32::from(day)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(days: &[&str], from: &str, to: &str) -> TimeRule {
        let settings = RuleSettings {
            days: days.iter().map(ToString::to_string).collect(),
            from: from.into(),
            to: to.into(),
            zone: "Europe/Berlin".into(),
            ..RuleSettings::default()
        };
        TimeRule::new(&settings, &GatewayConfig::default()).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn over_midnight_the_day_is_the_one_it_began_on() {
        // Friday evening, in Berlin, in winter.
        let night = rule(&["fri"], "22:00", "06:00");
        assert!(!night.holds(at("2026-11-13T20:59:59Z")));
        assert!(night.holds(at("2026-11-13T21:00:00Z")));
        assert!(night.holds(at("2026-11-14T04:59:59Z")));
        assert!(!night.holds(at("2026-11-14T05:00:00Z")));
        assert!(!night.holds(at("2026-11-14T22:00:00Z")));
    }

    #[test]
    fn the_rest_of_a_day_and_of_a_month_is_known_across_a_clock_change() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        // A day in Berlin has 25 hours on 25 October 2026.
        let remaining = |period: Period, now| period.remaining(at(now), &zone).unwrap().as_secs();
        let midnight = "2026-10-24T22:00:00Z";
        assert_eq!(remaining(Period::Day, midnight), 25 * 3600);
        assert_eq!(remaining(Period::Month, midnight), (7 * 24 + 1) * 3600);
        assert_eq!(remaining(Period::Month, "2026-12-31T22:59:59Z"), 1);
    }

    #[test]
    fn changes_are_foreseen_across_a_clock_change() {
        // On 25 October 2026 clocks in Berlin go back at 03:00.
        let day = rule(&[], "08:00", "18:00");
        let change = day.next_change(at("2026-10-24T20:00:00Z")).unwrap();
        assert_eq!(change, at("2026-10-25T07:00:00Z"));
        assert!(day.holds(change));
        assert_eq!(day.next_change(change), Some(at("2026-10-25T17:00:00Z")));
    }

    #[test]
    fn a_whole_day() {
        let sunday = rule(&["Sunday"], "", "");
        assert!(sunday.holds(at("2026-11-15T12:00:00Z")));
        assert!(!sunday.holds(at("2026-11-16T12:00:00Z")));
        assert!(parse_weekday("someday").is_err() && parse_time("25:00").is_err());
    }
}
