//! A scenario as it is run: everything looked up, expanded and checked.

use headworks_core::{Class, Time};
use headworks_synth::{Arrivals, Distribution, TreeSpec};
use std::time::Duration;

/// One stream of requests.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) name: String,
    pub(crate) arrivals: Arrivals,
    pub(crate) class: Class,
    /// The flows it is spread over, evenly and at random.
    pub(crate) flows: Vec<u32>,
    pub(crate) request: Request,
    pub(crate) from: Duration,
    pub(crate) until: Time,
}

/// What a request is like, whoever sends it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The estimate.
    pub(crate) cost: Distribution,
    pub(crate) actual: Actual,
    pub(crate) pick: Pick,
    pub(crate) timeout: Option<Duration>,
    pub(crate) clients: Clients,
}

/// What a request draws in the end.
#[derive(Clone, Debug)]
pub(crate) enum Actual {
    AsEstimated,
    /// Up to that factor more or less, every doubling as likely.
    Within(f64),
    Drawn(Distribution),
}

/// Who serves a request.
#[derive(Clone, Debug)]
pub(crate) enum Pick {
    /// Any of them.
    Any(Vec<u32>),
    /// One, chosen at random for each request.
    One(Vec<u32>),
    /// All: a job for each.
    Each(Vec<u32>),
}

/// What clients do when they are refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) on_refusal: OnRefusal,
    /// Visits in total.
    pub(crate) tries: u16,
    /// How much later than told they come at most, as a part of the time told.
    pub(crate) jitter: f64,
    pub(crate) round_trip: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRefusal {
    GiveUp,
    RetryNow,
    Obey,
}

/// A modelled far side.
#[derive(Clone, Debug)]
pub(crate) struct FarSide {
    pub(crate) name: String,
    /// Its group, as the scenario names it.
    pub(crate) group: String,
    /// In microseconds.
    pub(crate) latency: Distribution,
    pub(crate) latency_per_cost: Duration,
    /// How likely each failure is.
    pub(crate) fault: f64,
    pub(crate) rejected: f64,
    pub(crate) silent: f64,
    pub(crate) gone: f64,
    /// How long its callers wait for an answer that does not come.
    pub(crate) timeout: Duration,
    pub(crate) capacity: Capacity,
    /// How long its callers leave it alone when it said "too many" but not for how long.
    pub(crate) overload_pause: Duration,
    pub(crate) outages: Vec<Outage>,
}

/// What a far side takes before it answers "too many requests".
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

/// What a far side does while it is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageKind {
    Refuses,
    Silent,
    Overload,
}

/// Two coordinated round queues over a synthetic tree.
#[derive(Clone, Debug)]
pub(crate) struct RoundsPlan {
    pub(crate) tree: TreeSpec,
    pub(crate) class: Class,
    pub(crate) lag: u32,
    pub(crate) max_lead: u32,
    pub(crate) retry_budget: Duration,
    pub(crate) passes: u32,
    /// Nodes of a side in the scheduler at once.
    pub(crate) in_flight: u32,
    /// The targets that serve leader and follower, and their flows.
    pub(crate) sides: [(Vec<u32>, u32); 2],
}
