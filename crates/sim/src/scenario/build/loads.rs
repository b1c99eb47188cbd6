//! Builds loads, and the request parameters of a trace.

use super::super::file::{ClientsFile, LoadFile, PickFile, RefusalFile, TraceFile};
use super::super::location::InvalidKey;
use super::super::model::{ActualCost, Clients, Load, OnRefusal, Request, TargetChoice};
use super::Checked;
use super::names::{Interner, Lookup, check_fraction, check_max, check_name, nonzero_duration};
use headworks_core::{Class, MAX_SET, Time};
use headworks_synth::{Arrivals, Distribution};
use std::time::Duration;

/// Maximum number of clients, flows or targets over all loads.
const MAX_TOTAL: u64 = 10_000_000;

pub(super) fn load_of(
    file: &LoadFile,
    duration: Duration,
    lookup: &Lookup<'_>,
    names: &mut Interner,
) -> Checked<Vec<Load>> {
    check_name("name", &file.name)?;
    check_name("flow", file.flow.as_ref().unwrap_or(&file.name))?;
    file.arrivals
        .check()
        .map_err(|error| InvalidKey::new("arrivals", error.to_string()))?;
    if let Arrivals::Closed { clients, .. } = file.arrivals {
        check_max("arrivals.clients", u64::from(clients))?;
    }
    if let Arrivals::OnOff { off, .. } = file.arrivals
        && off > duration.saturating_mul(1000)
    {
        return Err(InvalidKey::new(
            "arrivals.off",
            "is far longer than the run; shorten it",
        ));
    }
    let classes = lookup.classes("class", file.class.as_ref())?;
    let flows = names.group(file.flow.as_ref().unwrap_or(&file.name), file.flows)?;
    let targets = lookup.targets("targets", file.targets.as_ref())?;
    let pick = match file.pick {
        None | Some(PickFile::Any) => any(targets)?,
        Some(PickFile::One) => TargetChoice::One(targets),
        Some(PickFile::Each) if matches!(file.arrivals, Arrivals::Closed { .. }) => {
            return Err(InvalidKey::new(
                "pick",
                "`each` makes many jobs of a request, which clients of a closed load cannot wait for; use `one`",
            ));
        }
        Some(PickFile::Each) => TargetChoice::Each(targets),
    };
    let request = Request {
        cost: file
            .cost
            .as_ref()
            .map_or(Distribution::Constant { value: 1 }, |cost| cost.0.clone()),
        actual: match (&file.actual, file.misjudged) {
            (Some(_), Some(_)) => {
                return Err(InvalidKey::new(
                    "misjudged",
                    "is given beside actual; remove one of them",
                ));
            }
            (Some(drawn), None) => ActualCost::Drawn(drawn.0.clone()),
            (None, factor) => misjudged(factor)?,
        },
        pick,
        timeout: nonzero_duration("timeout", file.timeout)?,
        clients: clients(&file.clients).map_err(|wrong| wrong.below("clients"))?,
    };
    let from = file.from.map_or(Duration::ZERO, |length| length.0);
    let until = file.until.map_or(Time::MAX, |length| Time::ZERO + length.0);
    if Time::ZERO + from >= until {
        return Err(InvalidKey::new("until", "must be later than from"));
    }
    let load = |class: Class| Load {
        name: file.name.clone(),
        arrivals: file.arrivals.clone(),
        class,
        flows: flows.clone(),
        request: request.clone(),
        from,
        until,
        // Checked with the fleet.
        node: file.node.map(|node| node.saturating_sub(1) as usize),
    };
    Ok(classes.into_iter().map(load).collect())
}

/// Checks the totals of all loads: each of them may be within its own limits.
pub(super) fn check_totals(loads: &[Load]) -> Checked<()> {
    let clients = |load: &Load| match load.arrivals {
        Arrivals::Closed { clients, .. } => u64::from(clients),
        _ => 0,
    };
    let targets = |load: &Load| match &load.request.pick {
        TargetChoice::Any(targets) | TargetChoice::One(targets) | TargetChoice::Each(targets) => {
            targets.len()
        }
    };
    let together = |key: &str, count: u64| {
        let problem =
            format!("{count} together with the earlier loads; the maximum is {MAX_TOTAL}");
        match count > MAX_TOTAL {
            true => Err(InvalidKey::new(key, problem)),
            false => Ok(()),
        }
    };
    together("arrivals.clients", loads.iter().map(clients).sum())?;
    together(
        "flows",
        loads.iter().map(|load| load.flows.len() as u64).sum(),
    )?;
    together(
        "targets",
        loads.iter().map(|load| targets(load) as u64).sum(),
    )
}

fn any(targets: Vec<u32>) -> Checked<TargetChoice> {
    if targets.len() > MAX_SET {
        let problem = format!(
            "{} targets in one set, {MAX_SET} are possible; name fewer, or use pick = \"one\"",
            targets.len()
        );
        return Err(InvalidKey::new("targets", problem));
    }
    Ok(TargetChoice::Any(targets))
}

fn misjudged(factor: Option<f64>) -> Checked<ActualCost> {
    match factor {
        None => Ok(ActualCost::AsEstimated),
        Some(factor) if (1.0..=1e6).contains(&factor) => Ok(ActualCost::Within(factor)),
        Some(factor) => Err(InvalidKey::new(
            "misjudged",
            format!(
                "{factor} is not a factor; write 1 (exact) to 1e6, as in 4 for a quarter to four times the estimate"
            ),
        )),
    }
}

fn clients(file: &ClientsFile) -> Checked<Clients> {
    let jitter = check_fraction("jitter", file.jitter)?;
    if file.tries == Some(0) {
        return Err(InvalidKey::new(
            "tries",
            "must be at least 1, the first visit",
        ));
    }
    Ok(Clients {
        on_refusal: match file.on_refusal {
            None | Some(RefusalFile::GiveUp) => OnRefusal::GiveUp,
            Some(RefusalFile::RetryNow) => OnRefusal::RetryNow,
            Some(RefusalFile::Obey) => OnRefusal::Obey,
        },
        tries: file.tries.unwrap_or(10),
        jitter,
        round_trip: file
            .round_trip
            .map_or(Duration::from_millis(20), |length| length.0)
            .max(Duration::from_micros(1)),
    })
}

pub(super) fn trace_of(file: &TraceFile, lookup: &Lookup<'_>) -> Checked<Request> {
    let targets = lookup.targets("targets", file.targets.as_ref())?;
    Ok(Request {
        cost: Distribution::Constant { value: 1 },
        actual: misjudged(file.misjudged)?,
        // A scenario with more targets than a set can hold can still be run; its trace uses the
        // first of them.
        pick: TargetChoice::Any(targets.into_iter().take(MAX_SET).collect()),
        timeout: nonzero_duration("timeout", file.timeout)?,
        clients: clients(&file.clients).map_err(|wrong| wrong.below("clients"))?,
    })
}
