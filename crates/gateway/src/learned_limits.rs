//! Rate limits learned from the responses of upstreams.
//!
//! The rate is cut by a factor after an overload (429) and grows by a small factor otherwise,
//! always between the configured bounds. Bursts never change.

use std::time::Duration;

use headworks_core::{AdaptiveLimit, Cost, Limits, Rate, TargetId, Time};

use crate::config::UpstreamSettings;
use crate::upstream::Hints;

/// Factor applied to the rate after an overload.
const DECREASE_FACTOR: f64 = 0.7;
/// Factor by which the rate grows, at most once per `UPDATE_INTERVAL`, while there is no overload.
const INCREASE_FACTOR: f64 = 1.05;
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Learned rates of every upstream, by target.
#[derive(Debug, Default)]
pub(crate) struct LearnedLimits {
    rates: Vec<Rates>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    rps: Option<AdaptiveLimit>,
    tokens_per_sec: Option<AdaptiveLimit>,
    changed: Option<Time>,
}

impl Rates {
    fn values(&self) -> [Option<f64>; 2] {
        [self.rps, self.tokens_per_sec].map(|rate| rate.map(|rate| rate.get()))
    }
}

impl LearnedLimits {
    /// Updates the rates of an upstream from one response. Returns whether a rate changed.
    ///
    /// A rate changes at most once per `UPDATE_INTERVAL`: the responses to a burst of requests all
    /// report the same overload, which must count once.
    pub(crate) fn update(
        &mut self,
        target: TargetId,
        settings: &UpstreamSettings,
        hints: &Hints,
        now: Time,
    ) -> bool {
        let bounds = [
            (settings.min_rps, settings.max_rps),
            (settings.min_tokens_per_sec, settings.max_tokens_per_sec),
        ];
        if bounds.iter().all(|(least, _)| least.is_none()) {
            return false;
        }
        if self.rates.len() <= target.index() {
            self.rates.resize(target.index() + 1, Rates::default());
        }
        let rates = &mut self.rates[target.index()];
        if rates
            .changed
            .is_some_and(|changed| now < changed + UPDATE_INTERVAL)
        {
            return false;
        }
        let before = rates.values();
        let overloaded = hints.overloaded.then_some(now);
        adjust(&mut rates.rps, bounds[0], hints.rps, overloaded);
        let tokens = &mut rates.tokens_per_sec;
        adjust(tokens, bounds[1], hints.tokens_per_sec, overloaded);
        let differs = before != rates.values();
        if differs {
            rates.changed = Some(now);
        }
        differs
    }

    /// The learned rates of an upstream: requests and tokens per second.
    pub(crate) fn rates(&self, target: TargetId) -> [Option<f64>; 2] {
        self.rates
            .get(target.index())
            .map_or([None; 2], Rates::values)
    }

    /// Takes rates that another process has learned. Returns whether a rate changed.
    pub(crate) fn set(
        &mut self,
        target: TargetId,
        settings: &UpstreamSettings,
        learned: [Option<f64>; 2],
    ) -> bool {
        if self.rates.len() <= target.index() {
            self.rates.resize(target.index() + 1, Rates::default());
        }
        let rates = &mut self.rates[target.index()];
        let before = rates.values();
        let rate = |(least, most): (Option<f64>, Option<f64>), learned: Option<f64>| {
            let mut rate = AdaptiveLimit::new(least?, most?);
            rate.lower_to(learned?);
            Some(rate)
        };
        rates.rps = rate((settings.min_rps, settings.max_rps), learned[0]);
        let bounds = (settings.min_tokens_per_sec, settings.max_tokens_per_sec);
        rates.tokens_per_sec = rate(bounds, learned[1]);
        before != rates.values()
    }

    /// Limits of an upstream, with the learned rates in place of the configured ones.
    pub(crate) fn limits(&self, index: usize, settings: &UpstreamSettings) -> Limits {
        let rates = self.rates.get(index).copied().unwrap_or_default();
        Limits {
            concurrent: settings.max_concurrent,
            requests: effective_rate((settings.min_rps, settings.max_rps), rates.rps),
            cost: effective_rate(
                (settings.min_tokens_per_sec, settings.max_tokens_per_sec),
                rates.tokens_per_sec,
            ),
            max_cost: settings.max_context_length.map(Cost),
        }
    }
}

/// A learned rate, within the bounds that are configured now, with the burst of the upper one. A
/// reload may have changed the bounds since the rate was learned.
fn effective_rate(
    (least, most): (Option<f64>, Option<f64>),
    learned: Option<AdaptiveLimit>,
) -> Option<Rate> {
    let most = most.filter(|most| *most > 0.0)?;
    let configured = Rate::per_second(most);
    Some(match (learned, least) {
        (Some(mut learned), Some(least)) => {
            learned.set_bounds(least, most);
            Rate::per_second(learned.get()).with_burst(configured.burst())
        }
        _ => configured,
    })
}

/// Moves a rate after a response; `overloaded` is the time of one that reports an overload.
fn adjust(
    rate: &mut Option<AdaptiveLimit>,
    bounds: (Option<f64>, Option<f64>),
    stated: Option<f64>,
    overloaded: Option<Time>,
) {
    let (Some(least), Some(most)) = bounds else {
        *rate = None;
        return;
    };
    let rate = rate.get_or_insert_with(|| AdaptiveLimit::new(least, most));
    rate.set_bounds(least, most);
    let stated = stated.unwrap_or(most);
    if let Some(now) = overloaded {
        // The caller counts the overloads of one interval once.
        rate.cut(now, now, DECREASE_FACTOR);
        rate.lower_to(stated * DECREASE_FACTOR);
    } else {
        rate.raise_to((rate.get() * INCREASE_FACTOR).min(stated));
        rate.lower_to(stated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> UpstreamSettings {
        UpstreamSettings {
            max_tokens_per_sec: Some(1000.0),
            min_tokens_per_sec: Some(100.0),
            ..UpstreamSettings::default()
        }
    }

    #[test]
    fn rates_move_between_their_bounds_and_bursts_stay() {
        let (mut learned, target, mut now) =
            (LearnedLimits::default(), TargetId::new(0), Time::ZERO);
        let overload = Hints {
            overloaded: true,
            ..Hints::default()
        };
        let rate = |learned: &LearnedLimits| learned.limits(0, &settings()).cost.unwrap();
        assert!(learned.update(target, &settings(), &overload, now));
        assert_eq!(
            rate(&learned),
            Rate::per_second(700.0).with_burst(Cost(1000))
        );
        assert!(
            !learned.update(target, &settings(), &overload, now),
            "at most once a second"
        );
        for _ in 0..20 {
            now += UPDATE_INTERVAL;
            learned.update(target, &settings(), &overload, now);
        }
        assert_eq!(
            rate(&learned),
            Rate::per_second(100.0).with_burst(Cost(1000))
        );
        for _ in 0..100 {
            now += UPDATE_INTERVAL;
            learned.update(target, &settings(), &Hints::default(), now);
        }
        assert_eq!(rate(&learned), Rate::per_second(1000.0));
        now += UPDATE_INTERVAL;
        let stated = Hints {
            tokens_per_sec: Some(500.0),
            ..Hints::default()
        };
        learned.update(target, &settings(), &stated, now);
        assert_eq!(
            rate(&learned),
            Rate::per_second(500.0).with_burst(Cost(1000))
        );
    }

    #[test]
    fn a_reload_applies_to_a_rate_that_was_learned() {
        let mut learned = LearnedLimits::default();
        let overload = Hints {
            overloaded: true,
            ..Hints::default()
        };
        assert!(learned.update(TargetId::new(0), &settings(), &overload, Time::ZERO));
        let rate = |settings: &UpstreamSettings| learned.limits(0, settings).cost.unwrap();
        let lower = UpstreamSettings {
            max_tokens_per_sec: Some(200.0),
            ..settings()
        };
        assert_eq!(rate(&lower), Rate::per_second(200.0));
        let no_longer_learned = UpstreamSettings {
            min_tokens_per_sec: None,
            ..settings()
        };
        assert_eq!(rate(&no_longer_learned), Rate::per_second(1000.0));
    }

    #[test]
    fn nothing_is_learned_unless_asked_for() {
        let plain = UpstreamSettings {
            max_rps: Some(10.0),
            ..UpstreamSettings::default()
        };
        let overload = Hints {
            overloaded: true,
            ..Hints::default()
        };
        assert!(!LearnedLimits::default().update(TargetId::new(3), &plain, &overload, Time::ZERO));
    }
}
