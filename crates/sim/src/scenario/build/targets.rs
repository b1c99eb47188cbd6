//! Builds the simulated targets and their scheduler configuration.

use super::super::file::{ErrorsFile, OutageKind as OutageFile, TargetFile};
use super::super::location::InvalidKey;
use super::super::model::{Capacity, Outage, OutageKind, SimulatedTarget};
use super::Checked;
use super::names::{check_fraction, check_max, check_name, member, nonzero_duration, positive};
use super::scheduler::{limits, weight};
use headworks_core::{Config, TargetConfig, Time};
use headworks_synth::Distribution;
use std::collections::HashSet;
use std::time::Duration;

/// Name of the target that a scenario without `[[targets]]` has.
const DEFAULT_TARGET: &str = "target";
/// Former name of the default target, which existing scenarios may use.
const FORMER_DEFAULT_TARGET: &str = "far side";

/// Returns the current name of `name`: the former name of the default target is an alias, unless
/// the scenario has a target of that name.
pub(super) fn current_name<'a>(name: &'a str, targets: &[SimulatedTarget]) -> &'a str {
    let is_default = matches!(targets, [only] if only.name == DEFAULT_TARGET);
    if is_default && name == FORMER_DEFAULT_TARGET {
        return DEFAULT_TARGET;
    }
    name
}

pub(super) fn targets(files: &[TargetFile], config: &mut Config) -> Checked<Vec<SimulatedTarget>> {
    let mut targets = Vec::new();
    let mut taken = HashSet::new();
    let mut outages = 0;
    for (index, file) in files.iter().enumerate() {
        let below = |wrong: InvalidKey| wrong.below(&format!("targets[{index}]"));
        let (settings, target) = target_of(file).map_err(below)?;
        if !taken.insert(file.name.clone()) {
            let problem = format!("duplicate name `{}`; give each target its own", file.name);
            return Err(below(InvalidKey::new("name", problem)));
        }
        let count = check_max("count", file.count.unwrap_or(1)).map_err(below)?;
        if count == 0 {
            return Err(below(InvalidKey::new("count", "must be at least 1")));
        }
        check_max("count", count + targets.len() as u64).map_err(below)?;
        outages += count * target.outages.len() as u64;
        check_max("outages", outages).map_err(below)?;
        for number in 1..=count {
            let name = match file.count {
                None => file.name.clone(),
                Some(_) => member(&file.name, number),
            };
            taken.insert(name.clone());
            config.targets.push(settings);
            targets.push(SimulatedTarget {
                name,
                ..target.clone()
            });
        }
    }
    if targets.is_empty() {
        targets.push(SimulatedTarget::plain());
        config.targets.push(TargetConfig::default());
    }
    Ok(targets)
}

impl SimulatedTarget {
    /// A target that answers in 50 ms and never fails.
    fn plain() -> Self {
        SimulatedTarget {
            name: DEFAULT_TARGET.to_owned(),
            group: DEFAULT_TARGET.to_owned(),
            latency: Distribution::Constant { value: 50_000 },
            latency_per_cost: Duration::ZERO,
            fault: 0.0,
            rejected: 0.0,
            silent: 0.0,
            gone: 0.0,
            timeout: Duration::from_secs(30),
            capacity: Capacity::default(),
            overload_pause: Duration::from_secs(30),
            outages: Vec::new(),
        }
    }
}

fn target_of(file: &TargetFile) -> Checked<(TargetConfig, SimulatedTarget)> {
    check_name("name", &file.name)?;
    let mut settings = TargetConfig {
        weight: weight(file.weight)?,
        limits: limits(&file.limits).map_err(|wrong| wrong.below("limits"))?,
        ..TargetConfig::default()
    };
    settings.fault_threshold = file.fault_threshold.unwrap_or(settings.fault_threshold);
    settings.suspend_for = file
        .suspend_for
        .map_or(settings.suspend_for, |length| length.0);
    let mut target = SimulatedTarget::plain();
    target.name.clone_from(&file.name);
    target.group.clone_from(&file.name);
    if let Some(latency) = &file.latency {
        target.latency = latency.0.clone();
    }
    target.latency_per_cost = file
        .latency_per_cost
        .map_or(Duration::ZERO, |length| length.0);
    errors(&file.errors, &mut target).map_err(|wrong| wrong.below("errors"))?;
    target.timeout = nonzero_duration("timeout", file.timeout)?.unwrap_or(target.timeout);
    target.overload_pause = file
        .overload_pause
        .map_or(target.overload_pause, |length| length.0);
    if let Some(capacity) = &file.capacity {
        let rate = |key: &str, rate: Option<f64>| match rate {
            Some(rate) => positive(key, rate)
                .map(Some)
                .map_err(|wrong| wrong.below("capacity")),
            None => Ok(None),
        };
        target.capacity = Capacity {
            concurrent: capacity.concurrent,
            requests: rate("requests_per_second", capacity.requests_per_second)?,
            cost: rate("cost_per_second", capacity.cost_per_second)?,
            retry_after: capacity.retry_after.map(|length| length.0),
        };
    }
    target.outages = file
        .outages
        .iter()
        .map(|outage| Outage {
            from: Time::ZERO + outage.from.0,
            until: Time::ZERO + outage.from.0 + outage.length.0,
            kind: match outage.kind {
                None | Some(OutageFile::Refuses) => OutageKind::Refuses,
                Some(OutageFile::Silent) => OutageKind::Silent,
                Some(OutageFile::Overload) => OutageKind::Overload,
            },
        })
        .collect();
    Ok((settings, target))
}

fn errors(file: &ErrorsFile, target: &mut SimulatedTarget) -> Checked<()> {
    target.fault = check_fraction("fault", file.fault)?;
    target.rejected = check_fraction("rejected", file.rejected)?;
    target.silent = check_fraction("silent", file.silent)?;
    target.gone = check_fraction("gone", file.gone)?;
    if target.fault + target.rejected + target.silent + target.gone > 1.0 {
        return Err(InvalidKey::new(
            "fault",
            "the sum of all errors exceeds 1; make them smaller",
        ));
    }
    Ok(())
}
