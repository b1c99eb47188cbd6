//! The file format: tables and keys as written, before names are resolved and values are checked
//! against each other.

use super::amount::{CostValue, DurationValue, Latency, Name, Names};
use super::expect::Metric;
use headworks_core::Policy;
use headworks_synth::{Arrivals, TreeSpec};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) about: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) duration: DurationValue,
    pub(super) max_steps: Option<u64>,
    #[serde(default)]
    pub(super) scheduler: SchedulerFile,
    #[serde(default)]
    pub(super) classes: Vec<ClassFile>,
    pub(super) default_flow: Option<FlowFile>,
    #[serde(default)]
    pub(super) flows: Vec<FlowFile>,
    #[serde(default)]
    pub(super) targets: Vec<TargetFile>,
    #[serde(default)]
    pub(super) loads: Vec<LoadFile>,
    pub(super) workers: Option<WorkersFile>,
    pub(super) rounds: Option<RoundsFile>,
    pub(super) trace: Option<TraceFile>,
    pub(super) fleet: Option<FleetFile>,
    #[serde(default)]
    pub(super) expect: Vec<ExpectFile>,
}

/// The names of policies.
const POLICIES: [&str; Policy::ALL.len()] = {
    let mut names = [""; Policy::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Policy::ALL[at].name();
        at += 1;
    }
    names
};

/// Reads a policy by its name.
fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Policy>, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = Policy::ALL.into_iter().find(|policy| policy.name() == name);
    let problem = || D::Error::unknown_variant(&name, &POLICIES);
    known.map(Some).ok_or_else(problem)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnSuspendFile {
    Keep,
    Delay,
    End,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SchedulerFile {
    #[serde(default, deserialize_with = "policy")]
    pub(super) policy: Option<Policy>,
    pub(super) classes: Option<u64>,
    pub(super) bound: Option<u64>,
    pub(super) shared_bound: Option<u64>,
    pub(super) delayed_bound: Option<u64>,
    pub(super) bookings: Option<u64>,
    pub(super) max_waiting: Option<u64>,
    pub(super) on_suspend: Option<OnSuspendFile>,
    pub(super) attempts: Option<u32>,
    #[serde(alias = "postpone_by")]
    pub(super) put_off: Option<DurationValue>,
    pub(super) refuse_unreachable: Option<bool>,
    /// The former name of `refuse_unreachable`.
    pub(super) refuse_hopeless: Option<bool>,
    #[serde(default)]
    pub(super) limits: LimitsFile,
    #[serde(default)]
    pub(super) backoff: BackoffFile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsFile {
    pub(super) concurrent: Option<u32>,
    pub(super) requests_per_second: Option<f64>,
    pub(super) requests_burst: Option<u64>,
    pub(super) cost_per_second: Option<f64>,
    pub(super) cost_burst: Option<u64>,
    pub(super) refund: Option<bool>,
    pub(super) max_cost: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackoffFile {
    pub(super) base: Option<DurationValue>,
    pub(super) factor: Option<u32>,
    pub(super) max: Option<DurationValue>,
    pub(super) jitter: Option<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassFile {
    pub(super) name: Option<String>,
    pub(super) weight: u32,
    pub(super) aging: Option<DurationValue>,
    pub(super) displaces: Option<Name>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowFile {
    pub(super) name: Option<String>,
    pub(super) count: Option<u64>,
    pub(super) weight: Option<u32>,
    #[serde(default)]
    pub(super) limits: LimitsFile,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetFile {
    pub(super) name: String,
    pub(super) count: Option<u64>,
    pub(super) weight: Option<u32>,
    #[serde(default)]
    pub(super) limits: LimitsFile,
    pub(super) fault_threshold: Option<u32>,
    pub(super) suspend_for: Option<DurationValue>,
    pub(super) latency: Option<Latency>,
    pub(super) latency_per_cost: Option<DurationValue>,
    #[serde(default)]
    pub(super) errors: ErrorsFile,
    pub(super) timeout: Option<DurationValue>,
    pub(super) capacity: Option<CapacityFile>,
    pub(super) overload_pause: Option<DurationValue>,
    #[serde(default)]
    pub(super) outages: Vec<OutageFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorsFile {
    pub(super) fault: Option<f64>,
    pub(super) rejected: Option<f64>,
    pub(super) silent: Option<f64>,
    pub(super) gone: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacityFile {
    pub(super) concurrent: Option<u32>,
    pub(super) requests_per_second: Option<f64>,
    pub(super) cost_per_second: Option<f64>,
    pub(super) retry_after: Option<DurationValue>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OutageKind {
    Refuses,
    Silent,
    Overload,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutageFile {
    pub(super) from: DurationValue,
    #[serde(rename = "for")]
    pub(super) length: DurationValue,
    pub(super) kind: Option<OutageKind>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PickFile {
    Any,
    One,
    Each,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadFile {
    pub(super) name: String,
    pub(super) arrivals: Arrivals,
    pub(super) class: Option<Names>,
    pub(super) flow: Option<String>,
    pub(super) flows: Option<u64>,
    pub(super) cost: Option<CostValue>,
    pub(super) actual: Option<CostValue>,
    pub(super) misjudged: Option<f64>,
    pub(super) targets: Option<Names>,
    pub(super) pick: Option<PickFile>,
    pub(super) timeout: Option<DurationValue>,
    pub(super) from: Option<DurationValue>,
    pub(super) until: Option<DurationValue>,
    pub(super) node: Option<u64>,
    #[serde(default)]
    pub(super) clients: ClientsFile,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RefusalFile {
    GiveUp,
    RetryNow,
    Obey,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientsFile {
    pub(super) on_refusal: Option<RefusalFile>,
    pub(super) tries: Option<u16>,
    pub(super) jitter: Option<f64>,
    pub(super) round_trip: Option<DurationValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceFile {
    pub(super) targets: Option<Names>,
    pub(super) misjudged: Option<f64>,
    pub(super) timeout: Option<DurationValue>,
    #[serde(default)]
    pub(super) clients: ClientsFile,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkersFile {
    pub(super) base: u64,
    pub(super) max: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoundsFile {
    pub(super) tree: TreeSpec,
    pub(super) class: Option<Name>,
    pub(super) lag: Option<u32>,
    pub(super) max_lead: Option<u32>,
    pub(super) retry_budget: Option<DurationValue>,
    pub(super) passes: Option<u32>,
    pub(super) in_flight: Option<u32>,
    pub(super) leader: String,
    pub(super) follower: String,
}

/// Several nodes that share the limits of the scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetFile {
    pub(super) nodes: u64,
    pub(super) delay: Option<Latency>,
    pub(super) loss: Option<f64>,
    pub(super) on_loss: Option<OnLossFile>,
    pub(super) forget_after: Option<DurationValue>,
    pub(super) request_timeout: Option<DurationValue>,
    #[serde(default)]
    pub(super) cut: Vec<CutFile>,
    #[serde(default)]
    pub(super) kill: Vec<KillFile>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnLossFile {
    Keep,
    Closed,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CutFile {
    pub(super) node: Name,
    pub(super) from: DurationValue,
    #[serde(rename = "for")]
    pub(super) length: DurationValue,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KillFile {
    pub(super) node: Name,
    pub(super) at: DurationValue,
    pub(super) back_after: Option<DurationValue>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectFile {
    pub(super) metric: Metric,
    pub(super) class: Option<Name>,
    pub(super) flow: Option<String>,
    pub(super) load: Option<String>,
    pub(super) target: Option<String>,
    pub(super) side: Option<String>,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
}
