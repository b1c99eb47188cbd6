//! Settings of a core: classes, flows, targets and limits.
//!
//! A configuration is plain values; [`Core::reconfigure`](crate::Core::reconfigure) takes a new one
//! at any time. [`Config::check`] says what is wrong with it in words that name the setting. The
//! configuration in force has passed that check, and the engine relies on it: there is at least one
//! class, and no weight, bound or concurrency is 0.
//!
//! A [`TargetId`](crate::TargetId) is a place in `targets`, so a new configuration must not reorder
//! them, and must name those that were added at work.

use crate::backoff::Backoff;
use crate::bucket::Rate;
use crate::id::{Class, Cost, Domain, Flow};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

/// More classes than this are refused: a selection looks at each.
pub const MAX_CLASSES: usize = 64;

/// Domains have numbers below this: a selection looks at each.
pub const MAX_DOMAINS: usize = 1024;

/// More targets than this in one set are refused: a choice looks at each of them.
pub const MAX_SET: usize = 256;

/// Everything a core is told.
///
/// ```
/// use headworks_core::{Config, ConfigError, Flow, FlowConfig, Limits, TargetConfig};
///
/// let mut config = Config {
///     // Two far sides, each of which takes four jobs at once.
///     targets: vec![
///         TargetConfig {
///             limits: Limits { concurrent: Some(4), ..Limits::default() },
///             ..TargetConfig::default()
///         };
///         2
///     ],
///     ..Config::default()
/// };
/// // One tenant counts twice inside its class.
/// config.flows.insert(Flow(7), FlowConfig { weight: 2, ..FlowConfig::default() });
/// assert_eq!(config.check(), Ok(()));
///
/// config.targets[1].weight = 0;
/// assert_eq!(config.check(), Err(ConfigError::Weight("target 1".into())));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How the next job is chosen.
    pub policy: Policy,
    /// The classes, most urgent first.
    pub classes: Vec<ClassConfig>,
    /// How many jobs may wait.
    pub bound: Bound,
    /// How many jobs may be submitted with a start time that has not come.
    pub delayed_bound: usize,
    /// How many places may be booked by refused jobs; 0 turns booking off.
    pub bookings: usize,
    /// Limits on everything together.
    pub limits: Limits,
    /// Limits and weight of a flow that has none of its own.
    pub default_flow: FlowConfig,
    /// Flows with a weight or limits of their own.
    pub flows: BTreeMap<Flow, FlowConfig>,
    /// The targets, known by their place. An empty list means one target without limits.
    pub targets: Vec<TargetConfig>,
    /// How many jobs that only one target can serve may wait for it; `None` for
    /// max(bound / 10, 2 × bound / targets), where a bound for each class counts for all of them.
    pub max_waiting: Option<usize>,
    /// The fate of jobs that wait for a target when it is suspended.
    pub on_suspend: OnSuspend,
    /// How long a job waits between its attempts.
    pub backoff: Backoff,
    /// Attempts of a job in total.
    pub attempts: u32,
    /// How long a delayed job that finds no place is postponed, at least 10 ms.
    pub postpone_by: Duration,
    /// Whether a job that is expected to expire before its turn is refused at once.
    pub refuse_unreachable: bool,
    /// Seeds the hash tables: random in production, fixed in simulations. It changes no decision.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            policy: Policy::Hybrid,
            classes: ClassConfig::halving(10),
            bound: Bound::PerClass(1000),
            delayed_bound: 100_000,
            bookings: 1000,
            limits: Limits::default(),
            default_flow: FlowConfig::default(),
            flows: BTreeMap::new(),
            targets: Vec::new(),
            max_waiting: None,
            on_suspend: OnSuspend::Keep,
            backoff: Backoff::default(),
            attempts: 3,
            postpone_by: Duration::from_secs(10),
            refuse_unreachable: false,
            seed: 0,
        }
    }
}

/// How the next job is chosen among those whose gates are open.
///
/// Exhaustive on purpose: every place that decides by policy matches all of them, or asks a method
/// here that does, so that the compiler names the places to visit when one is added. In the core
/// these are `rank` and `fixed_rank` (`classes.rs`) and `precedes` (`engine/select.rs`); the
/// auditor in `headworks-sim` states independently what each policy forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The oldest, whatever its class and flow.
    Fifo,
    /// The most urgent class first, always.
    Strict,
    /// Classes share the cost by their weights.
    Wfq,
    /// Class 0 first, always; the rest share by their weights.
    Hybrid,
}

impl Policy {
    /// All policies; configurations, the console and the random walks offer these.
    pub const ALL: [Policy; Policy::COUNT] =
        [Policy::Fifo, Policy::Strict, Policy::Wfq, Policy::Hybrid];

    /// Exhaustive, so that the compiler asks for a place of a new variant in [`Policy::ALL`].
    const COUNT: usize = match Policy::Fifo {
        Policy::Fifo | Policy::Strict | Policy::Wfq | Policy::Hybrid => 4,
    };

    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Strict => "strict",
            Policy::Wfq => "wfq",
            Policy::Hybrid => "hybrid",
        }
    }

    /// Whether jobs go in the order of their arrival, whatever their flow.
    #[inline]
    #[must_use]
    pub const fn is_by_arrival(self) -> bool {
        match self {
            Policy::Fifo => true,
            Policy::Strict | Policy::Wfq | Policy::Hybrid => false,
        }
    }

    /// Whether a class shares with others by weight.
    #[inline]
    #[must_use]
    pub fn shares(self, class: Class) -> bool {
        match self {
            Policy::Wfq => true,
            Policy::Hybrid => class != Class(0),
            Policy::Strict | Policy::Fifo => false,
        }
    }
}

/// How many jobs may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// This many in each class of a domain.
    PerClass(usize),
    /// This many in all classes together.
    Shared(usize),
}

impl Bound {
    /// The number.
    #[must_use]
    pub const fn places(self) -> usize {
        match self {
            Bound::PerClass(places) | Bound::Shared(places) => places,
        }
    }
}

/// One class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Its share under `wfq` and `hybrid`.
    pub weight: u32,
    /// A lane head that waited longer than this goes next, at most one grant in four.
    pub aging: Option<Duration>,
    /// With a shared bound: an arrival that finds no place sheds the newest waiting job of that
    /// class or a less urgent one.
    pub displaces: Option<Class>,
}

impl ClassConfig {
    /// A class of that weight.
    #[must_use]
    pub const fn weight(weight: u32) -> Self {
        ClassConfig {
            weight,
            aging: None,
            displaces: None,
        }
    }

    /// `count` classes of halving weight; the last two have 1. Ten of them: 256, 128, … 2, 1, 1.
    /// Weights stop at 2³¹.
    #[must_use]
    pub fn halving(count: usize) -> Vec<Self> {
        let top = count.saturating_sub(2).min(31);
        (0..count)
            .map(|i| ClassConfig::weight(1 << top.saturating_sub(i)))
            .collect()
    }
}

/// The limits of a gate. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Jobs running at once.
    pub concurrent: Option<u32>,
    /// Jobs started in a second.
    pub requests: Option<Rate>,
    /// Cost started in a second.
    pub cost: Option<Rate>,
    /// The cost of one job; more is refused for good.
    pub max_cost: Option<Cost>,
}

/// One flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowConfig {
    /// Its share inside a class.
    pub weight: u32,
    /// Its limits over all classes.
    pub limits: Limits,
}

impl Default for FlowConfig {
    fn default() -> Self {
        FlowConfig {
            weight: 1,
            limits: Limits::default(),
        }
    }
}

/// One target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetConfig {
    /// Its share of the jobs that others could serve as well.
    pub weight: u32,
    /// Its limits.
    pub limits: Limits,
    /// How many faults in a row suspend it; 0 for never.
    pub fault_threshold: u32,
    /// How long faults suspend it.
    pub suspend_for: Duration,
    /// Whether it takes part. A target that is switched off is disabled.
    pub enabled: bool,
    /// The targets that it shares work with. All targets of a set should have the same one.
    ///
    /// In each domain classes and flows get their shares, whatever they get in others: a flow that
    /// is served a lot by targets of one domain is not the later served for it in another. Limits
    /// of flows and limits on everything hold across domains; what the latter allow, domains share
    /// by the weights of the jobs that they serve.
    pub domain: Domain,
}

impl Default for TargetConfig {
    fn default() -> Self {
        TargetConfig {
            weight: 1,
            limits: Limits::default(),
            fault_threshold: 5,
            suspend_for: Duration::from_secs(30),
            enabled: true,
            domain: Domain(0),
        }
    }
}

impl TargetConfig {
    pub(crate) fn check(&self, index: usize) -> Result<(), ConfigError> {
        if self.domain.index() >= MAX_DOMAINS {
            return Err(ConfigError::Domain {
                target: index,
                domain: self.domain,
            });
        }
        check_gate(self.weight, &self.limits, || format!("target {index}"))
    }
}

/// The fate of jobs when every target that could serve them is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnSuspend {
    /// They keep their places.
    Keep,
    /// They are delayed until the suspension ends.
    Delay,
    /// They end as failed.
    End,
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There must be at least one class and at most [`MAX_CLASSES`].
    #[error("classes: {0} given, 1 to {MAX_CLASSES} are possible")]
    Classes(usize),
    /// A running core cannot lose classes: their jobs would have nowhere to be.
    #[error("classes: {had} in use, {wanted} wanted; restart to have fewer")]
    FewerClasses {
        /// How many the core has.
        had: usize,
        /// How many the new configuration names.
        wanted: usize,
    },
    /// A weight must be at least 1.
    #[error("weight of {0}: must be at least 1")]
    Weight(String),
    /// A bound must be at least 1.
    #[error("bound: must be at least 1")]
    Bound,
    /// A class can only displace less urgent ones.
    #[error("{class} displaces {displaced}: it must be a less urgent class that exists")]
    Displaces {
        /// The class.
        class: Class,
        /// The class that it names.
        displaced: Class,
    },
    /// A concurrency of 0 would let nothing through, ever.
    #[error("concurrent of {0}: must be at least 1; pause instead")]
    Concurrent(String),
    /// There are fewer domains than that.
    #[error("domain of target {target}: {} given, 0 to {} are possible", .domain.0, MAX_DOMAINS - 1)]
    Domain {
        /// The target's place in the configuration.
        target: usize,
        /// The domain that it names.
        domain: Domain,
    },
    /// A job must name somebody who could serve it.
    #[error("target set: is empty")]
    EmptySet,
    /// A choice looks at every target of a set.
    #[error("target set: {0} targets, {MAX_SET} are possible")]
    LargeSet(usize),
    /// There is no such target.
    #[error("target set: target {0} does not exist")]
    UnknownTarget(usize),
    /// Targets keep their place for as long as the core lives.
    #[error(
        "targets: {had} in use, {wanted} wanted; switch targets off with `enabled = false` instead of leaving them out"
    )]
    FewerTargets {
        /// How many the core has.
        had: usize,
        /// How many the new configuration names.
        wanted: usize,
    },
}

impl Config {
    /// Says what is wrong with it, if anything.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.classes.is_empty() || self.classes.len() > MAX_CLASSES {
            return Err(ConfigError::Classes(self.classes.len()));
        }
        if self.bound.places() == 0 {
            return Err(ConfigError::Bound);
        }
        for (index, class) in self.classes.iter().enumerate() {
            let name = Class(index as u8);
            if class.weight == 0 {
                return Err(ConfigError::Weight(name.to_string()));
            }
            let exists = |class: Class| usize::from(class.0) < self.classes.len();
            let impossible = |displaced: &Class| *displaced <= name || !exists(*displaced);
            if let Some(displaced) = class.displaces.filter(impossible) {
                return Err(ConfigError::Displaces {
                    class: name,
                    displaced,
                });
            }
        }
        check_gate(1, &self.limits, || "all".into())?;
        check_gate(self.default_flow.weight, &self.default_flow.limits, || {
            "flows".into()
        })?;
        for (flow, config) in &self.flows {
            check_gate(config.weight, &config.limits, || flow.to_string())?;
        }
        for (index, target) in self.targets.iter().enumerate() {
            target.check(index)?;
        }
        Ok(())
    }

    /// One more than the highest domain of a target.
    pub(crate) fn domains(&self) -> usize {
        let domains = self.targets.iter().map(|target| target.domain.index() + 1);
        domains.max().unwrap_or(1)
    }

    /// The settings of a flow.
    #[must_use]
    pub fn flow(&self, id: Flow) -> FlowConfig {
        *self.flows.get(&id).unwrap_or(&self.default_flow)
    }

    /// How many jobs may wait for one target that alone can serve them.
    pub(crate) fn max_waiting_at_target(&self) -> usize {
        // All places there are: with a bound for each class, one target must be able to hold what
        // they all may.
        let bound = match self.bound {
            Bound::Shared(places) => places,
            Bound::PerClass(places) => places.saturating_mul(self.classes.len()),
        };
        self.max_waiting.unwrap_or_else(|| {
            (bound / 10)
                .max(bound.saturating_mul(2) / self.targets.len().max(1))
                .max(1)
        })
    }
}

fn check_gate(weight: u32, limits: &Limits, name: impl Fn() -> String) -> Result<(), ConfigError> {
    if weight == 0 {
        return Err(ConfigError::Weight(name()));
    }
    if limits.concurrent == Some(0) {
        return Err(ConfigError::Concurrent(name()));
    }
    Ok(())
}
