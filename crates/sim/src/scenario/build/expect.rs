//! Builds the expectations of a scenario.

use super::super::Scenario;
use super::super::amount::{Name, Names};
use super::super::expect::{Expect, Metric, Scope};
use super::super::file::ExpectFile;
use super::super::location::InvalidKey;
use super::Checked;
use super::names::Lookup;
use super::targets::current_name;

pub(super) fn expect_of(file: &ExpectFile, scenario: &Scenario) -> Checked<Expect> {
    if file.at_least.is_none() && file.at_most.is_none() {
        return Err(InvalidKey::new(
            "metric",
            "has no limit; add at_least or at_most",
        ));
    }
    for (key, limit) in [("at_least", file.at_least), ("at_most", file.at_most)] {
        if let Some(limit) = limit.filter(|limit| !limit.is_finite()) {
            let problem = format!("invalid limit {limit}; write a number, or leave it out");
            return Err(InvalidKey::new(key, problem));
        }
    }
    let scope = scope_of(file, scenario)?;
    if !file.metric.applies(&scope) {
        let problem = format!(
            "`{}` does not apply to {scope}; name a class, flow, load, target or side",
            file.metric
        );
        return Err(InvalidKey::new("metric", problem));
    }
    let of_fleet = [Metric::LeastUse, Metric::MostUse, Metric::CallsOver];
    if of_fleet.contains(&file.metric) && scenario.fleet.is_none() {
        let problem = format!("`{}` needs [fleet]", file.metric);
        return Err(InvalidKey::new("metric", problem));
    }
    Ok(Expect {
        metric: file.metric,
        scope,
        at_least: file.at_least,
        at_most: file.at_most,
    })
}

fn scope_of(file: &ExpectFile, scenario: &Scenario) -> Checked<Scope> {
    let given = [
        file.class.is_some(),
        file.flow.is_some(),
        file.load.is_some(),
        file.target.is_some(),
        file.side.is_some(),
    ];
    if given.into_iter().filter(|given| *given).count() > 1 {
        return Err(InvalidKey::new(
            "metric",
            "applies to one item; give only one of class, flow, load, target and side",
        ));
    }
    let lookup = Lookup {
        classes: &scenario.classes,
        targets: &scenario.targets,
    };
    let unknown = |key: &str, name: &str| {
        Err(InvalidKey::new(
            key,
            format!("there is no {key} `{name}` in this scenario"),
        ))
    };
    if let Some(name) = &file.class {
        return Ok(Scope::Class(match name {
            Name::Word(every) if every == "every" => None,
            name => Some(usize::from(lookup.class("class", name)?.0)),
        }));
    }
    if let Some(name) = &file.flow {
        return match name.as_str() {
            "every" => Ok(Scope::Flow(None)),
            name if scenario.flows.iter().any(|flow| flow == name) => {
                Ok(Scope::Flow(Some(name.to_owned())))
            }
            name => unknown("flow", name),
        };
    }
    if let Some(name) = &file.load {
        return match scenario.loads.iter().any(|load| load.name == *name) {
            true => Ok(Scope::Load(name.clone())),
            false => unknown("load", name),
        };
    }
    if let Some(name) = &file.target {
        lookup.targets("target", Some(&Names(vec![Name::Word(name.clone())])))?;
        let name = current_name(name, &scenario.targets);
        return Ok(Scope::Target(name.to_owned()));
    }
    match file.side.as_deref() {
        None => Ok(Scope::All),
        Some("leader") if scenario.rounds.is_some() => Ok(Scope::Side("leader")),
        Some("follower") if scenario.rounds.is_some() => Ok(Scope::Side("follower")),
        Some(_) => Err(InvalidKey::new(
            "side",
            "is `leader` or `follower`, in a scenario that has [rounds]",
        )),
    }
}
