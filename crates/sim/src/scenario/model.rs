//! The runnable form of a scenario: resolved, expanded and checked.

use headworks_core::shares::OnLoss;
use headworks_core::{Class, Time};
use headworks_synth::{Arrivals, Distribution, TreeSpec};
use std::time::Duration;

/// A stream of requests.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) name: String,
    pub(crate) arrivals: Arrivals,
    pub(crate) class: Class,
    /// The flows that the load is spread over, uniformly at random.
    pub(crate) flows: Vec<u32>,
    pub(crate) request: Request,
    pub(crate) from: Duration,
    pub(crate) until: Time,
    /// The node of a fleet that the load balancer sends it to; `None` for any.
    pub(crate) node: Option<usize>,
}

/// The properties of a request, independent of its source.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The estimated cost.
    pub(crate) cost: Distribution,
    pub(crate) actual: ActualCost,
    pub(crate) pick: TargetChoice,
    pub(crate) timeout: Option<Duration>,
    pub(crate) clients: Clients,
}

/// The actual cost of a request.
#[derive(Clone, Debug)]
pub(crate) enum ActualCost {
    AsEstimated,
    /// Within that factor of the estimate, log-uniformly distributed.
    Within(f64),
    Drawn(Distribution),
}

/// The targets of a request.
#[derive(Clone, Debug)]
pub(crate) enum TargetChoice {
    /// Any of them, chosen by the scheduler.
    Any(Vec<u32>),
    /// One of them, chosen at random per request.
    One(Vec<u32>),
    /// All of them: one job per target.
    Each(Vec<u32>),
}

/// Client behaviour on refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) on_refusal: OnRefusal,
    /// Maximum number of visits.
    pub(crate) tries: u16,
    /// Maximum delay beyond the retry time, as a fraction of it.
    pub(crate) jitter: f64,
    pub(crate) round_trip: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRefusal {
    GiveUp,
    RetryNow,
    Obey,
}

/// A simulated target.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedTarget {
    pub(crate) name: String,
    /// The group, as the scenario names it.
    pub(crate) group: String,
    /// Latency in microseconds.
    pub(crate) latency: Distribution,
    pub(crate) latency_per_cost: Duration,
    /// Probability of each failure.
    pub(crate) fault: f64,
    pub(crate) rejected: f64,
    pub(crate) silent: f64,
    pub(crate) gone: f64,
    /// Time after which callers give up waiting for a response.
    pub(crate) timeout: Duration,
    pub(crate) capacity: Capacity,
    /// Time for which callers avoid it after "too many requests" without a retry time.
    pub(crate) overload_pause: Duration,
    pub(crate) outages: Vec<Outage>,
}

/// The capacity of a target; beyond it, the target responds "too many requests".
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacity {
    pub(crate) concurrent: Option<u32>,
    pub(crate) requests: Option<f64>,
    pub(crate) cost: Option<f64>,
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) from: Time,
    pub(crate) until: Time,
    pub(crate) kind: OutageKind,
}

/// The behaviour of a target during an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageKind {
    Refuses,
    Silent,
    Overload,
}

/// Several nodes that share the limits.
#[derive(Clone, Debug)]
pub(crate) struct FleetPlan {
    pub(crate) nodes: usize,
    /// The shortest and the longest time that a message takes.
    pub(crate) delay: (Duration, Duration),
    /// The part of messages that is lost.
    pub(crate) loss: f64,
    pub(crate) on_loss: OnLoss,
    pub(crate) forget_after: Duration,
    /// In the order of time.
    pub(crate) troubles: Vec<(Duration, Trouble)>,
}

/// A thing that happens to a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The shared server is away until then.
    Away(Duration),
    /// A node is cut off from the shared server until then.
    Cut(NodeChoice, Duration),
    /// A node ends; another process takes its place after that time.
    Kill(NodeChoice, Option<Duration>),
}

/// A node of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChoice {
    /// By its place.
    Number(usize),
    /// The one that is the allocator at that time.
    Allocator,
}

/// Two coordinated round queues over a synthetic tree.
#[derive(Clone, Debug)]
pub(crate) struct RoundsSpec {
    pub(crate) tree: TreeSpec,
    pub(crate) class: Class,
    pub(crate) lag: u32,
    pub(crate) max_lead: u32,
    pub(crate) retry_budget: Duration,
    pub(crate) passes: u32,
    /// Maximum nodes per side in the scheduler at once.
    pub(crate) in_flight: u32,
    /// The targets and flows of leader and follower.
    pub(crate) sides: [(Vec<u32>, u32); 2],
}
