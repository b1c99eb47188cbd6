//! Limits and weights that replace the configured ones on one node of a fleet.
//!
//! A node's configuration states the limits of the whole fleet. [`LocalLimits`] states the part of
//! them that this node may use now. They are plain values that
//! [`Core::set_limits`](crate::Core::set_limits) applies without rebuilding the configuration, and
//! they outlive a reload: a node must not have the whole limit for the time between a reload and
//! the next share.

use crate::bucket::{Rate, WHOLE};
use crate::config::Limits;
use crate::fair_queue::InverseWeight;
use crate::id::{Class, Flow, TargetId};
use crate::time::Time;
use std::collections::BTreeMap;

/// The part of one gate's limits that a node may use. `None` keeps the configured limit. A share
/// of 0 is shut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalShare {
    /// Jobs running at once.
    pub concurrent: Option<u32>,
    /// Jobs started in a second.
    pub requests: Option<Rate>,
    /// Cost started in a second.
    pub cost: Option<Rate>,
}

impl LocalShare {
    /// Replaces the limits that it names.
    fn over(self, limits: Limits) -> Limits {
        // Whether estimates are refunded is the provider's way, not the share's.
        let replace = |share: Option<Rate>, configured: Option<Rate>| match (share, configured) {
            (Some(share), Some(configured)) if !configured.refunds() => {
                Some(share.without_refund())
            }
            (share, configured) => share.or(configured),
        };
        Limits {
            concurrent: self.concurrent.or(limits.concurrent),
            requests: replace(self.requests, limits.requests),
            cost: replace(self.cost, limits.cost),
            max_cost: limits.max_cost,
        }
    }
}

/// Limits and weights in force on this node in place of the configured ones.
///
/// ```
/// use headworks_core::{Config, Core, Job, LocalLimits, LocalShare, Time};
///
/// let mut core = Core::new(Config::default(), Time::ZERO)?;
/// let one = LocalShare { concurrent: Some(1), ..LocalShare::default() };
/// core.set_limits(Time::ZERO, LocalLimits { all: one, ..LocalLimits::default() });
/// for n in 0..2 {
///     core.submit(Time::ZERO, Job::new(n)).expect("room");
/// }
/// let _running = core.next(Time::ZERO).expect("one may run here");
/// assert!(core.next(Time::ZERO).is_none(), "the configuration sets no limit, the share does");
/// # Ok::<(), headworks_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalLimits {
    /// When they end: from then on nothing is granted until others are set. A process that was
    /// stopped meanwhile must not go on with what others may have by now.
    pub until: Option<Time>,
    /// Of everything together.
    pub all: LocalShare,
    /// Of flows.
    pub flows: BTreeMap<Flow, LocalShare>,
    /// Of all other flows: the part of the configured limits of each, in billionths. `None` is the
    /// whole.
    pub other_flows: Option<u64>,
    /// Of targets.
    pub targets: BTreeMap<TargetId, LocalShare>,
    /// The weights of classes for service, which may be fractions. Others keep the configured one.
    pub class_weights: BTreeMap<Class, f64>,
    /// The weights of flows for service, which may be fractions. Others keep the configured one.
    /// Places are shared by the configured weights.
    pub flow_weights: BTreeMap<Flow, f64>,
}

impl LocalLimits {
    pub(crate) fn limits_of_all(&self, configured: Limits) -> Limits {
        self.all.over(configured)
    }

    pub(crate) fn limits_of_flow(&self, flow: Flow, configured: Limits) -> Limits {
        match (self.flows.get(&flow), self.other_flows) {
            (Some(share), _) => share.over(configured),
            (None, Some(billionths)) => part(configured, billionths),
            (None, None) => configured,
        }
    }

    pub(crate) fn limits_of_target(&self, target: TargetId, configured: Limits) -> Limits {
        let share = self.targets.get(&target).copied();
        share.unwrap_or_default().over(configured)
    }

    pub(crate) fn flow_weight(&self, flow: Flow, configured: u32) -> InverseWeight {
        weight(self.flow_weights.get(&flow), configured)
    }

    pub(crate) fn class_weight(&self, class: Class, configured: u32) -> InverseWeight {
        weight(self.class_weights.get(&class), configured)
    }

    /// The flows whose limits or weights differ from those of another state.
    pub(crate) fn changed_flows(&self, other: &Self) -> Vec<Flow> {
        let mut changed = changed_keys(&self.flows, &other.flows);
        changed.extend(changed_keys(&self.flow_weights, &other.flow_weights));
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// The targets whose limits differ from those of another state.
    pub(crate) fn changed_targets(&self, other: &Self) -> Vec<TargetId> {
        changed_keys(&self.targets, &other.targets)
    }
}

fn weight(local: Option<&f64>, configured: u32) -> InverseWeight {
    match local {
        Some(weight) => InverseWeight::of_fraction(*weight),
        None => InverseWeight::of(configured),
    }
}

/// A part of a gate's limits, rounded down.
fn part(limits: Limits, billionths: u64) -> Limits {
    let slots = |slots: u32| {
        // Rounded down, so that the parts of all nodes never add up to more than the limit.
        let part = u64::from(slots) * billionths.min(WHOLE) / WHOLE;
        part as u32
    };
    Limits {
        concurrent: limits.concurrent.map(slots),
        requests: limits.requests.map(|rate| rate.part(billionths)),
        cost: limits.cost.map(|rate| rate.part(billionths)),
        max_cost: limits.max_cost,
    }
}

/// The keys whose values are not the same in both, in order.
fn changed_keys<K: Ord + Copy, V: PartialEq>(
    one: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
) -> Vec<K> {
    let changed = one
        .iter()
        .filter(|(key, value)| other.get(key) != Some(value));
    let gone = other.keys().filter(|key| !one.contains_key(key));
    changed.map(|(key, _)| *key).chain(gone.copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Cost;

    fn configured() -> Limits {
        Limits {
            concurrent: Some(9),
            requests: Some(Rate::per_second(10.0)),
            cost: Some(Rate::per_second(100.0).without_refund()),
            max_cost: Some(Cost(50)),
        }
    }

    #[test]
    fn a_share_replaces_what_it_names_and_nothing_else() {
        let share = LocalShare {
            concurrent: Some(2),
            cost: Some(Rate::share(1_000_000, 500_000)),
            ..LocalShare::default()
        };
        let limits = share.over(configured());
        assert_eq!(limits.concurrent, Some(2));
        assert_eq!(limits.requests, configured().requests);
        assert_eq!(
            limits.max_cost,
            Some(Cost(50)),
            "a job's size is not shared"
        );
        let cost = limits.cost.expect("a rate");
        assert_eq!(cost.micros_per_second(), 1_000_000);
        assert!(!cost.refunds(), "the provider still reserves up front");
    }

    #[test]
    fn flows_that_are_not_named_get_their_part_rounded_down() {
        let local = LocalLimits {
            flows: BTreeMap::from([(Flow(1), LocalShare::default())]),
            other_flows: Some(WHOLE / 4),
            ..LocalLimits::default()
        };
        assert_eq!(local.limits_of_flow(Flow(1), configured()), configured());
        let limits = local.limits_of_flow(Flow(2), configured());
        assert_eq!(limits.concurrent, Some(2), "a quarter of nine");
        let requests = limits.requests.expect("a rate");
        assert_eq!(requests.micros_per_second(), 2_500_000);
        assert!(requests.is_share());
        let none = local.limits_of_flow(Flow(2), Limits::default());
        assert_eq!(none, Limits::default(), "there is no limit to share");
    }

    #[test]
    fn parts_of_all_nodes_never_exceed_the_whole() {
        for billionths in [0, 1, WHOLE / 3, WHOLE - 1, WHOLE, u64::MAX] {
            let limits = part(configured(), billionths);
            assert!(limits.concurrent <= configured().concurrent);
            let rate = limits.requests.expect("a rate").micros_per_second();
            assert!(rate <= 10_000_000, "{billionths}: {rate}");
        }
    }

    #[test]
    fn only_what_differs_has_changed() {
        let share = |concurrent| LocalShare {
            concurrent: Some(concurrent),
            ..LocalShare::default()
        };
        let before = LocalLimits {
            flows: BTreeMap::from([
                (Flow(1), share(1)),
                (Flow(2), share(2)),
                (Flow(3), share(3)),
            ]),
            flow_weights: BTreeMap::from([(Flow(3), 0.5)]),
            targets: BTreeMap::from([(TargetId(0), share(1))]),
            ..LocalLimits::default()
        };
        let mut after = before.clone();
        after.flows.insert(Flow(2), share(7));
        after.flows.remove(&Flow(3));
        after.flow_weights.insert(Flow(3), 0.25);
        after.targets.insert(TargetId(4), share(1));
        assert_eq!(
            after.changed_flows(&before),
            [Flow(2), Flow(3)],
            "each once"
        );
        assert_eq!(after.changed_targets(&before), [TargetId(4)]);
        assert_eq!(before.changed_flows(&before), []);
    }

    #[test]
    fn a_local_weight_comes_before_the_configured_one() {
        let local = LocalLimits {
            class_weights: BTreeMap::from([(Class(1), 0.5)]),
            ..LocalLimits::default()
        };
        assert_eq!(local.class_weight(Class(0), 3), InverseWeight::of(3));
        assert_eq!(
            local.class_weight(Class(1), 3),
            InverseWeight::of_fraction(0.5)
        );
        assert_eq!(local.flow_weight(Flow(1), 4), InverseWeight::of(4));
    }
}
