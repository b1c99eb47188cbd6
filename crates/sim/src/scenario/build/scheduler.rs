//! Builds the scheduler configuration with its classes and flows.

use super::super::file::{
    BackoffFile, ClassFile, File, FlowFile, LimitsFile, OnSuspendFile, SchedulerFile,
};
use super::super::location::InvalidKey;
use super::Checked;
use super::names::{Interner, Lookup, check_max, check_name, positive};
use headworks_core::{
    Bound, ClassConfig, Config, Cost, Flow, FlowConfig, Limits, MAX_CLASSES, OnSuspend, Rate,
};

pub(super) fn scheduler(file: &SchedulerFile) -> Checked<Config> {
    let below = |wrong: InvalidKey| wrong.below("scheduler");
    let mut config = Config::default();
    if let Some(policy) = file.policy {
        config.policy = policy;
    }
    let count = |key: &str, value: u64| check_max(key, value).map(|n| n as usize).map_err(below);
    config.bound = match (file.bound, file.shared_bound) {
        (Some(_), Some(_)) => {
            let both = "give either bound (for each class) or shared_bound (for all), not both";
            return Err(InvalidKey::new("scheduler.shared_bound", both));
        }
        (Some(0), _) => return Err(InvalidKey::new("scheduler.bound", "must be at least 1")),
        (_, Some(0)) => {
            return Err(InvalidKey::new(
                "scheduler.shared_bound",
                "must be at least 1",
            ));
        }
        (Some(places), None) => Bound::PerClass(count("bound", places)?),
        (None, Some(places)) => Bound::Shared(count("shared_bound", places)?),
        (None, None) => config.bound,
    };
    if let Some(bound) = file.delayed_bound {
        config.delayed_bound = count("delayed_bound", bound)?;
    }
    if let Some(bookings) = file.bookings {
        config.bookings = count("bookings", bookings)?;
    }
    if let Some(waiting) = file.max_waiting {
        config.max_waiting = Some(count("max_waiting", waiting)?);
    }
    if let Some(on_suspend) = file.on_suspend {
        config.on_suspend = match on_suspend {
            OnSuspendFile::Keep => OnSuspend::Keep,
            OnSuspendFile::Delay => OnSuspend::Delay,
            OnSuspendFile::End => OnSuspend::End,
        };
    }
    config.attempts = file.attempts.unwrap_or(config.attempts);
    if let Some(put_off) = file.put_off {
        if put_off.0.is_zero() {
            return Err(InvalidKey::new(
                "scheduler.put_off",
                "must be longer than nothing, as in \"10s\"",
            ));
        }
        config.postpone_by = put_off.0;
    }
    config.refuse_unreachable = file
        .refuse_unreachable
        .or(file.refuse_hopeless)
        .unwrap_or(config.refuse_unreachable);
    config.limits = limits(&file.limits).map_err(|wrong| wrong.below("scheduler.limits"))?;
    backoff(&file.backoff, &mut config);
    Ok(config)
}

fn backoff(file: &BackoffFile, config: &mut Config) {
    let backoff = &mut config.backoff;
    backoff.base = file.base.map_or(backoff.base, |base| base.0);
    backoff.factor = file.factor.unwrap_or(backoff.factor);
    backoff.max = file.max.map_or(backoff.max, |max| max.0);
    backoff.jitter = file.jitter.unwrap_or(backoff.jitter).min(100);
}

pub(super) fn limits(file: &LimitsFile) -> Checked<Limits> {
    if file.concurrent == Some(0) {
        return Err(InvalidKey::new(
            "concurrent",
            "must be at least 1; leave it out for no limit",
        ));
    }
    let rate =
        |key: &str, burst_key: &str, rate: Option<f64>, burst: Option<u64>| match (rate, burst) {
            (None, Some(_)) => Err(InvalidKey::new(
                burst_key,
                format!("is a burst without a rate; add {key}"),
            )),
            (None, None) => Ok(None),
            (Some(rate), burst) => {
                let rate = Rate::per_second(positive(key, rate)?);
                Ok(Some(
                    burst.map_or(rate, |burst| rate.with_burst(Cost(burst))),
                ))
            }
        };
    let requests = rate(
        "requests_per_second",
        "requests_burst",
        file.requests_per_second,
        file.requests_burst,
    )?;
    let cost = rate(
        "cost_per_second",
        "cost_burst",
        file.cost_per_second,
        file.cost_burst,
    )?;
    Ok(Limits {
        concurrent: file.concurrent,
        requests,
        cost: match file.refund {
            Some(false) => cost.map(Rate::without_refund),
            _ => cost,
        },
        max_cost: file.max_cost.map(Cost),
    })
}

pub(super) fn classes(file: &File, config: &mut Config) -> Checked<Vec<String>> {
    match (file.scheduler.classes, file.classes.len()) {
        (Some(_), 1..) => {
            return Err(InvalidKey::new(
                "scheduler.classes",
                "is given beside [[classes]]; remove one of them",
            ));
        }
        (Some(count), 0) => {
            if !(1..=MAX_CLASSES as u64).contains(&count) {
                let problem = format!("{count} given, 1 to {MAX_CLASSES} are possible");
                return Err(InvalidKey::new("scheduler.classes", problem));
            }
            config.classes = ClassConfig::halving(count as usize);
        }
        (None, 0) => {}
        (None, count) if count > MAX_CLASSES => {
            return Err(InvalidKey::new(
                "classes",
                format!("{count} given, 1 to {MAX_CLASSES} are possible"),
            ));
        }
        (None, _) => config.classes.clear(),
    }
    let names: Vec<String> = (0..file.classes.len().max(config.classes.len()))
        .map(|index| {
            let name = file.classes.get(index).and_then(|class| class.name.clone());
            name.unwrap_or_else(|| format!("P{index}"))
        })
        .collect();
    for (index, class) in file.classes.iter().enumerate() {
        let built = class_of(class, index, &names);
        config
            .classes
            .push(built.map_err(|wrong| wrong.below(&format!("classes[{index}]")))?);
    }
    Ok(names)
}

fn class_of(file: &ClassFile, index: usize, names: &[String]) -> Checked<ClassConfig> {
    check_name("name", &names[index])?;
    let mut class = ClassConfig::weight(weight(Some(file.weight))?);
    class.aging = file.aging.map(|aging| aging.0);
    if let Some(name) = &file.displaces {
        let lookup = Lookup {
            classes: names,
            targets: &[],
        };
        let displaced = lookup.class("displaces", name)?;
        if usize::from(displaced.0) <= index {
            return Err(InvalidKey::new(
                "displaces",
                format!("`{name}` is not less urgent; name a later class"),
            ));
        }
        class.displaces = Some(displaced);
    }
    Ok(class)
}

pub(super) fn weight(weight: Option<u32>) -> Checked<u32> {
    match weight {
        None => Ok(1),
        Some(0) => Err(InvalidKey::new("weight", "must be at least 1")),
        Some(weight) => Ok(weight),
    }
}

pub(super) fn flows(file: &File, config: &mut Config, names: &mut Interner) -> Checked<()> {
    if let Some(flow) = &file.default_flow {
        config.default_flow = flow_of(flow).map_err(|wrong| wrong.below("default_flow"))?;
    }
    for (index, flow) in file.flows.iter().enumerate() {
        let below = |wrong: InvalidKey| wrong.below(&format!("flows[{index}]"));
        let built = flow_of(flow).map_err(below)?;
        let Some(name) = &flow.name else {
            return Err(below(InvalidKey::new(
                "name",
                "is missing; name the flow or the group of flows",
            )));
        };
        check_name("name", name).map_err(below)?;
        let group = names.group(name, flow.count).map_err(|wrong| {
            below(InvalidKey {
                key: "count".to_owned(),
                ..wrong
            })
        })?;
        for number in group {
            config.flows.insert(Flow(u64::from(number)), built);
        }
    }
    Ok(())
}

fn flow_of(file: &FlowFile) -> Checked<FlowConfig> {
    Ok(FlowConfig {
        weight: weight(file.weight)?,
        limits: limits(&file.limits).map_err(|wrong| wrong.below("limits"))?,
    })
}
