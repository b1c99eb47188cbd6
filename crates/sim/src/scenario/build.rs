//! From the tables of a file to what is run: names looked up, groups expanded, values checked against each other.

use super::Scenario;
use super::amount::{Name, Names};
use super::expect::{Expect, Scope};
use super::file::{
    BackoffFile, ClassFile, ClientsFile, ErrorsFile, ExpectFile, File, FlowFile, LimitsFile,
    LoadFile, OnSuspendFile, OutageKind as OutageFile, PickFile, PolicyFile, RefusalFile,
    RoundsFile, SchedulerFile, TargetFile, TraceFile,
};
use super::model::{
    Actual, Capacity, Clients, FarSide, Load, OnRefusal, Outage, OutageKind, Pick, Request,
    RoundsPlan,
};
use super::place::Wrong;
use headworks_core::{
    Bound, Class, ClassConfig, Config, Coordinator, Cost, Flow, FlowConfig, Limits, MAX_CLASSES,
    MAX_SET, OnSuspend, Policy, Rate, TargetConfig, Time,
};
use headworks_synth::{Arrivals, Distribution};
use std::collections::HashMap;
use std::time::Duration;

/// More of one thing than this is a slip of the pen.
const MOST: u64 = 1_000_000;

type Checked<T> = Result<T, Wrong>;

pub(super) fn build(name: String, file: File) -> Checked<Scenario> {
    if file.duration.0.is_zero() {
        return Err(Wrong::new(
            "duration",
            "nothing happens in no time; write \"60s\" or more",
        ));
    }
    let mut config = scheduler(&file.scheduler)?;
    let classes = classes(&file, &mut config)?;
    let targets = targets(&file.targets, &mut config)?;
    let mut names = Interner::default();
    flows(&file, &mut config, &mut names)?;
    let lookup = Lookup {
        classes: &classes,
        targets: &targets,
    };
    let mut loads = Vec::new();
    for (index, load) in file.loads.iter().enumerate() {
        let built = load_of(load, file.duration.0, &lookup, &mut names);
        loads.extend(built.map_err(|wrong| wrong.below(&format!("loads[{index}]")))?);
    }
    let trace = file.trace.unwrap_or_default();
    let trace = trace_of(&trace, &lookup).map_err(|wrong| wrong.below("trace"))?;
    let rounds = match &file.rounds {
        Some(rounds) => {
            let plan = rounds_of(rounds, &lookup, &mut names);
            Some(plan.map_err(|wrong| wrong.below("rounds"))?)
        }
        None => None,
    };
    let workers = match &file.workers {
        Some(workers) if workers.base == 0 => {
            return Err(Wrong::new(
                "workers.base",
                "must be at least 1, or nothing would ever run",
            ));
        }
        Some(workers) if workers.max < workers.base => {
            return Err(Wrong::new(
                "workers.max",
                "must be at least as many as base",
            ));
        }
        Some(workers) => Some((
            most("workers.base", workers.base)? as usize,
            most("workers.max", workers.max)? as usize,
        )),
        None => None,
    };
    config
        .check()
        .map_err(|error| Wrong::new("scheduler", error.to_string()))?;
    let mut scenario = Scenario {
        about: file.about.unwrap_or_default(),
        seed: file.seed.unwrap_or(0),
        duration: file.duration.0,
        flows: names.names,
        name,
        config,
        classes,
        targets,
        loads,
        trace,
        workers,
        rounds,
        expects: Vec::new(),
    };
    for (index, expect) in file.expect.iter().enumerate() {
        let built = expect_of(expect, &scenario);
        scenario
            .expects
            .push(built.map_err(|wrong| wrong.below(&format!("expect[{index}]")))?);
    }
    Ok(scenario)
}

/// Gives each name a number.
#[derive(Default)]
struct Interner {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Interner {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// `count` members of a group, or the name alone.
    fn group(&mut self, name: &str, count: Option<u64>) -> Checked<Vec<u32>> {
        match count {
            None => Ok(vec![self.number(name)]),
            Some(0) => Err(Wrong::new(
                "flows",
                "must be at least 1; leave it out for one",
            )),
            Some(count) => {
                let count = most("flows", count)?;
                Ok((1..=count).map(|n| self.number(&member(name, n))).collect())
            }
        }
    }
}

fn member(group: &str, number: u64) -> String {
    format!("{group}-{number}")
}

fn most(key: &str, value: u64) -> Checked<u64> {
    if value <= MOST {
        return Ok(value);
    }
    Err(Wrong::new(
        key,
        format!("{value} is too many; at most {MOST} are possible"),
    ))
}

fn positive(key: &str, value: f64) -> Checked<f64> {
    if value.is_finite() && value > 0.0 && value <= 1e12 {
        return Ok(value);
    }
    Err(Wrong::new(
        key,
        format!("{value} cannot work; write a number above 0, at most 1e12"),
    ))
}

fn part(key: &str, value: Option<f64>) -> Checked<f64> {
    match value {
        None => Ok(0.0),
        Some(value) if (0.0..=1.0).contains(&value) => Ok(value),
        Some(value) => Err(Wrong::new(
            key,
            format!("{value} is not a part of the whole; write a number from 0 to 1, as in 0.02"),
        )),
    }
}

/// What names stand for.
struct Lookup<'a> {
    classes: &'a [String],
    targets: &'a [FarSide],
}

impl Lookup<'_> {
    fn class(&self, key: &str, name: &Name) -> Checked<Class> {
        let count = self.classes.len();
        let index = match name {
            Name::Number(number) => usize::try_from(*number).ok().filter(|n| *n < count),
            Name::Word(word) => self.classes.iter().position(|class| class == word),
        };
        let none = || {
            Wrong::new(
                key,
                format!(
                    "there is no class `{name}`; there are 0 to {}, named {}",
                    count - 1,
                    self.classes.join(", ")
                ),
            )
        };
        index.map(|index| Class(index as u8)).ok_or_else(none)
    }

    fn classes(&self, key: &str, names: Option<&Names>) -> Checked<Vec<Class>> {
        let Some(Names(names)) = names else {
            return Ok(vec![Class(0)]);
        };
        if let [Name::Word(all)] = names.as_slice()
            && all == "all"
        {
            return Ok((0..self.classes.len()).map(|c| Class(c as u8)).collect());
        }
        if names.is_empty() {
            return Err(Wrong::new(
                key,
                "is an empty list; name a class, or leave it out for 0",
            ));
        }
        names.iter().map(|name| self.class(key, name)).collect()
    }

    /// The targets of groups or single ones; all of them if nothing is said.
    fn targets(&self, key: &str, names: Option<&Names>) -> Checked<Vec<u32>> {
        let Some(Names(names)) = names else {
            return Ok((0..self.targets.len() as u32).collect());
        };
        let mut all = Vec::new();
        for name in names {
            let before = all.len();
            let wanted = name.to_string();
            all.extend((0..self.targets.len() as u32).filter(|index| {
                let target = &self.targets[*index as usize];
                target.group == wanted || target.name == wanted
            }));
            if all.len() == before {
                return Err(Wrong::new(
                    key,
                    format!("there is no target `{name}`; name one of [[targets]]"),
                ));
            }
        }
        all.sort_unstable();
        all.dedup();
        if all.is_empty() {
            return Err(Wrong::new(
                key,
                "is an empty list; name a target, or leave it out for all",
            ));
        }
        Ok(all)
    }
}

fn scheduler(file: &SchedulerFile) -> Checked<Config> {
    let below = |wrong: Wrong| wrong.below("scheduler");
    let mut config = Config::default();
    if let Some(policy) = file.policy {
        config.policy = match policy {
            PolicyFile::Fifo => Policy::Fifo,
            PolicyFile::Strict => Policy::Strict,
            PolicyFile::Wfq => Policy::Wfq,
            PolicyFile::Hybrid => Policy::Hybrid,
        };
    }
    let count = |key: &str, value: u64| most(key, value).map(|n| n as usize).map_err(below);
    config.bound = match (file.bound, file.shared_bound) {
        (Some(_), Some(_)) => {
            let both = "give either bound (for each class) or shared_bound (for all), not both";
            return Err(Wrong::new("scheduler.shared_bound", both));
        }
        (Some(0), _) => return Err(Wrong::new("scheduler.bound", "must be at least 1")),
        (_, Some(0)) => return Err(Wrong::new("scheduler.shared_bound", "must be at least 1")),
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
            return Err(Wrong::new(
                "scheduler.put_off",
                "must be longer than nothing, as in \"10s\"",
            ));
        }
        config.put_off = put_off.0;
    }
    config.refuse_hopeless = file.refuse_hopeless.unwrap_or(config.refuse_hopeless);
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

fn limits(file: &LimitsFile) -> Checked<Limits> {
    if file.concurrent == Some(0) {
        return Err(Wrong::new(
            "concurrent",
            "must be at least 1; leave it out for no limit",
        ));
    }
    let rate =
        |key: &str, burst_key: &str, rate: Option<f64>, burst: Option<u64>| match (rate, burst) {
            (None, Some(_)) => Err(Wrong::new(
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

fn classes(file: &File, config: &mut Config) -> Checked<Vec<String>> {
    match (file.scheduler.classes, file.classes.len()) {
        (Some(_), 1..) => {
            return Err(Wrong::new(
                "scheduler.classes",
                "is given beside [[classes]]; leave one of them out",
            ));
        }
        (Some(count), 0) => {
            if !(1..=MAX_CLASSES as u64).contains(&count) {
                let problem = format!("{count} given, 1 to {MAX_CLASSES} are possible");
                return Err(Wrong::new("scheduler.classes", problem));
            }
            config.classes = ClassConfig::halving(count as usize);
        }
        (None, 0) => {}
        (None, count) if count > MAX_CLASSES => {
            return Err(Wrong::new(
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
    let mut class = ClassConfig::weight(weight(Some(file.weight))?);
    class.aging = file.aging.map(|aging| aging.0);
    if let Some(name) = &file.displaces {
        let lookup = Lookup {
            classes: names,
            targets: &[],
        };
        let displaced = lookup.class("displaces", name)?;
        if usize::from(displaced.0) <= index {
            return Err(Wrong::new(
                "displaces",
                format!("`{name}` is not less urgent; name a later class"),
            ));
        }
        class.displaces = Some(displaced);
    }
    Ok(class)
}

fn weight(weight: Option<u32>) -> Checked<u32> {
    match weight {
        None => Ok(1),
        Some(0) => Err(Wrong::new("weight", "must be at least 1")),
        Some(weight) => Ok(weight),
    }
}

fn flows(file: &File, config: &mut Config, names: &mut Interner) -> Checked<()> {
    if let Some(flow) = &file.default_flow {
        config.default_flow = flow_of(flow).map_err(|wrong| wrong.below("default_flow"))?;
    }
    for (index, flow) in file.flows.iter().enumerate() {
        let below = |wrong: Wrong| wrong.below(&format!("flows[{index}]"));
        let built = flow_of(flow).map_err(below)?;
        let Some(name) = &flow.name else {
            return Err(below(Wrong::new(
                "name",
                "is missing; name the flow or the group of flows",
            )));
        };
        let group = names.group(name, flow.count).map_err(|wrong| {
            below(Wrong {
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

fn targets(files: &[TargetFile], config: &mut Config) -> Checked<Vec<FarSide>> {
    let mut targets = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let below = |wrong: Wrong| wrong.below(&format!("targets[{index}]"));
        let (settings, far) = target_of(file).map_err(below)?;
        let repeated = |target: &FarSide| target.group == file.name || target.name == file.name;
        if targets.iter().any(repeated) {
            let problem = format!(
                "`{}` is the name of an earlier one; give each its own",
                file.name
            );
            return Err(below(Wrong::new("name", problem)));
        }
        let count = most("count", file.count.unwrap_or(1)).map_err(below)?;
        if count == 0 {
            return Err(below(Wrong::new("count", "must be at least 1")));
        }
        for number in 1..=count {
            let name = match file.count {
                None => file.name.clone(),
                Some(_) => member(&file.name, number),
            };
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
    /// One that answers in 50 ms and never fails.
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
    far.timeout = file.timeout.map_or(far.timeout, |length| length.0);
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
            "all errors together are more than 1; make them smaller",
        ));
    }
    Ok(())
}

fn load_of(
    file: &LoadFile,
    duration: Duration,
    lookup: &Lookup<'_>,
    names: &mut Interner,
) -> Checked<Vec<Load>> {
    file.arrivals
        .check()
        .map_err(|error| Wrong::new("arrivals", error.to_string()))?;
    if let Arrivals::Closed { clients, .. } = file.arrivals {
        most("arrivals.clients", u64::from(clients))?;
    }
    if let Arrivals::OnOff { off, .. } = file.arrivals
        && off > duration.saturating_mul(1000)
    {
        return Err(Wrong::new(
            "arrivals.off",
            "is far longer than the run; shorten it",
        ));
    }
    let classes = lookup.classes("class", file.class.as_ref())?;
    let flows = names.group(file.flow.as_ref().unwrap_or(&file.name), file.flows)?;
    let targets = lookup.targets("targets", file.targets.as_ref())?;
    let pick = match file.pick {
        None | Some(PickFile::Any) => any(targets)?,
        Some(PickFile::One) => Pick::One(targets),
        Some(PickFile::Each) if matches!(file.arrivals, Arrivals::Closed { .. }) => {
            return Err(Wrong::new(
                "pick",
                "`each` makes many jobs of a request, which clients of a closed load cannot wait for; use `one`",
            ));
        }
        Some(PickFile::Each) => Pick::Each(targets),
    };
    let request = Request {
        cost: file
            .cost
            .as_ref()
            .map_or(Distribution::Constant { value: 1 }, |cost| cost.0.clone()),
        actual: match (&file.actual, file.misjudged) {
            (Some(_), Some(_)) => {
                return Err(Wrong::new(
                    "misjudged",
                    "is given beside actual; leave one of them out",
                ));
            }
            (Some(drawn), None) => Actual::Drawn(drawn.0.clone()),
            (None, factor) => misjudged(factor)?,
        },
        pick,
        timeout: file.timeout.map(|length| length.0),
        clients: clients(&file.clients).map_err(|wrong| wrong.below("clients"))?,
    };
    let from = file.from.map_or(Duration::ZERO, |length| length.0);
    let until = file.until.map_or(Time::MAX, |length| Time::ZERO + length.0);
    if Time::ZERO + from >= until {
        return Err(Wrong::new("until", "must be later than from"));
    }
    let load = |class: Class| Load {
        name: file.name.clone(),
        arrivals: file.arrivals.clone(),
        class,
        flows: flows.clone(),
        request: request.clone(),
        from,
        until,
    };
    Ok(classes.into_iter().map(load).collect())
}

fn any(targets: Vec<u32>) -> Checked<Pick> {
    if targets.len() > MAX_SET {
        let problem = format!(
            "{} targets in one set, {MAX_SET} are possible; name fewer, or use pick = \"one\"",
            targets.len()
        );
        return Err(Wrong::new("targets", problem));
    }
    Ok(Pick::Any(targets))
}

fn misjudged(factor: Option<f64>) -> Checked<Actual> {
    match factor {
        None => Ok(Actual::AsEstimated),
        Some(factor) if (1.0..=1e6).contains(&factor) => Ok(Actual::Within(factor)),
        Some(factor) => Err(Wrong::new(
            "misjudged",
            format!(
                "{factor} is not a factor; write 1 (exact) to 1e6, as in 4 for a quarter to four times the estimate"
            ),
        )),
    }
}

fn clients(file: &ClientsFile) -> Checked<Clients> {
    let jitter = part("jitter", file.jitter)?;
    if file.tries == Some(0) {
        return Err(Wrong::new("tries", "must be at least 1, the first visit"));
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

fn trace_of(file: &TraceFile, lookup: &Lookup<'_>) -> Checked<Request> {
    let targets = lookup.targets("targets", file.targets.as_ref())?;
    Ok(Request {
        cost: Distribution::Constant { value: 1 },
        actual: misjudged(file.misjudged)?,
        // A scenario with more targets than a set holds can still be run; its trace goes to the first of them.
        pick: Pick::Any(targets.into_iter().take(MAX_SET).collect()),
        timeout: file.timeout.map(|length| length.0),
        clients: clients(&file.clients).map_err(|wrong| wrong.below("clients"))?,
    })
}

fn rounds_of(file: &RoundsFile, lookup: &Lookup<'_>, names: &mut Interner) -> Checked<RoundsPlan> {
    let (lag, max_lead) = (file.lag.unwrap_or(3), file.max_lead.unwrap_or(4));
    Coordinator::new(lag, max_lead).map_err(|error| Wrong::new("max_lead", error.to_string()))?;
    let (folders, files) = file.tree.expected_nodes();
    if !(folders + files).is_finite() || folders + files > 1e9 {
        let problem = format!(
            "has about {:.1e} nodes; at most 1e9 can be simulated, so make depth or dirs smaller",
            folders + files
        );
        return Err(Wrong::new("tree", problem));
    }
    let class = match &file.class {
        Some(name) => lookup.class("class", name)?,
        None => Class(0),
    };
    let side = |key: &str, target: &str| {
        let wanted = Names(vec![Name::Word(target.to_owned())]);
        lookup.targets(key, Some(&wanted))
    };
    Ok(RoundsPlan {
        tree: file.tree.clone(),
        class,
        lag,
        max_lead,
        retry_budget: file
            .retry_budget
            .map_or(Duration::from_secs(60), |length| length.0),
        passes: file.passes.unwrap_or(3).max(1),
        in_flight: file.in_flight.unwrap_or(64).max(1),
        sides: [
            (side("leader", &file.leader)?, names.number("leader")),
            (side("follower", &file.follower)?, names.number("follower")),
        ],
    })
}

fn expect_of(file: &ExpectFile, scenario: &Scenario) -> Checked<Expect> {
    if file.at_least.is_none() && file.at_most.is_none() {
        return Err(Wrong::new(
            "metric",
            "expects nothing; add at_least or at_most",
        ));
    }
    let scope = scope_of(file, scenario)?;
    if !file.metric.applies(&scope) {
        let problem = format!(
            "`{}` cannot be measured of {scope}; name a class, flow, load, target or side that it belongs to",
            file.metric
        );
        return Err(Wrong::new("metric", problem));
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
        return Err(Wrong::new(
            "metric",
            "is of one thing; give only one of class, flow, load, target and side",
        ));
    }
    let lookup = Lookup {
        classes: &scenario.classes,
        targets: &scenario.targets,
    };
    let unknown = |key: &str, name: &str| {
        Err(Wrong::new(
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
        return Ok(Scope::Target(name.clone()));
    }
    match file.side.as_deref() {
        None => Ok(Scope::All),
        Some("leader") if scenario.rounds.is_some() => Ok(Scope::Side("leader")),
        Some("follower") if scenario.rounds.is_some() => Ok(Scope::Side("follower")),
        Some(_) => Err(Wrong::new(
            "side",
            "is `leader` or `follower`, in a scenario that has [rounds]",
        )),
    }
}
