//! Checks the expectations of a scenario.

use super::{ClassReport, FlowReport, LoadReport, Report, SideReport, TargetReport, Waits};
use crate::record::Counts;
use crate::scenario::{Expect, Metric, Scope};
use serde::Serialize;

/// An expectation and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CheckedExpectation {
    /// The expectation in words.
    pub expected: String,
    /// The item with the worst measurement.
    pub of: String,
    /// The measured value.
    pub measured: f64,
    /// Whether it was met.
    pub met: bool,
}

pub(super) fn check(expects: &[Expect], report: &Report) -> Vec<CheckedExpectation> {
    expects
        .iter()
        .map(|expect| check_one(expect, report))
        .collect()
}

fn check_one(expect: &Expect, report: &Report) -> CheckedExpectation {
    let measured = measure(expect.metric, &expect.scope, report);
    // Reports the item that violates the expectation most, or else comes closest to a limit.
    let margin = |value: f64| {
        let above = expect.at_least.map_or(f64::INFINITY, |least| value - least);
        let below = expect.at_most.map_or(f64::INFINITY, |most| most - value);
        above.min(below)
    };
    let worst = measured
        .into_iter()
        .min_by(|a, b| margin(a.1).total_cmp(&margin(b.1)));
    let (of, value) = worst.unwrap_or_else(|| ("no measurement".to_owned(), f64::NAN));
    CheckedExpectation {
        expected: expect.to_string(),
        of,
        measured: value,
        met: expect.is_met(value),
    }
}

fn measure(metric: Metric, scope: &Scope, report: &Report) -> Vec<(String, f64)> {
    match scope {
        Scope::All => vec![("all".to_owned(), of_all(metric, report))],
        Scope::Class(which) => report
            .classes
            .iter()
            .enumerate()
            .filter(|(index, class)| match which {
                Some(which) => which == index,
                // A class that takes precedence over all others has no share to deviate from.
                None => {
                    class.counts.offered > 0
                        && (metric != Metric::ShareDeviation || class.deviation.is_some())
                }
            })
            .map(|(_, class)| (class.name.clone(), of_class(metric, class)))
            .collect(),
        Scope::Flow(which) => report
            .flows
            .iter()
            .filter(|flow| which.as_ref().is_none_or(|which| *which == flow.name))
            .map(|flow| (flow.name.clone(), of_flow(metric, flow)))
            .collect(),
        Scope::Load(name) => report
            .loads
            .iter()
            .filter(|load| load.name == *name)
            .map(|load| (load.name.clone(), of_load(metric, load)))
            .collect(),
        Scope::Target(name) => report
            .targets
            .iter()
            .filter(|target| target.group == *name || target.name == *name)
            .map(|target| (target.name.clone(), of_target(metric, target)))
            .collect(),
        Scope::Side(name) => report
            .rounds
            .iter()
            .map(|rounds| {
                let side = match *name {
                    "leader" => &rounds.leader,
                    _ => &rounds.follower,
                };
                ((*name).to_owned(), of_side(metric, side, rounds.max_lead))
            })
            .collect(),
    }
}

fn ratio(of: u64, whole: u64) -> f64 {
    of as f64 / whole as f64
}

fn of_waits(metric: Metric, waits: Waits) -> f64 {
    let value = match metric {
        Metric::WaitP50 => waits.p50,
        Metric::WaitP90 => waits.p90,
        Metric::WaitP99 => waits.p99,
        _ => None,
    };
    value.unwrap_or(f64::NAN)
}

fn of_counts(metric: Metric, counts: &Counts, refused: u64, waits: Waits) -> f64 {
    match metric {
        Metric::Requests => counts.requests as f64,
        Metric::Offered => counts.offered as f64,
        Metric::Admitted => counts.admitted as f64,
        Metric::AdmittedShare => ratio(counts.admitted, counts.offered),
        Metric::Refused => refused as f64,
        Metric::Shed => counts.shed as f64,
        Metric::Expired => counts.expired as f64,
        Metric::Failed => counts.failed as f64,
        Metric::Done => counts.done as f64,
        Metric::DoneShare => ratio(counts.done, counts.requests),
        Metric::Granted => counts.granted as f64,
        Metric::Aged => counts.aged as f64,
        _ => of_waits(metric, waits),
    }
}

fn of_all(metric: Metric, report: &Report) -> f64 {
    let totals = &report.totals;
    if let Some(fleet) = &report.fleet {
        let use_of_limit = |part: Option<f64>| part.unwrap_or(f64::NAN);
        match metric {
            Metric::LeastUse => return use_of_limit(fleet.least_use),
            Metric::MostUse => return use_of_limit(fleet.most_use),
            Metric::CallsOver => return fleet.calls_over as f64,
            _ => {}
        }
    }
    of_counts(metric, &totals.counts, totals.refused, totals.waits)
}

fn of_class(metric: Metric, class: &ClassReport) -> f64 {
    match metric {
        Metric::Share => class.share,
        Metric::ShareDeviation => class.deviation.map_or(f64::NAN, f64::abs),
        _ => of_counts(metric, &class.counts, class.refused_in_all(), class.waits),
    }
}

fn of_flow(metric: Metric, flow: &FlowReport) -> f64 {
    match metric {
        Metric::Offered => flow.tally.offered as f64,
        Metric::Admitted => flow.tally.admitted as f64,
        Metric::AdmittedShare => ratio(flow.tally.admitted, flow.tally.offered),
        Metric::Refused => flow.tally.refused as f64,
        Metric::Shed => flow.tally.shed as f64,
        Metric::Granted => flow.tally.granted as f64,
        Metric::Done => flow.tally.done as f64,
        Metric::Share => flow.share,
        Metric::ShareDeviation => flow.deviation.abs(),
        _ => f64::NAN,
    }
}

fn of_load(metric: Metric, load: &LoadReport) -> f64 {
    match metric {
        Metric::Requests => load.tally.requests as f64,
        Metric::Done => load.tally.done as f64,
        Metric::DoneShare => ratio(load.tally.done, load.tally.requests),
        Metric::Returned => load.tally.returned as f64,
        Metric::ReadmittedShare => ratio(load.tally.readmitted, load.tally.returned),
        Metric::GivenUp => load.tally.given_up as f64,
        _ => f64::NAN,
    }
}

fn of_target(metric: Metric, target: &TargetReport) -> f64 {
    match metric {
        Metric::Granted => target.granted as f64,
        Metric::Failures => target.failures as f64,
        Metric::Overloads => target.overloads as f64,
        Metric::Suspensions => target.suspensions as f64,
        Metric::HeldShare => target.held_share,
        _ => f64::NAN,
    }
}

fn of_side(metric: Metric, side: &SideReport, max_lead: u32) -> f64 {
    match metric {
        Metric::Completed => f64::from(u8::from(side.completed)),
        Metric::Nodes => side.nodes as f64,
        Metric::MaxLead => f64::from(max_lead),
        Metric::Passes => f64::from(side.passes),
        Metric::Failed => side.failed as f64,
        _ => f64::NAN,
    }
}
