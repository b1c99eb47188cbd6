//! A discrete-event simulation of the core: requests arrive, wait, are served by simulated targets,
//! fail and return.
//!
//! [`Simulation`] owns the clock, the event queue and all state outside the core and the targets.
//! Time jumps from one event to the next. The result depends only on the scenario and the seed, and
//! memory use only on what is live.

mod calls;
mod clients;
mod event_queue;
mod fleet;
mod load;
mod target;
mod walk;
mod workers;

pub(crate) use fleet::{FleetTally, NodeTally, run as run_fleet};
pub(crate) use walk::{SideTally, WalkTally};

use crate::error::SimError;
use crate::record::{EXPIRED, FAILED, Gauges, Record, SHED};
use crate::scenario::{Request, Scenario, TargetChoice};
use crate::trace::Trace;
use crate::trial::{Progress, ProgressFn};
use event_queue::{EventQueue, SimEvent};
use headworks_core::{Core, Event, Job, Lease, TargetId, TargetSet, Time};
use headworks_synth::Rng;
use load::Source;
use slab::Slab;
use target::{Response, TargetSim};
use walk::Walk;
use workers::Workers;

/// Origins of jobs that come from a trace or from a walk in rounds.
const TRACE: u32 = u32::MAX;
const WALK: u32 = u32::MAX - 1;

/// Steps between two progress reports.
const PROGRESS_INTERVAL: u64 = 1 << 16;
/// Maximum live requests (waiting, running or about to return); they take some gigabytes.
const MAX_LIVE: u64 = 5_000_000;

/// The payload of simulated jobs.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// The load it belongs to.
    origin: u32,
    /// The number of visits of its client, including this one.
    visits: u16,
    /// Whether the client was told to come at this time.
    scheduled_visit: bool,
    /// Its number in its load, or in the walk.
    number: u64,
    /// The actual cost.
    actual: u64,
}

/// A call without a response yet.
#[derive(Debug)]
struct Call {
    lease: Lease<Work>,
    answer: Response,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) record: Record,
    pub(crate) walk: Option<WalkTally>,
    pub(crate) end: Time,
    pub(crate) left: Unfinished,
    /// Names of all flows, including those of a trace.
    pub(crate) flows: Vec<String>,
    pub(crate) most_workers: Option<usize>,
}

/// Jobs that had not ended at the end of the run.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Unfinished {
    pub(crate) waiting: u64,
    pub(crate) delayed: u64,
    pub(crate) running: u64,
    pub(crate) returning: u64,
}

pub(crate) struct Simulation<'a> {
    scenario: &'a Scenario,
    core: Core<Work>,
    event_queue: EventQueue,
    now: Time,
    end: Time,
    rng: Rng,
    targets: Vec<TargetSim<'a>>,
    sources: Vec<Source<'a>>,
    trace: Option<Trace<'a>>,
    trace_set: TargetSet,
    walk: Option<Walk>,
    workers: Option<Workers>,
    calls: Slab<Call>,
    returning: Slab<Job<Work>>,
    record: Record,
    depths: Vec<u64>,
    failed: Option<SimError>,
    /// Steps taken so far; see [`Progress`].
    steps: u64,
}

/// Independent random streams, one per purpose, so that a change in one does not disturb the
/// others.
#[derive(Clone, Copy)]
enum Purpose {
    Clients = 1,
    Walk = 2,
    Targets = 3,
    Loads = 4,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, trace: Option<Trace<'a>>) -> Self {
        let rng = Rng::new(seed);
        let mut config = scenario.config.clone();
        config.seed = seed;
        let mut core =
            Core::new(config, Time::ZERO).expect("a scenario is checked when it is read");
        let split = |purpose: Purpose, index: usize| rng.split(purpose as u64).split(index as u64);
        let targets = scenario
            .targets
            .iter()
            .enumerate()
            .map(|(index, side)| TargetSim::new(side, split(Purpose::Targets, index)))
            .collect();
        let replays = trace.is_some();
        let loads = if replays {
            &[]
        } else {
            scenario.loads.as_slice()
        };
        let sources = loads
            .iter()
            .enumerate()
            .map(|(index, load)| {
                let set = set_of(&mut core, &load.request.pick);
                Source::new(load, set, &split(Purpose::Loads, index))
            })
            .collect();
        let walk = scenario.rounds.as_ref().filter(|_| !replays).map(|plan| {
            let sets = [0, 1].map(|side: usize| set_among(&mut core, &plan.sides[side].0));
            Walk::new(plan, sets, scenario.config.backoff, split(Purpose::Walk, 0))
        });
        let classes = scenario.classes.len();
        let length = (!replays).then_some(scenario.duration);
        // A walk may end long before its time is over, so the length of the run is not known.
        let known = length.filter(|_| walk.is_none());
        Simulation {
            trace_set: set_of(&mut core, &scenario.trace.pick),
            core,
            event_queue: EventQueue::default(),
            now: Time::ZERO,
            end: length.map_or(Time::MAX, |length| Time::ZERO + length),
            rng: split(Purpose::Clients, 0),
            targets,
            sources,
            trace,
            walk,
            workers: scenario.workers.map(|(base, max)| Workers::new(base, max)),
            calls: Slab::new(),
            returning: Slab::new(),
            record: Record::new(
                classes,
                scenario.flows.len(),
                scenario.loads.len() + 1,
                scenario.targets.len(),
                known,
            ),
            depths: vec![0; classes],
            failed: None,
            steps: 0,
            scenario,
        }
    }

    /// Runs to the end.
    pub(crate) fn run(mut self, mut watch: Option<ProgressFn<'_>>) -> Result<Run, SimError> {
        self.start();
        self.run_core();
        let mut next_report = 0;
        while let Some(at) = self.next_at().filter(|at| *at < self.end) {
            self.now = self.now.max(at);
            if self.record.series.is_over(self.now) {
                self.sample();
            }
            if let Some(happening) = self.event_queue.pop_due(self.now) {
                self.handle(happening);
            }
            self.run_core();
            self.steps += 1;
            if self.failed.is_some() || self.is_over() {
                break;
            }
            if let Some(watch) = &mut watch
                && self.steps >= next_report
            {
                next_report = self.steps + PROGRESS_INTERVAL;
                watch(self.progress());
            }
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self.finish()),
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            steps: self.steps,
            simulated: self.now.since(Time::ZERO),
            length: (self.end < Time::MAX).then(|| self.end.since(Time::ZERO)),
        }
    }

    /// Whether a limit is exceeded; the run then ends with an error.
    fn is_exhausted(&mut self) -> bool {
        let live = self.event_queue.len() as u64 + self.core.waiting();
        if self.steps < self.scenario.max_steps && live <= MAX_LIVE {
            return false;
        }
        let Progress {
            steps, simulated, ..
        } = self.progress();
        self.failed.get_or_insert(match live <= MAX_LIVE {
            true => SimError::StepLimit { steps, simulated },
            false => SimError::MemoryLimit { live, simulated },
        });
        true
    }

    /// Whether nothing but the clock would still move.
    fn is_over(&self) -> bool {
        let walked = self.walk.as_ref().is_some_and(Walk::is_over);
        walked && self.sources.is_empty() && self.calls.is_empty()
    }

    fn next_at(&self) -> Option<Time> {
        let times = [
            self.event_queue.next_at(),
            self.core.wake_at(),
            self.workers.as_ref().and_then(Workers::wake_at),
            self.walk.as_ref().and_then(Walk::wake_at),
        ];
        times.into_iter().flatten().min()
    }

    fn start(&mut self) {
        for load in 0..self.sources.len() as u32 {
            let arrivals = self.sources[load as usize].first();
            for (at, number) in arrivals {
                self.event_queue.push(at, SimEvent::Arrival(load, number));
            }
        }
        self.read_line();
    }

    fn handle(&mut self, happening: SimEvent) {
        match happening {
            SimEvent::Arrival(load, number) => self.arrive(load, number),
            SimEvent::Line => self.arrive_from_trace(),
            SimEvent::Return(slot) => self.resubmit(slot),
            SimEvent::Response(slot) => self.answered(slot),
        }
    }

    /// Runs the core until it has nothing more to grant or report.
    fn run_core(&mut self) {
        while !self.is_exhausted() {
            while let Some(job) = self.walk.as_mut().and_then(|walk| walk.next_job(self.now)) {
                self.submit(job);
            }
            self.grant();
            let mut quiet = true;
            while let Some(event) = self.core.poll_event() {
                quiet &= self.note(event);
            }
            if quiet {
                return;
            }
        }
    }

    fn grant(&mut self) {
        if let Some(workers) = &mut self.workers {
            let fill = self.core.waiting() * 100 / self.core.capacity().max(1);
            workers.scale(self.now, fill as u32);
        }
        while self.workers.as_ref().is_none_or(Workers::has_idle) {
            let Some(lease) = self.core.next(self.now) else {
                return;
            };
            self.call(lease);
        }
        // Without a free worker, time advances for the core, but it must not grant.
        self.core.pause();
        let none = self.core.next(self.now);
        debug_assert!(none.is_none(), "a paused core grants nothing");
        self.core.resume();
    }

    fn request(&self, origin: u32) -> Option<&'a Request> {
        match origin {
            WALK => None,
            TRACE => Some(&self.scenario.trace),
            load => Some(&self.sources[load as usize].load.request),
        }
    }

    /// Whether a request of this origin may go to more than one target.
    fn has_choice(&self, origin: u32) -> bool {
        let pick = self.request(origin).map(|request| &request.pick);
        matches!(pick, Some(TargetChoice::Any(targets)) if targets.len() > 1)
    }

    fn load_tally(&mut self, origin: u32) -> Option<&mut crate::record::LoadTally> {
        match origin {
            WALK => None,
            TRACE => self.record.loads.last_mut(),
            load => self.record.loads.get_mut(load as usize),
        }
    }

    /// Counts an event of the core. Returns `false` if it gives the walk something to do.
    fn note(&mut self, event: Event<Work>) -> bool {
        let (job, why) = match event {
            Event::TargetChanged { target, state } => {
                self.record.targets[target.index()].change(self.now, state);
                return true;
            }
            Event::Shed {
                job,
                retry_after,
                booking,
                ..
            } => {
                self.record.classes[usize::from(job.class.0)].counts.shed += 1;
                self.record.flow(job.flow.0).shed += 1;
                self.record.drop(SHED);
                let of_walk = job.payload.origin == WALK;
                self.handle_refusal(job, retry_after, booking, false);
                return !of_walk;
            }
            Event::Expired { job, .. } => (job, EXPIRED),
            Event::Failed { job, .. } | Event::Merged { job, .. } | Event::Returned { job, .. } => {
                (job, FAILED)
            }
            _ => return true,
        };
        let tally = &mut self.record.classes[usize::from(job.class.0)];
        match why {
            EXPIRED => tally.counts.expired += 1,
            _ => tally.counts.failed += 1,
        }
        self.record.drop(why);
        self.end(job.payload, false);
        job.payload.origin != WALK
    }

    fn gauges(&mut self) -> Gauges {
        for (class, depth) in self.depths.iter_mut().enumerate() {
            *depth = self.core.waiting_in(headworks_core::Class(class as u8));
        }
        Gauges {
            running: self.core.running(),
            delayed: self.core.delayed(),
            workers: self
                .workers
                .as_ref()
                .map_or(0, |workers| workers.count() as u64),
            nodes: self.walk.as_ref().map_or([0; 2], Walk::nodes),
        }
    }

    fn sample(&mut self) {
        let gauges = self.gauges();
        self.record.series.advance(self.now, gauges, &self.depths);
        self.sample_backlog();
    }

    /// Counts the classes and flows with waiting work.
    fn sample_backlog(&mut self) {
        self.record.samples += 1;
        for (class, depth) in self.record.classes.iter_mut().zip(&self.depths) {
            class.backlogged += u64::from(*depth > 0);
        }
        for flow in self.core.flows().filter(|flow| flow.waiting > 0) {
            self.record.flow(flow.flow.0).backlogged += 1;
        }
    }

    fn finish(mut self) -> Run {
        // A run that ended by itself, or with its trace, ends at its last event.
        let ended = self.is_over() || self.end == Time::MAX;
        let end = if ended { self.now } else { self.end };
        let last = Time::from_nanos(end.as_nanos().saturating_sub(1));
        let gauges = self.gauges();
        self.record.series.advance(last, gauges, &self.depths);
        self.record.series.close(gauges, &self.depths);
        for target in &mut self.record.targets {
            target.end(end);
        }
        Run {
            left: Unfinished {
                waiting: self.core.waiting(),
                delayed: self.core.delayed(),
                running: self.core.running(),
                returning: self.returning.len() as u64,
            },
            flows: match self.trace {
                Some(trace) => trace.into_flows(),
                None => self.scenario.flows.clone(),
            },
            most_workers: self.workers.as_ref().map(Workers::most),
            walk: self.walk.map(Walk::tally),
            record: self.record,
            end,
        }
    }
}

fn set_of(core: &mut Core<Work>, pick: &TargetChoice) -> TargetSet {
    match pick {
        TargetChoice::Any(targets) => set_among(core, targets),
        TargetChoice::One(_) | TargetChoice::Each(_) => TargetSet::default(),
    }
}

fn set_among(core: &mut Core<Work>, targets: &[u32]) -> TargetSet {
    let ids: Vec<TargetId> = targets.iter().copied().map(TargetId::new).collect();
    core.targets(&ids)
        .expect("a scenario's target sets are checked when it is read")
}
