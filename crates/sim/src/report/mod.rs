//! The report of a run, as JSON, as a table for the terminal and as an HTML page.

mod build;
mod expect;
mod html;
mod plot;
mod text;

pub use expect::CheckedExpectation;
pub(crate) use text::seconds;

use crate::record::{Counts, FlowTally, LoadTally};
use crate::simulation::Unfinished;
use serde::Serialize;
use std::collections::BTreeMap;

/// The report of a run.
///
/// ```
/// use headworks_sim::{Scenario, run};
/// use std::time::Duration;
///
/// let scenario = Scenario::shipped("rounds").unwrap().with_max_duration(Duration::from_secs(60));
/// let page = run(&scenario, 1)?.to_html();
/// assert!(page.starts_with("<!doctype html>") && !page.contains("http://"));
/// # Ok::<(), headworks_sim::SimError>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) scenario: String,
    pub(crate) about: String,
    pub(crate) seed: u64,
    pub(crate) policy: &'static str,
    /// Simulated duration.
    pub(crate) seconds: f64,
    pub(crate) totals: Totals,
    pub(crate) left: Unfinished,
    pub(crate) most_workers: Option<usize>,
    pub(crate) classes: Vec<ClassReport>,
    /// The flows with the largest cost.
    pub(crate) flows: Vec<FlowReport>,
    pub(crate) flow_count: usize,
    pub(crate) loads: Vec<LoadReport>,
    pub(crate) targets: Vec<TargetReport>,
    pub(crate) rounds: Option<RoundsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fleet: Option<FleetReport>,
    pub(crate) expectations: Vec<CheckedExpectation>,
    pub(crate) series: SeriesReport,
}

/// Totals over all classes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Totals {
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) refused: u64,
    pub(crate) waits: Waits,
}

/// Quantiles of waits, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Waits {
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClassReport {
    pub(crate) name: String,
    pub(crate) weight: u32,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) refused: BTreeMap<&'static str, u64>,
    pub(crate) retried: u64,
    pub(crate) cost: u64,
    /// The part of all cost.
    pub(crate) share: f64,
    /// The share that its weight entitles it to, of what is shared by weight; `None` for a class
    /// that takes precedence over the others.
    pub(crate) weight_share: Option<f64>,
    pub(crate) deviation: Option<f64>,
    /// Whether the policy shares by weight and the class was backlogged. The two values above mean
    /// nothing otherwise.
    pub(crate) comparable: bool,
    pub(crate) waits: Waits,
}

impl ClassReport {
    /// The share by weight and the deviation from it, if comparable.
    pub(crate) fn compared(&self) -> (Option<f64>, Option<f64>) {
        let of = |part: Option<f64>| part.filter(|_| self.comparable);
        (of(self.weight_share), of(self.deviation))
    }

    pub(crate) fn refused_in_all(&self) -> u64 {
        self.refused.values().sum()
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct FlowReport {
    pub(crate) name: String,
    pub(crate) weight: u32,
    #[serde(flatten)]
    pub(crate) tally: FlowTally,
    pub(crate) share: f64,
    pub(crate) weight_share: f64,
    pub(crate) deviation: f64,
    /// Whether flows share by weight here and this one was backlogged.
    pub(crate) comparable: bool,
}

impl FlowReport {
    /// The share by weight and the deviation from it, if comparable.
    pub(crate) fn compared(&self) -> (Option<f64>, Option<f64>) {
        let of = |part: f64| Some(part).filter(|_| self.comparable);
        (of(self.weight_share), of(self.deviation))
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoadReport {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) tally: LoadTally,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct TargetReport {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) granted: u64,
    pub(crate) failures: u64,
    pub(crate) overloads: u64,
    pub(crate) suspensions: u64,
    pub(crate) changes: u64,
    /// The part of the time for which it was not active.
    pub(crate) held_share: f64,
    /// State changes, with times in seconds.
    pub(crate) states: Vec<(f64, &'static str)>,
}

/// Several nodes that share the limits.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FleetReport {
    pub(crate) nodes: Vec<NodeReport>,
    /// The least and the most of the limit over everything that was used in any ten seconds.
    pub(crate) least_use: Option<f64>,
    pub(crate) most_use: Option<f64>,
    /// Calls that started while a limit was exceeded.
    pub(crate) calls_over: u64,
    /// How a limit was exceeded first.
    pub(crate) violation: Option<String>,
    /// How often another node became the allocator.
    pub(crate) takeovers: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeReport {
    pub(crate) name: String,
    pub(crate) granted: u64,
    pub(crate) mean_share: f64,
    pub(crate) least_share: f64,
    pub(crate) most_share: f64,
    /// The part of the limit that it had, second by second.
    pub(crate) shares: Vec<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RoundsReport {
    pub(crate) max_lead: u32,
    pub(crate) leader: SideReport,
    pub(crate) follower: SideReport,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SideReport {
    pub(crate) completed: bool,
    pub(crate) nodes: u64,
    pub(crate) failed: u64,
    pub(crate) passes: u32,
    pub(crate) took: Waits,
    pub(crate) rounds: Vec<RoundReport>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RoundReport {
    pub(crate) pass: u32,
    pub(crate) round: u32,
    pub(crate) nodes: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    pub(crate) opened: f64,
    pub(crate) closed: f64,
}

/// The time series, slot by slot.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SeriesReport {
    /// The length of a slot, in seconds.
    pub(crate) width: f64,
    pub(crate) classes: Vec<ClassSeries>,
    pub(crate) drops: BTreeMap<&'static str, Vec<u32>>,
    pub(crate) running: Vec<u64>,
    pub(crate) delayed: Vec<u64>,
    pub(crate) workers: Vec<u64>,
    pub(crate) leader_nodes: Vec<u64>,
    pub(crate) follower_nodes: Vec<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClassSeries {
    pub(crate) offered: Vec<u32>,
    pub(crate) granted: Vec<u32>,
    pub(crate) cost: Vec<u64>,
    pub(crate) depth: Vec<u64>,
    pub(crate) wait_p50: Vec<Option<f64>>,
    pub(crate) wait_p95: Vec<Option<f64>>,
}

impl Report {
    /// Whether all expectations of the scenario were met.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        self.expectations.iter().all(|checked| checked.met)
    }

    /// The expectations of the scenario and their results.
    #[must_use]
    pub fn expectations(&self) -> &[CheckedExpectation] {
        &self.expectations
    }

    /// Number of submissions, including those of returning clients.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.totals.counts.offered
    }

    /// The report as JSON. The same run always gives the same text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names can be written")
    }

    /// The report for a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::text(self)
    }

    /// The report as a self-contained HTML page.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::html(self)
    }
}
