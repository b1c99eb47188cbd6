//! Builds a report from the counters of a run.

use super::expect::check;
use super::{
    ClassReport, ClassSeries, FleetReport, FlowReport, LoadReport, NodeReport, Report, RoundReport,
    RoundsReport, SeriesReport, SideReport, TargetReport, Totals, Waits,
};
use crate::record::{ClassTally, DROPS, Histogram, Record, Series, drop_name};
use crate::scenario::Scenario;
use crate::simulation::{FleetTally, Run, SideTally, WalkTally};
use headworks_core::{Flow, Policy, Reason, Time};
use std::collections::BTreeMap;

/// Maximum number of flows reported individually.
const FLOWS: usize = 100;

impl Report {
    pub(crate) fn new(scenario: &Scenario, seed: u64, run: Run, fleet: Option<FleetTally>) -> Self {
        let Run {
            record,
            walk,
            end,
            left,
            flows,
            most_workers,
        } = run;
        let mut report = Report {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            seed,
            policy: scenario.config.policy.name(),
            seconds: end.as_secs_f64(),
            totals: totals(&record.classes),
            left,
            most_workers,
            classes: classes(scenario, &record),
            flows: flow_reports(scenario, &record, &flows),
            flow_count: 0,
            loads: loads(scenario, &record),
            targets: targets(scenario, &record, end),
            rounds: walk.map(|walk| rounds(&walk)),
            fleet: fleet.map(fleet_report),
            expectations: Vec::new(),
            series: series(&record.series),
        };
        report.expectations = check(&scenario.expects, &report);
        report.flow_count = report.flows.len();
        report.flows.truncate(FLOWS);
        report
    }
}

fn fleet_report(tally: FleetTally) -> FleetReport {
    let node = |(place, node): (usize, crate::simulation::NodeTally)| {
        let shares = node.shares.iter().copied();
        let count = node.shares.len().max(1) as f64;
        NodeReport {
            name: format!("node {}", place + 1),
            granted: node.granted,
            mean_share: shares.clone().sum::<f64>() / count,
            least_share: shares.clone().fold(1.0, f64::min),
            most_share: shares.fold(0.0, f64::max),
            shares: node.shares,
        }
    };
    FleetReport {
        nodes: tally.nodes.into_iter().enumerate().map(node).collect(),
        least_use: tally.use_of_limit.map(|(least, _)| least),
        most_use: tally.use_of_limit.map(|(_, most)| most),
        calls_over: tally.calls_over,
        violation: tally.violation,
        takeovers: tally.takeovers,
    }
}

fn waits(histogram: &Histogram) -> Waits {
    Waits {
        p50: histogram.quantile(0.5),
        p90: histogram.quantile(0.9),
        p99: histogram.quantile(0.99),
    }
}

fn totals(classes: &[ClassTally]) -> Totals {
    let mut totals = Totals::default();
    let mut all = Histogram::default();
    for class in classes {
        totals.counts += class.counts;
        totals.refused += class.refused.iter().sum::<u64>();
        all.add(&class.waits);
    }
    totals.waits = waits(&all);
    totals
}

/// A fraction of a whole; 0 if the whole is 0.
fn ratio(of: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    of as f64 / whole as f64
}

fn classes(scenario: &Scenario, record: &Record) -> Vec<ClassReport> {
    let tallies = &record.classes;
    let weight = |class: usize| scenario.config.classes[class].weight;
    let by_weight = match scenario.config.policy {
        Policy::Wfq | Policy::Hybrid => true,
        Policy::Strict | Policy::Fifo => false,
    };
    // Under `hybrid` the first class takes precedence and does not share by weight.
    let shares = |class: usize| {
        let takes_precedence = match scenario.config.policy {
            Policy::Hybrid => class == 0,
            Policy::Fifo | Policy::Strict | Policy::Wfq => false,
        };
        tallies[class].counts.offered > 0 && !takes_precedence
    };
    let all: u64 = tallies.iter().map(|tally| tally.cost).sum();
    let sharing = || (0..tallies.len()).filter(|class| shares(*class));
    let shared: u64 = sharing().map(|class| tallies[class].cost).sum();
    let weights: u64 = sharing().map(|class| u64::from(weight(class))).sum();
    let report = |(class, tally): (usize, &ClassTally)| {
        let due = shares(class).then(|| ratio(u64::from(weight(class)), weights));
        ClassReport {
            name: scenario.classes[class].clone(),
            weight: weight(class),
            counts: tally.counts,
            refused: Reason::ALL
                .iter()
                .zip(tally.refused)
                .filter(|(_, count)| *count > 0)
                .map(|(reason, count)| (reason.name(), count))
                .collect(),
            retried: tally.retried,
            cost: tally.cost,
            share: ratio(tally.cost, all),
            weight_share: due,
            deviation: due.map(|due| ratio(tally.cost, shared) / due - 1.0),
            comparable: by_weight && record.is_backlogged(tally.backlogged),
            waits: waits(&tally.waits),
        }
    };
    tallies.iter().enumerate().map(report).collect()
}

fn flow_reports(scenario: &Scenario, record: &Record, names: &[String]) -> Vec<FlowReport> {
    let config = &scenario.config;
    let weight = |flow: usize| {
        let own = config.flows.get(&Flow(flow as u64));
        own.unwrap_or(&config.default_flow).weight
    };
    let seen = || {
        record
            .flows
            .iter()
            .enumerate()
            .filter(|(_, tally)| tally.offered > 0)
    };
    // Flows share by weight within a class; across classes, the shares of the classes count as
    // well.
    let classes = record
        .classes
        .iter()
        .filter(|class| class.counts.offered > 0);
    let by_weight = !config.policy.is_by_arrival() && classes.count() == 1;
    let all: u64 = seen().map(|(_, tally)| tally.cost).sum();
    let weights: u64 = seen().map(|(flow, _)| u64::from(weight(flow))).sum();
    let mut flows: Vec<FlowReport> = seen()
        .map(|(flow, tally)| {
            let (share, due) = (
                ratio(tally.cost, all),
                ratio(u64::from(weight(flow)), weights),
            );
            FlowReport {
                name: names
                    .get(flow)
                    .cloned()
                    .unwrap_or_else(|| format!("flow {flow}")),
                weight: weight(flow),
                tally: *tally,
                share,
                weight_share: due,
                deviation: share / due - 1.0,
                comparable: by_weight && record.is_backlogged(tally.backlogged),
            }
        })
        .collect();
    flows.sort_by(|a, b| {
        b.tally
            .cost
            .cmp(&a.tally.cost)
            .then_with(|| a.name.cmp(&b.name))
    });
    flows
}

/// Loads by name: a load of several classes counts as one.
fn loads(scenario: &Scenario, record: &Record) -> Vec<LoadReport> {
    let names = scenario.loads.iter().map(|load| load.name.as_str());
    let mut loads: Vec<LoadReport> = Vec::new();
    for (name, tally) in names.chain(["trace"]).zip(&record.loads) {
        if tally.requests == 0 {
            continue;
        }
        match loads.iter_mut().find(|load| load.name == name) {
            Some(load) => load.tally += *tally,
            None => loads.push(LoadReport {
                name: name.to_owned(),
                tally: *tally,
            }),
        }
    }
    loads
}

fn targets(scenario: &Scenario, record: &Record, end: Time) -> Vec<TargetReport> {
    let seconds = end.as_secs_f64().max(f64::MIN_POSITIVE);
    scenario
        .targets
        .iter()
        .zip(&record.targets)
        .map(|(side, tally)| TargetReport {
            name: side.name.clone(),
            group: side.group.clone(),
            granted: tally.granted,
            failures: tally.failures,
            overloads: tally.overloads,
            suspensions: tally.suspensions,
            changes: tally.changes,
            held_share: tally.held.as_secs_f64() / seconds,
            states: tally
                .states
                .iter()
                .map(|(at, state)| (at.as_secs_f64(), *state))
                .collect(),
        })
        .collect()
}

fn rounds(walk: &WalkTally) -> RoundsReport {
    let side = |tally: &SideTally| SideReport {
        completed: tally.completed,
        nodes: tally.nodes,
        failed: tally.failed,
        passes: tally.passes,
        took: waits(&tally.took),
        rounds: tally
            .rounds
            .iter()
            .map(|round| RoundReport {
                pass: round.pass,
                round: round.round,
                nodes: round.declared,
                failed: round.failed,
                retried: round.retried,
                opened: round.opened.as_secs_f64(),
                closed: round.closed.as_secs_f64(),
            })
            .collect(),
    };
    let [leader, follower] = &walk.sides;
    RoundsReport {
        max_lead: walk.max_lead,
        leader: side(leader),
        follower: side(follower),
    }
}

fn series(series: &Series) -> SeriesReport {
    let slots = &series.slots;
    let count = slots.first().map_or(0, |slot| slot.classes.len());
    let class = |class: usize| {
        let of = || slots.iter().map(move |slot| &slot.classes[class]);
        ClassSeries {
            offered: of().map(|slot| slot.offered).collect(),
            granted: of().map(|slot| slot.granted).collect(),
            cost: of().map(|slot| slot.cost).collect(),
            depth: of().map(|slot| slot.depth).collect(),
            wait_p50: of().map(|slot| slot.waits.quantile(0.5)).collect(),
            wait_p95: of().map(|slot| slot.waits.quantile(0.95)).collect(),
        }
    };
    let drops: BTreeMap<&'static str, Vec<u32>> = (0..DROPS)
        .filter(|why| slots.iter().any(|slot| slot.drops[*why] > 0))
        .map(|why| {
            (
                drop_name(why),
                slots.iter().map(|slot| slot.drops[why]).collect(),
            )
        })
        .collect();
    let gauge = |read: fn(&crate::record::Gauges) -> u64| {
        slots.iter().map(|slot| read(&slot.gauges)).collect()
    };
    SeriesReport {
        width: series.width.as_secs_f64(),
        classes: (0..count).map(class).collect(),
        drops,
        running: gauge(|gauges| gauges.running),
        delayed: gauge(|gauges| gauges.delayed),
        workers: gauge(|gauges| gauges.workers),
        leader_nodes: gauge(|gauges| gauges.nodes[0]),
        follower_nodes: gauge(|gauges| gauges.nodes[1]),
    }
}
