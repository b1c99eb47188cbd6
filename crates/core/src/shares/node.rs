//! A node's side: what is in force there, and what it reports.
//!
//! [`NodeShare`] owns the share of one node and the account of which demand the allocator has read.
//! It never raises its own share. The driver applies [`local_limits`](NodeShare::local_limits)
//! whenever a call answers that they may have changed, and must pass
//! [`receive`](NodeShare::receive) the time at which the exchange was *sent*: with the time of its
//! answer, a node would stop too late.

use super::gate::{FleetLimits, GateId, GateShare, Share};
use super::message::{Allocation, Demand, Load, NodeId, Report, Running, Stamp};
use super::settings::{OnLoss, STOP_AFTER};
use crate::engine::Core;
use crate::id::{Class, Flow, TargetId};
use crate::local_limits::LocalLimits;
use crate::time::Time;
use std::collections::BTreeMap;

/// A report names at most this many flows; the others of a class are counted together.
const MOST_NAMED: usize = 256;

/// A change of demand by less than this part is not reported.
const SAME: f64 = 0.05;

type Key = (Class, Option<Flow>, Vec<TargetId>);

/// The state of a core that its node reports.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    demand: BTreeMap<Key, Counted>,
    running: Running,
    running_of_flows: BTreeMap<Flow, u32>,
}

/// Waiting now, granted so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    waiting: (u64, u64),
    granted: (u64, u64),
}

impl Observed {
    /// The demand and the running jobs of a core.
    #[must_use]
    pub fn of<P>(core: &Core<P>) -> Self {
        let mut observed = Observed::default();
        for view in core.demand() {
            let key = (view.class, Some(view.flow), view.targets);
            let counted = observed.demand.entry(key).or_default();
            counted.waiting.0 += view.waiting;
            counted.waiting.1 = counted.waiting.1.saturating_add(view.waiting_cost);
            counted.granted.0 += view.granted;
            counted.granted.1 = counted.granted.1.saturating_add(view.granted_cost);
        }
        let running = u32::try_from(core.running()).unwrap_or(u32::MAX);
        observed.running.insert(GateId::All, running);
        for flow in core.flows() {
            observed
                .running
                .insert(GateId::Flow(flow.flow), flow.running);
            observed.running_of_flows.insert(flow.flow, flow.running);
        }
        for (index, target) in core.inspect().targets.iter().enumerate() {
            let gate = GateId::Target(TargetId(index as u32));
            observed.running.insert(gate, target.running);
        }
        observed
    }
}

/// A node's share of the fleet's limits. See the [module](super).
///
/// ```
/// use headworks_core::shares::{FleetLimits, NodeId, NodeShare, OnLoss, STOP_AFTER};
/// use headworks_core::{Config, Limits, Rate, Time};
///
/// let limits = Limits { requests: Some(Rate::per_second(10.0)), ..Limits::default() };
/// let fleet = FleetLimits::from(&Config { limits, ..Config::default() });
/// let on_loss = OnLoss::Closed { request_timeout: None };
/// let mut node = NodeShare::new(NodeId(1), fleet, on_loss);
/// // Before its first allocation a node may start nothing.
/// assert!(node.local_limits().all.requests.is_some_and(|rate| rate.is_shut()));
///
/// node.receive(Time::ZERO, Time::ZERO, None);
/// assert_eq!(node.deadline(), Some(Time::ZERO + STOP_AFTER));
/// assert!(node.expire(Time::ZERO + STOP_AFTER), "nothing was heard since: it stops");
/// ```
#[derive(Clone, Debug)]
pub struct NodeShare {
    node: NodeId,
    succeeds: Option<NodeId>,
    limits: FleetLimits,
    on_loss: OnLoss,
    applied: Allocation,
    /// Whether the share was dropped since it was applied.
    stopped: bool,
    /// When the last exchange that succeeded was sent.
    sent: Option<Time>,
    reports: u64,
    observed: Observed,
    observed_at: Time,
    /// The demand as it was reported last, and the number of that report.
    told: BTreeMap<Key, (Demand, u64)>,
    /// The epoch of the allocator that was told, and the first report to it that tells everything.
    told_epoch: (u64, u64),
}

impl NodeShare {
    /// A node that joins: it has nothing until its first allocation.
    #[must_use]
    pub fn new(node: NodeId, limits: FleetLimits, on_loss: OnLoss) -> Self {
        NodeShare {
            node,
            succeeds: None,
            limits,
            on_loss,
            applied: Allocation::default(),
            stopped: false,
            sent: None,
            reports: 0,
            observed: Observed::default(),
            observed_at: Time::ZERO,
            told: BTreeMap::new(),
            told_epoch: (0, 0),
        }
    }

    /// Joins anew under another name, with the share that it has.
    pub fn rejoin(&mut self, node: NodeId) {
        self.succeeds = Some(std::mem::replace(&mut self.node, node));
        self.reports = 0;
        // The allocator has seen no report under the new name.
        self.applied.seen = 0;
        self.told.clear();
    }

    /// Applies to other limits of the fleet from now on. A limit that is new is shut until an
    /// allocation names it; the caller then applies [`local_limits`](Self::local_limits).
    pub fn set_limits(&mut self, limits: FleetLimits) {
        self.limits = limits;
    }

    /// Whether it has received a share and has not stopped since.
    #[must_use]
    pub fn has_share(&self) -> bool {
        !self.stopped && self.applied.stamp > Stamp::default()
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.node
    }

    /// The stamp of the allocation in force.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.applied.stamp
    }

    /// Writes the report of an exchange that is sent now.
    pub fn report(&mut self, now: Time, observed: &Observed) -> Report {
        self.reports += 1;
        let demand = self.demand(now, observed);
        // Another allocator knows nothing of what the last one was told.
        let epoch = self.applied.stamp.epoch;
        if self.told_epoch.0 != epoch || self.reports == 1 {
            self.told_epoch = (epoch, self.reports);
        }
        let seen = self.applied.seen;
        let complete = seen < self.told_epoch.1;
        let mut changed = Vec::new();
        let mut told = BTreeMap::new();
        for (key, now) in demand {
            let before = self.told.remove(&key);
            // Demand that the allocator may not have read is reported again.
            let known =
                before.filter(|(before, with)| !complete && *with <= seen && is_same(before, &now));
            let entry = match known {
                Some(known) => known,
                None => {
                    changed.push(now.clone());
                    (now, self.reports)
                }
            };
            told.insert(key, entry);
        }
        for (key, (before, with)) in std::mem::take(&mut self.told) {
            let ended = is_none(&before);
            if complete || (ended && with <= seen) {
                continue;
            }
            let end = ended_demand(&before);
            changed.push(end.clone());
            told.insert(key, (end, if ended { with } else { self.reports }));
        }
        self.told = told;
        self.observed = observed.clone();
        self.observed_at = now;
        Report {
            node: self.node,
            number: self.reports,
            echo: self.applied.stamp,
            in_force: self.in_force(observed),
            demand: changed,
            complete,
            succeeds: self.succeeds,
            leaves: false,
            on_loss: self.on_loss,
        }
    }

    /// Writes the last report of a node that grants nothing any more. Slots of jobs that run still
    /// stay in force.
    pub fn leave(&mut self, observed: &Observed) -> Report {
        self.stopped = true;
        self.reports += 1;
        Report {
            node: self.node,
            number: self.reports,
            echo: self.applied.stamp,
            in_force: self.in_force(observed),
            complete: true,
            leaves: true,
            succeeds: self.succeeds,
            on_loss: self.on_loss,
            ..Report::default()
        }
    }

    /// An exchange succeeded that was sent at `sent`: applies the allocation that it returned.
    /// Returns whether the limits in force may be others now.
    ///
    /// One that is not newer than the one in force is ignored: it is late, or comes from an
    /// allocator that has been replaced.
    pub fn receive(&mut self, now: Time, sent: Time, allocation: Option<&Allocation>) -> bool {
        let expired = self.expire(now);
        self.sent = self.sent.max(Some(sent));
        let newer = allocation.filter(|allocation| allocation.stamp > self.applied.stamp);
        match newer {
            Some(allocation) => {
                self.applied = allocation.clone();
                // An answer that took too long brings a share that may be reclaimed already.
                self.stopped = self.deadline().is_some_and(|at| at <= now);
                true
            }
            None => {
                let current = allocation.filter(|known| known.stamp == self.applied.stamp);
                if let Some(known) = current {
                    self.applied.seen = known.seen;
                    self.applied.class_weights.clone_from(&known.class_weights);
                    self.applied.flow_weights.clone_from(&known.flow_weights);
                }
                expired || current.is_some()
            }
        }
    }

    /// When the node must stop if no exchange succeeds until then. `None` if it goes on.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.on_loss {
            OnLoss::Keep => None,
            OnLoss::Closed { .. } => self.sent.map(|sent| sent + STOP_AFTER),
        }
    }

    /// Drops the share if the deadline has come. Returns whether it was dropped by this call; the
    /// caller then applies [`local_limits`](Self::local_limits), and aborts its calls if that is
    /// what [`OnLoss::Closed`] says.
    pub fn expire(&mut self, now: Time) -> bool {
        let late = self.deadline().is_some_and(|at| at <= now);
        late && !std::mem::replace(&mut self.stopped, true)
    }

    /// The limits that the core has to use, for [`Core::set_limits`].
    #[must_use]
    pub fn local_limits(&self) -> LocalLimits {
        let share = self.share();
        let mut local = LocalLimits {
            until: self.deadline().filter(|_| !self.stopped),
            other_flows: Some(share.other_flows),
            class_weights: self.applied.class_weights.clone(),
            flow_weights: self.applied.flow_weights.clone(),
            ..LocalLimits::default()
        };
        let named = self.limits.named().chain(share.gates.keys().copied());
        for gate in named {
            // A limit of which it has no share is shut.
            let mut own = share.gates.get(&gate).copied().unwrap_or_default();
            let whole = self.limits.of(gate);
            own.requests = whole.requests.map(|_| own.requests.unwrap_or_default());
            own.cost = whole.cost.map(|_| own.cost.unwrap_or_default());
            own.concurrent = whole.concurrent.map(|_| own.concurrent.unwrap_or(0));
            match gate {
                GateId::All => local.all = own.local(),
                GateId::Flow(flow) => {
                    local.flows.insert(flow, own.local());
                }
                GateId::Target(target) => {
                    local.targets.insert(target, own.local());
                }
            }
        }
        local
    }

    /// The share in force.
    #[must_use]
    pub fn share(&self) -> Share {
        match self.stopped {
            true => Share::default(),
            false => self.applied.share.clone(),
        }
    }

    /// The amounts in force: the share, and slots of jobs that run beyond it.
    fn in_force(&self, observed: &Observed) -> Share {
        let mut share = self.share();
        for (gate, running) in &observed.running {
            let Some(whole) = self.limits.of(*gate).concurrent else {
                continue;
            };
            let amount = super::gate::Amount::Concurrent;
            let slots = share.amount(*gate, amount, u64::from(whole));
            if u64::from(*running) > slots {
                let part = share.gates.get(gate).copied();
                let mut part = part.unwrap_or_else(|| self.unnamed(*gate, &share));
                part.concurrent = Some(*running);
                share.gates.insert(*gate, part);
            }
        }
        share
    }

    /// The share of a gate that is not named.
    fn unnamed(&self, gate: GateId, share: &Share) -> GateShare {
        let (whole, mut part) = (self.limits.of(gate), GateShare::default());
        for amount in super::gate::Amount::ALL {
            if let Some(whole) = whole.get(amount) {
                part.set(amount, share.amount(gate, amount, whole));
            }
        }
        part
    }

    /// The demand since the last report.
    fn demand(&self, now: Time, observed: &Observed) -> BTreeMap<Key, Demand> {
        let seconds = now.since(self.observed_at).as_secs_f64().max(0.05);
        let mut demand: Vec<(Key, Demand)> = Vec::new();
        let mut granted_of: BTreeMap<Flow, f64> = BTreeMap::new();
        for (key, counted) in &observed.demand {
            let before = self.observed.demand.get(key).copied().unwrap_or_default();
            // A flow that was forgotten counts from zero again.
            let since = |now: u64, before: u64| match now.checked_sub(before) {
                Some(more) => more as f64 / seconds,
                None => now as f64 / seconds,
            };
            let granted = Load {
                requests: since(counted.granted.0, before.granted.0),
                cost: since(counted.granted.1, before.granted.1),
            };
            let waiting = Load {
                requests: counted.waiting.0 as f64,
                cost: counted.waiting.1 as f64,
            };
            let (class, flow, targets) = key.clone();
            if let Some(flow) = flow {
                *granted_of.entry(flow).or_default() += granted.requests + 1e-9;
            }
            let named = Demand {
                class,
                flow,
                targets,
                flows: 1,
                waiting,
                granted,
                running: 0.0,
            };
            demand.push((key.clone(), named));
        }
        for (_, demand) in &mut demand {
            // Which class a running job belongs to is not counted: as the grants were.
            let flow = demand.flow.unwrap_or_default();
            let running = observed.running_of_flows.get(&flow).copied().unwrap_or(0);
            let part = (demand.granted.requests + 1e-9) / granted_of.get(&flow).unwrap_or(&1.0);
            demand.running = f64::from(running) * part;
        }
        demand.retain(|(_, demand)| !is_none(demand));
        bounded(demand)
    }
}

/// Names the flows with the largest demand; the others of a class are counted together.
fn bounded(mut demand: Vec<(Key, Demand)>) -> BTreeMap<Key, Demand> {
    let size = |demand: &Demand| demand.waiting.cost + demand.granted.cost;
    demand.sort_by(|(a, one), (b, other)| size(other).total_cmp(&size(one)).then_with(|| a.cmp(b)));
    let rest = demand.split_off(demand.len().min(MOST_NAMED));
    let mut named: BTreeMap<Key, Demand> = demand.into_iter().collect();
    for ((class, _, targets), more) in rest {
        let key = (class, None, targets.clone());
        let sum = named.entry(key).or_insert_with(|| Demand {
            class,
            targets,
            ..Demand::default()
        });
        sum.flows += 1;
        sum.waiting.requests += more.waiting.requests;
        sum.waiting.cost += more.waiting.cost;
        sum.granted.requests += more.granted.requests;
        sum.granted.cost += more.granted.cost;
        sum.running += more.running;
    }
    named
}

fn is_none(demand: &Demand) -> bool {
    let Demand {
        waiting,
        granted,
        running,
        ..
    } = demand;
    waiting.requests + granted.requests + running < 1e-6 && waiting.cost + granted.cost < 1e-6
}

fn is_same(one: &Demand, other: &Demand) -> bool {
    let near = |one: f64, other: f64| (one - other).abs() <= SAME * one.max(other);
    one.flows == other.flows
        && near(one.waiting.requests, other.waiting.requests)
        && near(one.waiting.cost, other.waiting.cost)
        && near(one.granted.requests, other.granted.requests)
        && near(one.granted.cost, other.granted.cost)
        && near(one.running, other.running)
}

fn ended_demand(demand: &Demand) -> Demand {
    Demand {
        waiting: Load::default(),
        granted: Load::default(),
        running: 0.0,
        ..demand.clone()
    }
}
