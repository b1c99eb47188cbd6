//! Builds the simulated targets and their scheduler configuration.

use super::super::file::{ErrorsFile, OutageKind as OutageFile, TargetFile};
use super::super::model::{Capacity, FarSide, Outage, OutageKind};
use super::super::place::Wrong;
use super::Checked;
use super::names::{member, most, part, positive, shown, some_time};
use super::scheduler::{limits, weight};
use headworks_core::{Config, TargetConfig, Time};
use headworks_synth::Distribution;
use std::collections::HashSet;
use std::time::Duration;

pub(super) fn targets(files: &[TargetFile], config: &mut Config) -> Checked<Vec<FarSide>> {
    let mut targets = Vec::new();
    let mut taken = HashSet::new();
    let mut outages = 0;
    for (index, file) in files.iter().enumerate() {
        let below = |wrong: Wrong| wrong.below(&format!("targets[{index}]"));
        let (settings, far) = target_of(file).map_err(below)?;
        if !taken.insert(file.name.clone()) {
            let problem = format!("duplicate name `{}`; give each target its own", file.name);
            return Err(below(Wrong::new("name", problem)));
        }
        let count = most("count", file.count.unwrap_or(1)).map_err(below)?;
        if count == 0 {
            return Err(below(Wrong::new("count", "must be at least 1")));
        }
        most("count", count + targets.len() as u64).map_err(below)?;
        outages += count * far.outages.len() as u64;
        most("outages", outages).map_err(below)?;
        for number in 1..=count {
            let name = match file.count {
                None => file.name.clone(),
                Some(_) => member(&file.name, number),
            };
            taken.insert(name.clone());
            config.targets.push(settings);
            targets.push(FarSide {
                name,
                ..far.clone()
            });
        }
    }
    if targets.is_empty() {
        targets.push(FarSide::plain());
        config.targets.push(TargetConfig::default());
    }
    Ok(targets)
}

impl FarSide {
    /// A target that answers in 50 ms and never fails.
    fn plain() -> Self {
        FarSide {
            name: "far side".to_owned(),
            group: "far side".to_owned(),
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

fn target_of(file: &TargetFile) -> Checked<(TargetConfig, FarSide)> {
    shown("name", &file.name)?;
    let mut settings = TargetConfig {
        weight: weight(file.weight)?,
        limits: limits(&file.limits).map_err(|wrong| wrong.below("limits"))?,
        ..TargetConfig::default()
    };
    settings.fault_threshold = file.fault_threshold.unwrap_or(settings.fault_threshold);
    settings.suspend_for = file
        .suspend_for
        .map_or(settings.suspend_for, |length| length.0);
    let mut far = FarSide::plain();
    far.name.clone_from(&file.name);
    far.group.clone_from(&file.name);
    if let Some(latency) = &file.latency {
        far.latency = latency.0.clone();
    }
    far.latency_per_cost = file
        .latency_per_cost
        .map_or(Duration::ZERO, |length| length.0);
    errors(&file.errors, &mut far).map_err(|wrong| wrong.below("errors"))?;
    far.timeout = some_time("timeout", file.timeout)?.unwrap_or(far.timeout);
    far.overload_pause = file
        .overload_pause
        .map_or(far.overload_pause, |length| length.0);
    if let Some(capacity) = &file.capacity {
        let rate = |key: &str, rate: Option<f64>| match rate {
            Some(rate) => positive(key, rate)
                .map(Some)
                .map_err(|wrong| wrong.below("capacity")),
            None => Ok(None),
        };
        far.capacity = Capacity {
            concurrent: capacity.concurrent,
            requests: rate("requests_per_second", capacity.requests_per_second)?,
            cost: rate("cost_per_second", capacity.cost_per_second)?,
            retry_after: capacity.retry_after.map(|length| length.0),
        };
    }
    far.outages = file
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
    Ok((settings, far))
}

fn errors(file: &ErrorsFile, far: &mut FarSide) -> Checked<()> {
    far.fault = part("fault", file.fault)?;
    far.rejected = part("rejected", file.rejected)?;
    far.silent = part("silent", file.silent)?;
    far.gone = part("gone", file.gone)?;
    if far.fault + far.rejected + far.silent + far.gone > 1.0 {
        return Err(Wrong::new(
            "fault",
            "the sum of all errors exceeds 1; make them smaller",
        ));
    }
    Ok(())
}
