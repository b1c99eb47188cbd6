//! Rate limits learned from the responses of upstreams.
//!
//! The rate is cut by a factor after an overload (429) and grows by a small factor otherwise,
//! always between the configured bounds. Bursts never change.

use std::time::{Duration, Instant};

use headworks_core::{Cost, Limits, Rate, TargetId};

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
    rps: Option<f64>,
    tokens_per_sec: Option<f64>,
    changed: Option<Instant>,
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
        now: Instant,
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
            .is_some_and(|changed| now.duration_since(changed) < UPDATE_INTERVAL)
        {
            return false;
        }
        let before = (rates.rps, rates.tokens_per_sec);
        rates.rps = adjusted_rate(rates.rps, bounds[0], hints.rps, hints.overloaded);
        rates.tokens_per_sec = adjusted_rate(
            rates.tokens_per_sec,
            bounds[1],
            hints.tokens_per_sec,
            hints.overloaded,
        );
        let differs = before != (rates.rps, rates.tokens_per_sec);
        if differs {
            rates.changed = Some(now);
        }
        differs
    }

    /// Limits of an upstream, with the learned rates in place of the configured ones.
    pub(crate) fn limits(&self, index: usize, settings: &UpstreamSettings) -> Limits {
        let rates = self.rates.get(index).copied().unwrap_or_default();
        Limits {
            concurrent: settings.max_concurrent,
            requests: effective_rate(settings.max_rps, rates.rps),
            cost: effective_rate(settings.max_tokens_per_sec, rates.tokens_per_sec),
            max_cost: settings.max_context_length.map(Cost),
        }
    }
}

/// A learned rate with the burst of the configured one.
fn effective_rate(most: Option<f64>, learned: Option<f64>) -> Option<Rate> {
    let configured = Rate::per_second(most.filter(|most| *most > 0.0)?);
    Some(match learned {
        Some(learned) => Rate::per_second(learned).with_burst(configured.burst()),
        None => configured,
    })
}

fn adjusted_rate(
    rate: Option<f64>,
    (least, most): (Option<f64>, Option<f64>),
    stated: Option<f64>,
    overloaded: bool,
) -> Option<f64> {
    let (least, most) = (least?, most?);
    let now = rate.unwrap_or(most);
    let stated = stated.unwrap_or(most);
    // A rate limit that the upstream states itself is an upper bound, with and without an overload.
    let wanted = if overloaded {
        now.min(stated) * DECREASE_FACTOR
    } else {
        (now * INCREASE_FACTOR).min(stated)
    };
    Some(wanted.clamp(least, most))
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
            (LearnedLimits::default(), TargetId::new(0), Instant::now());
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
    fn nothing_is_learned_unless_asked_for() {
        let plain = UpstreamSettings {
            max_rps: Some(10.0),
            ..UpstreamSettings::default()
        };
        let overload = Hints {
            overloaded: true,
            ..Hints::default()
        };
        assert!(!LearnedLimits::default().update(
            TargetId::new(3),
            &plain,
            &overload,
            Instant::now()
        ));
    }
}
