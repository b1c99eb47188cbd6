//! Builds a fleet: nodes that share the limits of the scenario, and what happens to them.

use super::super::amount::Name;
use super::super::file::{File, FleetFile, OnLossFile};
use super::super::location::InvalidKey;
use super::super::model::{
    FleetPlan, Load, NodeChoice, OnRefusal, SimulatedTarget, TargetChoice, Trouble,
};
use super::Checked;
use super::names::{check_fraction, nonzero_duration};
use headworks_core::shares::OnLoss;
use headworks_synth::Distribution;
use std::time::Duration;

/// Most nodes that are simulated.
const MOST_NODES: u64 = 100;

pub(super) fn fleet_of(
    fleet: &FleetFile,
    file: &File,
    loads: &[Load],
    targets: &[SimulatedTarget],
) -> Checked<FleetPlan> {
    check_rest(file, loads, targets)?;
    let plan = plan(fleet).map_err(|wrong| wrong.below("fleet"))?;
    for (index, load) in file.loads.iter().enumerate() {
        if let Some(node) = load.node.filter(|node| !(1..=fleet.nodes).contains(node)) {
            let problem = format!("there is no node {node}; nodes are 1 to {}", fleet.nodes);
            return Err(InvalidKey::new(format!("loads[{index}].node"), problem));
        }
    }
    Ok(plan)
}

/// Rejects what is not simulated together with a fleet.
fn check_rest(file: &File, loads: &[Load], targets: &[SimulatedTarget]) -> Checked<()> {
    let alone = "is not simulated together with [fleet]; remove one of them";
    for (key, is_given) in [
        ("rounds", file.rounds.is_some()),
        ("trace", file.trace.is_some()),
        ("workers", file.workers.is_some()),
    ] {
        if is_given {
            return Err(InvalidKey::new(key, alone));
        }
    }
    for (index, load) in loads.iter().enumerate() {
        let several = matches!(&load.request.pick, TargetChoice::Any(any) if any.len() > 1);
        if several || matches!(load.request.pick, TargetChoice::Each(_)) {
            let problem = "with [fleet], a request has one target; write pick = \"one\"";
            return Err(InvalidKey::new(format!("loads[{index}].pick"), problem));
        }
        if load.request.clients.on_refusal != OnRefusal::GiveUp {
            let problem = "with [fleet], clients give up; leave it out";
            let key = format!("loads[{index}].clients.on_refusal");
            return Err(InvalidKey::new(key, problem));
        }
    }
    let faulty = targets.iter().any(|target| {
        let errors = target.fault + target.rejected + target.silent + target.gone;
        let capacity = target.capacity;
        errors > 0.0
            || !target.outages.is_empty()
            || capacity.concurrent.is_some()
            || capacity.requests.is_some()
            || capacity.cost.is_some()
    });
    if faulty {
        let problem = "with [fleet], targets answer every call; remove errors, outages, capacity";
        return Err(InvalidKey::new("targets", problem));
    }
    Ok(())
}

fn plan(fleet: &FleetFile) -> Checked<FleetPlan> {
    if !(1..=MOST_NODES).contains(&fleet.nodes) {
        let problem = format!("{} is out of range; write 1 to {MOST_NODES}", fleet.nodes);
        return Err(InvalidKey::new("nodes", problem));
    }
    let micros = Duration::from_micros;
    let delay = match fleet.delay.as_ref().map(|delay| &delay.0) {
        None => (Duration::from_millis(1), Duration::from_millis(5)),
        Some(Distribution::Constant { value }) => (micros(*value), micros(*value)),
        Some(Distribution::Uniform { low, high }) => (micros(*low), micros(*high)),
        Some(_) => {
            let problem = "must be a time or a range; write \"5ms\" or \"1ms-20ms\"";
            return Err(InvalidKey::new("delay", problem));
        }
    };
    let request_timeout = nonzero_duration("request_timeout", fleet.request_timeout)?;
    let on_loss = match fleet.on_loss {
        None | Some(OnLossFile::Keep) => OnLoss::Keep,
        Some(OnLossFile::Closed) => OnLoss::Closed {
            request_timeout: Some(request_timeout.unwrap_or(Duration::from_secs(60))),
        },
    };
    let forget_after = nonzero_duration("forget_after", fleet.forget_after)?;
    let mut troubles = Vec::new();
    for (index, cut) in fleet.cut.iter().enumerate() {
        let (from, until) = (cut.from.0, cut.from.0 + cut.length.0);
        let trouble = match &cut.node {
            Name::Word(all) if all == "all" => Trouble::Away(until),
            node => {
                let below = |wrong: InvalidKey| wrong.below(&format!("cut[{index}]"));
                Trouble::Cut(node_of(node, fleet.nodes).map_err(below)?, until)
            }
        };
        troubles.push((from, trouble));
    }
    for (index, kill) in fleet.kill.iter().enumerate() {
        let below = |wrong: InvalidKey| wrong.below(&format!("kill[{index}]"));
        let node = node_of(&kill.node, fleet.nodes).map_err(below)?;
        let back = kill.back_after.map(|after| after.0);
        troubles.push((kill.at.0, Trouble::Kill(node, back)));
    }
    troubles.sort_by_key(|(at, _)| *at);
    Ok(FleetPlan {
        nodes: fleet.nodes as usize,
        delay,
        loss: check_fraction("loss", fleet.loss)?,
        on_loss,
        forget_after: forget_after.unwrap_or(Duration::from_secs(600)),
        troubles,
    })
}

fn node_of(name: &Name, nodes: u64) -> Checked<NodeChoice> {
    match name {
        Name::Number(number) if (1..=nodes).contains(number) => {
            Ok(NodeChoice::Number(*number as usize - 1))
        }
        Name::Word(word) if word == "allocator" => Ok(NodeChoice::Allocator),
        name => {
            let problem =
                format!("there is no node `{name}`; write 1 to {nodes}, or \"allocator\"");
            Err(InvalidKey::new("node", problem))
        }
    }
}
