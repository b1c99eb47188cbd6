//! The calls of a fleet as the upstream sees them, checked without asking the allocator.
//!
//! The auditor knows the limits, the numbers that each core enforces, and the calls. It does not
//! know reports, grants or stamps.

use super::node::{Node, NodeState, Started};
use crate::audit::Violation;
use headworks_core::{Config, Flow, Limits, LocalLimits, LocalShare, Rate, TargetId, Time};

/// Everything a gate limits, as numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    rates: [Option<(u64, u64)>; 2],
    slots: Option<u64>,
}

impl Numbers {
    fn of(limits: &Limits) -> Self {
        let rate = |rate: Rate| (rate.micros_per_second(), rate.burst_in_micros());
        Numbers {
            rates: [limits.requests.map(rate), limits.cost.map(rate)],
            slots: limits.concurrent.map(u64::from),
        }
    }

    fn of_share(share: &LocalShare) -> Self {
        Numbers::of(&Limits {
            concurrent: share.concurrent,
            requests: share.requests,
            cost: share.cost,
            max_cost: None,
        })
    }

    fn part(self, billionths: u64) -> Self {
        let of = |whole: u64| (u128::from(whole) * u128::from(billionths) / 1_000_000_000) as u64;
        Numbers {
            rates: self
                .rates
                .map(|rate| rate.map(|(rate, burst)| (of(rate), of(burst)))),
            slots: self.slots.map(of),
        }
    }
}

/// A gate as the auditor names it.
#[derive(Clone, Copy, Debug)]
enum Checked {
    All,
    Flow(Flow),
    Target(TargetId),
}

/// The use of the gate over everything: charges − rate × time, and its least value so far.
#[derive(Clone, Copy, Debug, Default)]
struct Through {
    sum: f64,
    least: f64,
    largest: f64,
}

pub(super) struct Auditor {
    gates: Vec<(Checked, Numbers)>,
    through: [Through; 2],
    at: Time,
    /// Nodes that ever were: each may be in debt by one job, and a dead one's debt is forgiven.
    processes: f64,
    pub(super) charged: f64,
}

impl Auditor {
    pub(super) fn new(config: &Config, flows: &[Flow], now: Time) -> Self {
        let mut gates = vec![(Checked::All, Numbers::of(&config.limits))];
        for flow in flows {
            gates.push((
                Checked::Flow(*flow),
                Numbers::of(&config.flow(*flow).limits),
            ));
        }
        for (index, target) in config.targets.iter().enumerate() {
            let id = TargetId::new(index as u32);
            gates.push((Checked::Target(id), Numbers::of(&target.limits)));
        }
        Auditor {
            gates,
            through: [Through::default(); 2],
            at: now,
            processes: 0.0,
            charged: 0.0,
        }
    }

    pub(super) fn process_started(&mut self) {
        self.processes += 1.0;
    }

    /// Checks the calls that started, and that what is in force adds up.
    pub(super) fn check(
        &mut self,
        now: Time,
        nodes: &[Node],
        started: &[Started],
    ) -> Result<(), Violation> {
        self.check_charges(now, started)?;
        for (gate, whole) in &self.gates {
            check_in_force(now, *gate, whole, nodes)?;
            check_calls(now, *gate, whole, nodes)?;
        }
        Ok(())
    }

    fn check_charges(&mut self, now: Time, started: &[Started]) -> Result<(), Violation> {
        let seconds = now.since(self.at).as_secs_f64();
        self.at = now;
        let whole = self.gates[0].1;
        for (index, through) in self.through.iter_mut().enumerate() {
            let Some((rate, burst)) = whole.rates[index] else {
                continue;
            };
            let (rate, burst) = (rate as f64 / 1e6, burst as f64 / 1e6);
            through.sum -= rate * seconds;
            through.least = through.least.min(through.sum);
            for call in started {
                let amount = if index == 0 { 1.0 } else { call.cost as f64 };
                through.sum += amount;
                through.largest = through.largest.max(amount);
            }
            let most = burst + self.processes * through.largest + 1e-6;
            if through.sum - through.least > most {
                let what = format!(
                    "{} went through beyond {rate}/s, at most {most} may",
                    through.sum - through.least
                );
                return Err(Violation { at: now, what });
            }
        }
        self.charged += started.iter().map(|call| call.cost as f64).sum::<f64>();
        Ok(())
    }
}

/// The numbers that a core enforces at a gate.
fn enforced(local: &LocalLimits, gate: Checked, whole: &Numbers) -> Numbers {
    match gate {
        Checked::All => Numbers::of_share(&local.all),
        Checked::Target(target) => {
            Numbers::of_share(local.targets.get(&target).unwrap_or(&LocalShare::default()))
        }
        Checked::Flow(flow) => match local.flows.get(&flow) {
            Some(share) => Numbers::of_share(share),
            None => whole.part(local.other_flows.unwrap_or(1_000_000_000)),
        },
    }
}

fn check_in_force(
    now: Time,
    gate: Checked,
    whole: &Numbers,
    nodes: &[Node],
) -> Result<(), Violation> {
    let serving = nodes.iter().filter(|node| node.state == NodeState::Up);
    let in_force: Vec<Numbers> = serving
        .map(|node| enforced(node.in_force(), gate, whole))
        .collect();
    for (index, rate) in whole.rates.iter().enumerate() {
        let Some((rate, burst)) = rate else { continue };
        // A limit that a node does not replace is the whole limit.
        let of = |numbers: &Numbers| numbers.rates[index].unwrap_or((*rate, *burst));
        let rates: u64 = in_force.iter().map(|numbers| of(numbers).0).sum();
        let bursts: u64 = in_force.iter().map(|numbers| of(numbers).1).sum();
        if rates > *rate || bursts > *burst {
            let what = format!(
                "{gate:?}: rates in force add up to {rates} of {rate}, bursts to {bursts} of {burst}"
            );
            return Err(Violation { at: now, what });
        }
    }
    Ok(())
}

fn check_calls(now: Time, gate: Checked, whole: &Numbers, nodes: &[Node]) -> Result<(), Violation> {
    let Some(slots) = whole.slots else {
        return Ok(());
    };
    let calls = nodes.iter().flat_map(Node::at_upstream);
    let here = calls.filter(|lease| match gate {
        Checked::All => true,
        Checked::Flow(flow) => lease.flow == flow,
        Checked::Target(target) => lease.target == target,
    });
    let running = here.count() as u64;
    if running > slots {
        let what = format!("{gate:?}: {running} calls at once, {slots} are allowed");
        return Err(Violation { at: now, what });
    }
    Ok(())
}
