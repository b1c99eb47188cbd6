//! A scenario on several nodes that share its limits.
//!
//! The nodes, their messages and the allocator are those of [`crate::fleet`]. This module brings
//! the loads to them as a load balancer does, makes happen what the scenario lists, and counts.

use super::load::Source;
use super::{Purpose, Run, Unfinished};
use crate::error::SimError;
use crate::fleet::{Call, Fleet, FleetSpec, How, NodeState, Started};
use crate::record::{EXPIRED, FAILED, Gauges, Record, SHED};
use crate::scenario::{FleetPlan, NodeChoice, Scenario, TargetChoice, Trouble};
use crate::trial::{Progress, ProgressFn};
use headworks_core::shares::ShareSettings;
use headworks_core::{Class, Cost, Flow, Job, Reason, TargetId, TargetSet, Time};
use headworks_synth::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// The use of the limit is measured over any span of this length.
const WINDOW: Duration = Duration::from_secs(10);
/// The spans begin at multiples of this.
const BUCKET: Duration = Duration::from_millis(100);
/// Shares are noted once per this.
const NOTED: Duration = Duration::from_secs(1);
/// Steps between two progress reports.
const PROGRESS_INTERVAL: u64 = 1 << 12;

/// Result of a run, beside that of a single node.
#[derive(Debug)]
pub(crate) struct FleetTally {
    pub(crate) nodes: Vec<NodeTally>,
    /// The least and the most of the limit that was used in any ten seconds.
    pub(crate) use_of_limit: Option<(f64, f64)>,
    /// Calls that started while a limit was exceeded, and the first violation.
    pub(crate) calls_over: u64,
    pub(crate) violation: Option<String>,
    /// How often another node became the allocator.
    pub(crate) takeovers: u64,
}

/// One node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTally {
    pub(crate) granted: u64,
    /// The part of the limit that it had, once per second. Empty if nothing is limited.
    pub(crate) shares: Vec<f64>,
}

struct FleetRun<'a> {
    scenario: &'a Scenario,
    plan: &'a FleetPlan,
    fleet: Fleet,
    start: Time,
    rng: Rng,
    sources: Vec<Source<'a>>,
    arrivals: BinaryHeap<Reverse<(Time, u32, u64)>>,
    /// The nodes of the requests that have not ended, for those that end with their node.
    live: BTreeMap<(u32, u64), usize>,
    /// The nodes that are cut off, and those that are to be started again, with their times.
    cut: Vec<(usize, Time)>,
    back: Vec<(usize, Time)>,
    away_until: Time,
    troubles: usize,
    record: Record,
    tally: FleetTally,
    /// Charges of each span, in the unit of the limit.
    buckets: Vec<f64>,
    noted: u64,
    allocator: Option<usize>,
}

pub(crate) fn run(
    scenario: &Scenario,
    plan: &FleetPlan,
    seed: u64,
    mut watch: Option<ProgressFn<'_>>,
) -> Result<(Run, FleetTally), SimError> {
    let mut run = FleetRun::new(scenario, plan, seed);
    let end = run.start + scenario.duration;
    let mut steps = 0;
    while run.fleet.now() < end {
        run.step();
        steps += 1 + run.arrivals.len() as u64 / 1024;
        if steps >= scenario.max_steps {
            let simulated = run.passed();
            return Err(SimError::StepLimit { steps, simulated });
        }
        if let Some(watch) = &mut watch
            && steps.is_multiple_of(PROGRESS_INTERVAL)
        {
            watch(Progress {
                steps,
                simulated: run.passed(),
                length: Some(scenario.duration),
            });
        }
    }
    Ok(run.finish())
}

impl<'a> FleetRun<'a> {
    fn new(scenario: &'a Scenario, plan: &'a FleetPlan, seed: u64) -> Self {
        let rng = Rng::new(seed);
        let flows = (0..scenario.flows.len() as u64).map(Flow);
        let mut config = scenario.config.clone();
        config.seed = seed;
        let spec = FleetSpec {
            settings: ShareSettings {
                on_loss: plan.on_loss,
                forget_after: plan.forget_after,
                ..ShareSettings::default()
            },
            delay: plan.delay,
            loss: plan.loss,
            flows: flows.take(100).collect(),
            ..FleetSpec::new(config, plan.nodes)
        };
        let split = |purpose: Purpose, index: usize| rng.split(purpose as u64).split(index as u64);
        let sources = scenario.loads.iter().enumerate();
        let mut sources: Vec<Source<'_>> = sources
            .map(|(index, load)| {
                let set = TargetSet::default();
                Source::new(load, set, &split(Purpose::Loads, index))
            })
            .collect();
        let mut arrivals = BinaryHeap::new();
        for (load, source) in sources.iter_mut().enumerate() {
            let first = source.first().into_iter();
            arrivals.extend(first.map(|(at, number)| Reverse((at, load as u32, number))));
        }
        let fleet = Fleet::new(spec, seed);
        FleetRun {
            start: fleet.now(),
            rng: split(Purpose::Targets, 0),
            record: Record::new(
                scenario.classes.len(),
                scenario.flows.len(),
                scenario.loads.len() + 1,
                scenario.targets.len(),
                Some(scenario.duration),
            ),
            tally: FleetTally {
                nodes: vec![NodeTally::default(); plan.nodes],
                use_of_limit: None,
                calls_over: 0,
                violation: None,
                takeovers: 0,
            },
            scenario,
            plan,
            fleet,
            sources,
            arrivals,
            live: BTreeMap::new(),
            cut: Vec::new(),
            back: Vec::new(),
            away_until: Time::ZERO,
            troubles: 0,
            buckets: Vec::new(),
            noted: 0,
            allocator: None,
        }
    }

    fn passed(&self) -> Duration {
        self.fleet.now().since(self.start)
    }

    fn step(&mut self) {
        self.trouble();
        self.arrive();
        let (started, violation) = self.fleet.advance();
        self.sample();
        if let Some(violation) = violation {
            self.tally.calls_over += started.len() as u64;
            let what = || format!("{:.1} s: {}", self.passed().as_secs_f64(), violation.what);
            if self.tally.violation.is_none() {
                self.tally.violation = Some(what());
            }
        }
        for call in &started {
            self.started(call);
        }
        self.ended();
        let allocator = self.fleet.allocator();
        if allocator != self.allocator && allocator.is_some() {
            self.tally.takeovers += u64::from(self.allocator.is_some());
            self.allocator = allocator;
        }
    }

    /// Makes happen what the scenario lists for this time.
    fn trouble(&mut self) {
        let now = self.fleet.now();
        while let Some((at, trouble)) = self.plan.troubles.get(self.troubles)
            && *at <= self.passed()
        {
            self.troubles += 1;
            let start = self.start;
            let until = |end: Duration| start + end;
            match *trouble {
                Trouble::Away(end) => self.away_until = self.away_until.max(until(end)),
                Trouble::Cut(node, end) => {
                    let end = until(end);
                    let node = self.node(node);
                    self.fleet.set_connected(node, false);
                    self.cut.push((node, end));
                }
                Trouble::Kill(node, back) => {
                    let node = self.node(node);
                    if self.fleet.state(node) == NodeState::Up {
                        self.fleet.kill(node);
                        self.lose(node);
                    }
                    self.back.extend(back.map(|back| (node, now + back)));
                }
            }
        }
        self.fleet.set_reachable(now >= self.away_until);
        for (node, _) in self.cut.extract_if(.., |(_, end)| *end <= now) {
            self.fleet.set_connected(node, true);
        }
        for (node, _) in self.back.extract_if(.., |(_, at)| *at <= now) {
            if self.fleet.state(node) == NodeState::Dead {
                self.fleet.restart(node);
            }
        }
    }

    fn node(&self, choice: NodeChoice) -> usize {
        match choice {
            NodeChoice::Number(node) => node,
            NodeChoice::Allocator => self.fleet.allocator().unwrap_or(0),
        }
    }

    /// Requests that end with their node.
    fn lose(&mut self, node: usize) {
        let lost: Vec<(u32, u64)> = self
            .live
            .extract_if(.., |_, at| *at == node)
            .map(|(key, _)| key)
            .collect();
        // Those that ran are told by the node.
        let _ = self.fleet.take_ended();
        for (load, number) in lost {
            let class = self.scenario.loads[load as usize].class;
            self.record.classes[usize::from(class.0)].counts.failed += 1;
            self.record.drop(FAILED);
            self.answered(load, number);
        }
    }

    fn arrive(&mut self) {
        let passed = Time::ZERO + self.passed();
        while let Some(Reverse((at, load, number))) = self.arrivals.peek().copied()
            && at <= passed
        {
            self.arrivals.pop();
            let source = &mut self.sources[load as usize];
            if !source.is_closed()
                && let Some((at, number)) = source.next()
            {
                self.arrivals.push(Reverse((at, load, number)));
            }
            self.submit(load, number);
        }
    }

    fn submit(&mut self, load: u32, number: u64) {
        let source = &mut self.sources[load as usize];
        let (flow, cost) = source.draw();
        let request = &source.load.request;
        let (TargetChoice::Any(targets) | TargetChoice::One(targets) | TargetChoice::Each(targets)) =
            &request.pick;
        let target = targets[self.rng.below(targets.len() as u64) as usize];
        let side = &self.scenario.targets[target as usize];
        let takes = Duration::from_micros(side.latency.sample(&mut self.rng))
            + side
                .latency_per_cost
                .saturating_mul(u32::try_from(cost).unwrap_or(u32::MAX));
        let call = Call {
            takes,
            load,
            number,
        };
        let mut job = Job::new(call)
            .class(source.load.class)
            .flow(Flow(u64::from(flow)))
            .cost(Cost(cost))
            .targets(TargetId::new(target));
        job.expire_at = request.timeout.map(|timeout| self.fleet.now() + timeout);
        let (class, wanted) = (source.load.class, source.load.node);
        let tally = &mut self.record.classes[usize::from(class.0)];
        tally.counts.requests += 1;
        tally.counts.offered += 1;
        self.record.loads[load as usize].requests += 1;
        self.record.flow(u64::from(flow)).offered += 1;
        self.record.series.slot().classes[usize::from(class.0)].offered += 1;
        let node = self.balance(wanted);
        match self.fleet.offer(node, job) {
            Ok(()) => {
                self.record.classes[usize::from(class.0)].counts.admitted += 1;
                self.record.flow(u64::from(flow)).admitted += 1;
                self.live.insert((load, number), node);
            }
            Err(reason) => {
                // A node that is gone refuses as one that drains.
                let reason = reason.unwrap_or(Reason::Draining);
                let index = Reason::ALL
                    .iter()
                    .position(|one| *one == reason)
                    .unwrap_or(0);
                self.record.classes[usize::from(class.0)].refused[index] += 1;
                self.record.flow(u64::from(flow)).refused += 1;
                self.record.loads[load as usize].given_up += 1;
                self.record.drop(index);
                self.answered(load, number);
            }
        }
    }

    /// The node that a load balancer sends a request to: the wanted one, or the next that is up.
    fn balance(&mut self, wanted: Option<usize>) -> usize {
        let nodes = self.plan.nodes;
        let first = wanted.unwrap_or_else(|| self.rng.below(nodes as u64) as usize);
        let mut order = (first..nodes).chain(0..first);
        let up = order.find(|node| self.fleet.state(*node) == NodeState::Up);
        up.unwrap_or(first)
    }

    fn started(&mut self, call: &Started) {
        let bucket = (self.passed().as_nanos() / BUCKET.as_nanos()) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0.0);
        }
        let limits = &self.scenario.config.limits;
        self.buckets[bucket] += match limits.cost {
            Some(_) => call.cost as f64,
            None => 1.0,
        };
        self.tally.nodes[call.node].granted += 1;
        let class = &mut self.record.classes[usize::from(call.class.0)];
        class.counts.granted += 1;
        class.cost += call.cost;
        class.waits.record(call.waited);
        let slot = &mut self.record.series.slot().classes[usize::from(call.class.0)];
        slot.granted += 1;
        slot.cost += call.cost;
        slot.waits.record(call.waited);
        self.record.targets[call.target.index()].granted += 1;
        let flow = self.record.flow(call.flow.0);
        flow.granted += 1;
        flow.cost += call.cost;
    }

    fn ended(&mut self) {
        for ended in self.fleet.take_ended() {
            let (load, number) = (ended.call.load, ended.call.number);
            if self.live.remove(&(load, number)).is_none() {
                continue;
            }
            let counts = &mut self.record.classes[usize::from(ended.class.0)].counts;
            let flow = ended.flow.0;
            match ended.how {
                How::Done => {
                    counts.done += 1;
                    self.record.flow(flow).done += 1;
                    self.record.loads[load as usize].done += 1;
                }
                How::Expired => {
                    counts.expired += 1;
                    self.record.drop(EXPIRED);
                }
                How::Shed => {
                    counts.shed += 1;
                    self.record.flow(flow).shed += 1;
                    self.record.drop(SHED);
                }
                How::Lost => {
                    counts.failed += 1;
                    self.record.drop(FAILED);
                }
            }
            self.answered(load, number);
        }
    }

    /// A client of a closed load asks again.
    fn answered(&mut self, load: u32, number: u64) {
        let now = Time::ZERO + self.passed();
        if let Some((at, number)) = self.sources[load as usize].answered(number, now) {
            self.arrivals.push(Reverse((at, load, number)));
        }
    }

    /// Notes shares, depths and backlogs.
    fn sample(&mut self) {
        let passed = self.passed();
        if passed >= NOTED * (self.noted + 1) as u32 {
            self.noted += 1;
            for (place, node) in self.tally.nodes.iter_mut().enumerate() {
                node.shares.extend(self.fleet.share_in_force(place));
            }
        }
        let now = Time::ZERO + passed;
        if !self.record.series.is_over(now) {
            return;
        }
        let (gauges, depths) = self.gauges();
        self.record.series.advance(now, gauges, &depths);
        self.record.samples += 1;
        for (class, depth) in self.record.classes.iter_mut().zip(&depths) {
            class.backlogged += u64::from(*depth > 0);
        }
        for flow in 0..self.scenario.flows.len() as u64 {
            let waits = (0..self.plan.nodes).any(|node| self.fleet.waiting(node, Flow(flow)) > 0);
            self.record.flow(flow).backlogged += u64::from(waits);
        }
    }

    fn gauges(&self) -> (Gauges, Vec<u64>) {
        let waiting = |class: usize| {
            let class = Class(class as u8);
            let nodes = 0..self.plan.nodes;
            nodes.map(|node| self.fleet.waiting_in(node, class)).sum()
        };
        let gauges = Gauges {
            running: self.fleet.running(),
            ..Gauges::default()
        };
        let classes = 0..self.scenario.classes.len();
        (gauges, classes.map(waiting).collect())
    }

    fn finish(mut self) -> (Run, FleetTally) {
        let (gauges, depths) = self.gauges();
        let end = Time::ZERO + self.scenario.duration;
        let last = Time::from_nanos(end.as_nanos() - 1);
        self.record.series.advance(last, gauges, &depths);
        self.record.series.close(gauges, &depths);
        self.tally.use_of_limit = self.use_of_limit();
        let run = Run {
            left: Unfinished {
                waiting: depths.iter().sum(),
                running: gauges.running,
                ..Unfinished::default()
            },
            flows: self.scenario.flows.clone(),
            most_workers: None,
            walk: None,
            record: self.record,
            end,
        };
        (run, self.tally)
    }

    /// The least and the most of a rate over everything that any ten seconds used, once the fleet
    /// has its first shares and the burst is used up.
    fn use_of_limit(&mut self) -> Option<(f64, f64)> {
        let limits = &self.scenario.config.limits;
        let rate = limits.cost.or(limits.requests)?.as_per_second();
        let per = |span: Duration| (span.as_nanos() / BUCKET.as_nanos()) as usize;
        self.buckets.resize(per(self.scenario.duration), 0.0);
        let settled = self.buckets.get(per(WINDOW)..)?;
        let most = rate * WINDOW.as_secs_f64();
        let parts = settled
            .windows(per(WINDOW))
            .map(|window| window.iter().sum::<f64>() / most);
        parts.fold(None, |known: Option<(f64, f64)>, part| {
            let (least, most) = known.unwrap_or((part, part));
            Some((least.min(part), most.max(part)))
        })
    }
}
