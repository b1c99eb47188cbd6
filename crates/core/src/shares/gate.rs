//! Gates of a fleet, and the shares of their limits.
//!
//! A share is kept as five numbers per gate ([`Amount`]), each accounted for by itself and rounded
//! down, so that the shares of all nodes never add up to more than the limit. All are plain values;
//! the [`Shares`](super::Shares) own which node has which.

use crate::bucket::{Rate, WHOLE};
use crate::config::{Config, FlowConfig, Limits, Policy};
use crate::id::{Flow, TargetId};
use crate::local_limits::LocalShare;
use std::collections::BTreeMap;

/// A gate that the whole fleet passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GateId {
    /// Everything.
    All,
    /// One flow.
    Flow(Flow),
    /// One target.
    Target(TargetId),
}

/// A share of a rate: millionths per second, and millionths of burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateShare {
    /// Millionths per second.
    pub rate: u64,
    /// Millionths.
    pub burst: u64,
}

/// A share of one gate's limits. `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateShare {
    /// Jobs started in a second.
    pub requests: Option<RateShare>,
    /// Cost started in a second.
    pub cost: Option<RateShare>,
    /// Jobs running at once.
    pub concurrent: Option<u32>,
}

/// One number of a share. Each is accounted for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Amount {
    Requests,
    RequestsBurst,
    Cost,
    CostBurst,
    Concurrent,
}

impl Amount {
    pub(crate) const ALL: [Amount; 5] = [
        Amount::Requests,
        Amount::RequestsBurst,
        Amount::Cost,
        Amount::CostBurst,
        Amount::Concurrent,
    ];

    /// The burst that goes with a rate.
    pub(crate) fn burst(self) -> Option<Amount> {
        match self {
            Amount::Requests => Some(Amount::RequestsBurst),
            Amount::Cost => Some(Amount::CostBurst),
            _ => None,
        }
    }
}

impl GateShare {
    pub(crate) fn get(&self, amount: Amount) -> Option<u64> {
        match amount {
            Amount::Requests => self.requests.map(|share| share.rate),
            Amount::RequestsBurst => self.requests.map(|share| share.burst),
            Amount::Cost => self.cost.map(|share| share.rate),
            Amount::CostBurst => self.cost.map(|share| share.burst),
            Amount::Concurrent => self.concurrent.map(u64::from),
        }
    }

    pub(crate) fn set(&mut self, amount: Amount, value: u64) {
        match amount {
            Amount::Requests => self.requests.get_or_insert_default().rate = value,
            Amount::RequestsBurst => self.requests.get_or_insert_default().burst = value,
            Amount::Cost => self.cost.get_or_insert_default().rate = value,
            Amount::CostBurst => self.cost.get_or_insert_default().burst = value,
            Amount::Concurrent => {
                self.concurrent = Some(u32::try_from(value).unwrap_or(u32::MAX));
            }
        }
    }

    /// The whole of a gate's limits.
    pub(crate) fn whole(limits: &Limits) -> Self {
        let share = |rate: Rate| RateShare {
            rate: rate.micros_per_second(),
            burst: rate.burst_in_micros(),
        };
        GateShare {
            requests: limits.requests.map(share),
            cost: limits.cost.map(share),
            concurrent: limits.concurrent,
        }
    }

    pub(crate) fn local(&self) -> LocalShare {
        let rate = |share: RateShare| Rate::share(share.rate, share.burst);
        LocalShare {
            concurrent: self.concurrent,
            requests: self.requests.map(rate),
            cost: self.cost.map(rate),
        }
    }
}

/// Everything that one node may use of the fleet's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The gates that it names. Of a gate over everything or of a target that is limited and not
    /// named, the node has nothing.
    pub gates: BTreeMap<GateId, GateShare>,
    /// The part, in billionths, of the limits of every flow that is not named.
    pub other_flows: u64,
}

impl Share {
    /// One number of the share; `whole` is the fleet's.
    pub(crate) fn amount(&self, gate: GateId, amount: Amount, whole: u64) -> u64 {
        match (self.gates.get(&gate), gate) {
            (Some(share), _) => share.get(amount).unwrap_or(0),
            // A flow that no grant names is under the part for all others; a target or everything
            // that is not named is nothing.
            (None, GateId::Flow(_)) => part(whole, self.other_flows),
            (None, _) => 0,
        }
    }

    /// Raises every number to that of another share.
    pub(crate) fn raise_to(&mut self, other: &Share, limits: &FleetLimits) {
        let gates: Vec<GateId> = self
            .gates
            .keys()
            .chain(other.gates.keys())
            .copied()
            .collect();
        for gate in gates {
            let mut raised = GateShare::default();
            for amount in Amount::ALL {
                if let Some(whole) = limits.whole(gate, amount) {
                    let own = self.amount(gate, amount, whole);
                    raised.set(amount, own.max(other.amount(gate, amount, whole)));
                }
            }
            self.gates.insert(gate, raised);
        }
        self.other_flows = self.other_flows.max(other.other_flows);
    }
}

/// A part of a whole, in billionths, rounded down.
pub(crate) fn part(whole: u64, billionths: u64) -> u64 {
    (u128::from(whole) * u128::from(billionths.min(WHOLE)) / u128::from(WHOLE)) as u64
}

/// The limits and weights that all nodes of a fleet share.
///
/// ```
/// use headworks_core::shares::FleetLimits;
/// use headworks_core::{Config, Limits, TargetConfig};
///
/// let limits = Limits { concurrent: Some(50), ..Limits::default() };
/// let config = Config {
///     targets: vec![TargetConfig { limits, ..TargetConfig::default() }],
///     ..Config::default()
/// };
/// let fleet = FleetLimits::from(&config);
/// assert_eq!(fleet.targets, [limits], "for all nodes together");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FleetLimits {
    /// How classes are served.
    pub policy: Policy,
    /// The weights of the classes, most urgent first.
    pub classes: Vec<u32>,
    /// Limits on everything together.
    pub all: Limits,
    /// Limits and weight of a flow that has none of its own.
    pub default_flow: FlowConfig,
    /// Flows with limits or a weight of their own.
    pub flows: BTreeMap<Flow, FlowConfig>,
    /// The limits of the targets, in order.
    pub targets: Vec<Limits>,
}

impl From<&Config> for FleetLimits {
    fn from(config: &Config) -> Self {
        FleetLimits {
            policy: config.policy,
            classes: config.classes.iter().map(|class| class.weight).collect(),
            all: config.limits,
            default_flow: config.default_flow,
            flows: config.flows.clone(),
            targets: config.targets.iter().map(|target| target.limits).collect(),
        }
    }
}

impl FleetLimits {
    pub(crate) fn flow(&self, flow: Flow) -> FlowConfig {
        *self.flows.get(&flow).unwrap_or(&self.default_flow)
    }

    pub(crate) fn of(&self, gate: GateId) -> GateShare {
        match gate {
            GateId::All => GateShare::whole(&self.all),
            GateId::Flow(flow) => GateShare::whole(&self.flow(flow).limits),
            GateId::Target(target) => {
                let limits = self.targets.get(target.index());
                limits.map_or(GateShare::default(), GateShare::whole)
            }
        }
    }

    /// One number of a gate's limits, if there is such a limit.
    pub(crate) fn whole(&self, gate: GateId, amount: Amount) -> Option<u64> {
        self.of(gate).get(amount)
    }

    /// The gates that are always named: everything, and every target.
    pub(crate) fn named(&self) -> impl Iterator<Item = GateId> + '_ {
        let targets = (0..self.targets.len() as u32).map(|index| GateId::Target(TargetId(index)));
        std::iter::once(GateId::All).chain(targets)
    }
}
