//! Builds a runnable scenario from the tables of a file: resolves names, expands groups and checks
//! values against each other.

mod expect;
mod fleet;
mod loads;
mod names;
mod rounds;
mod scheduler;
mod targets;

use super::Scenario;
use super::file::{File, TraceFile};
use super::location::InvalidKey;
use super::size::DEFAULT_MAX_STEPS;
use names::{Interner, Lookup, check_max, check_printable};

type Checked<T> = Result<T, InvalidKey>;

pub(super) fn build(name: String, file: &File) -> Checked<Scenario> {
    if file.duration.0.is_zero() {
        return Err(InvalidKey::new(
            "duration",
            "must not be zero; write \"60s\" or more",
        ));
    }
    if file.max_steps == Some(0) {
        let problem = "must be at least 1; write a larger number, or leave it out";
        return Err(InvalidKey::new("max_steps", problem));
    }
    let about = file.about.clone().unwrap_or_default();
    about
        .lines()
        .try_for_each(|line| check_printable("about", line))?;
    let mut config = scheduler::scheduler(&file.scheduler)?;
    let classes = scheduler::classes(file, &mut config)?;
    let targets = targets::targets(&file.targets, &mut config)?;
    let mut names = Interner::default();
    scheduler::flows(file, &mut config, &mut names)?;
    let lookup = Lookup {
        classes: &classes,
        targets: &targets,
    };
    let mut loads = Vec::new();
    for (index, load) in file.loads.iter().enumerate() {
        let built = loads::load_of(load, file.duration.0, &lookup, &mut names);
        let below = |wrong: InvalidKey| wrong.below(&format!("loads[{index}]"));
        loads.extend(built.map_err(below)?);
        loads::check_totals(&loads).map_err(below)?;
    }
    let without = TraceFile::default();
    let trace = file.trace.as_ref().unwrap_or(&without);
    let trace = loads::trace_of(trace, &lookup).map_err(|wrong| wrong.below("trace"))?;
    let rounds = match &file.rounds {
        Some(rounds) => {
            let plan = rounds::rounds_of(rounds, &lookup, &mut names);
            Some(plan.map_err(|wrong| wrong.below("rounds"))?)
        }
        None => None,
    };
    let workers = match &file.workers {
        Some(workers) if workers.base == 0 => {
            return Err(InvalidKey::new(
                "workers.base",
                "must be at least 1, or nothing would ever run",
            ));
        }
        Some(workers) if workers.max < workers.base => {
            return Err(InvalidKey::new(
                "workers.max",
                "must be at least as many as base",
            ));
        }
        Some(workers) => Some((
            check_max("workers.base", workers.base)? as usize,
            check_max("workers.max", workers.max)? as usize,
        )),
        None => None,
    };
    config
        .check()
        .map_err(|error| InvalidKey::new("scheduler", error.to_string()))?;
    let fleet = match &file.fleet {
        Some(fleet) => Some(fleet::fleet_of(fleet, file, &loads, &targets)?),
        None if file.loads.iter().any(|load| load.node.is_some()) => {
            let problem = "needs [fleet]; add it, or leave node out";
            return Err(InvalidKey::new("loads", problem));
        }
        None => None,
    };
    let mut scenario = Scenario {
        about,
        seed: file.seed.unwrap_or(0),
        duration: file.duration.0,
        max_steps: file.max_steps.unwrap_or(DEFAULT_MAX_STEPS),
        flows: names.names,
        name,
        config,
        classes,
        targets,
        loads,
        trace,
        workers,
        rounds,
        fleet,
        expects: Vec::new(),
    };
    for (index, expect) in file.expect.iter().enumerate() {
        let built = expect::expect_of(expect, &scenario);
        scenario
            .expects
            .push(built.map_err(|wrong| wrong.below(&format!("expect[{index}]")))?);
    }
    Ok(scenario)
}
