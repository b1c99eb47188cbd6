//! Sources of requests: loads and traces.

use super::event_queue::SimEvent;
use super::{Simulation, TRACE, Work};
use crate::scenario::{ActualCost, Load, Request, TargetChoice};
use crate::trace::Trace;
use headworks_core::{Class, Cost, Flow, Job, TargetId, TargetSet, Time};
use headworks_synth::{Arrivals, Rng, Stream};

/// A running load.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) load: &'a Load,
    stream: Stream,
    rng: Rng,
    set: TargetSet,
}

impl<'a> Source<'a> {
    pub(super) fn new(load: &'a Load, set: TargetSet, rng: &Rng) -> Self {
        Source {
            stream: load.arrivals.stream(rng.split(1).next_u64()),
            rng: rng.split(2),
            load,
            set,
        }
    }

    /// The first arrivals: one for an open load, one per client for a closed one.
    pub(super) fn first(&mut self) -> Vec<(Time, u64)> {
        let count = match self.load.arrivals {
            Arrivals::Closed { clients, .. } => clients as usize,
            _ => 1,
        };
        (0..count).filter_map(|_| self.next()).collect()
    }

    pub(super) fn next(&mut self) -> Option<(Time, u64)> {
        let arrival = self.stream.next()?;
        let at = Time::ZERO + self.load.from + arrival.at;
        (at < self.load.until).then_some((at, arrival.number))
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.load.arrivals, Arrivals::Closed { .. })
    }

    /// Samples the flow and the estimated cost of a request.
    pub(super) fn draw(&mut self) -> (u32, u64) {
        let flows = &self.load.flows;
        let flow = match flows.len() {
            1 => flows[0],
            count => flows[self.rng.below(count as u64) as usize],
        };
        (flow, self.load.request.cost.sample(&mut self.rng))
    }

    /// Completes a request; returns when its client asks again, for a closed load.
    pub(super) fn answered(&mut self, number: u64, now: Time) -> Option<(Time, u64)> {
        if !self.is_closed() {
            return None;
        }
        let since = now.since(Time::ZERO + self.load.from);
        self.stream.answered(number, since);
        self.next()
    }
}

/// Samples the actual cost of a request with the estimate `cost`.
fn actual(actual: &ActualCost, cost: u64, rng: &mut Rng) -> u64 {
    match actual {
        ActualCost::AsEstimated => cost,
        ActualCost::Drawn(drawn) => drawn.sample(rng),
        ActualCost::Within(factor) => {
            let drawn = cost as f64 * factor.powf(2.0 * rng.unit() - 1.0);
            (drawn.round() as u64).max(1)
        }
    }
}

impl Simulation<'_> {
    pub(super) fn arrive(&mut self, load: u32, number: u64) {
        let source = &mut self.sources[load as usize];
        if !source.is_closed()
            && let Some((at, number)) = source.next()
        {
            self.event_queue.push(at, SimEvent::Arrival(load, number));
        }
        let Load {
            class,
            ref flows,
            ref request,
            ..
        } = *source.load;
        let rng = &mut source.rng;
        let flow = match flows.len() {
            1 => flows[0],
            count => flows[rng.below(count as u64) as usize],
        };
        let cost = request.cost.sample(rng);
        let set = match &request.pick {
            TargetChoice::One(targets) => {
                let chosen = targets[rng.below(targets.len() as u64) as usize];
                TargetSet::from(TargetId::new(chosen))
            }
            TargetChoice::Any(_) | TargetChoice::Each(_) => source.set,
        };
        let work = Work {
            origin: load,
            visits: 1,
            scheduled_visit: false,
            number,
            actual: actual(&request.actual, cost, rng),
        };
        let job = self.job(work, request, class, u64::from(flow), cost);
        match &request.pick {
            TargetChoice::Each(targets) => {
                for target in targets {
                    let target = TargetId::new(*target);
                    self.submit_new(job.clone().targets(target));
                }
            }
            TargetChoice::Any(_) | TargetChoice::One(_) => self.submit_new(job.targets(set)),
        }
    }

    fn job(&self, work: Work, request: &Request, class: Class, flow: u64, cost: u64) -> Job<Work> {
        let mut job = Job::new(work)
            .class(class)
            .flow(Flow(flow))
            .cost(Cost(cost));
        job.expire_at = request.timeout.map(|timeout| self.now + timeout);
        job
    }

    /// Counts and submits a new request.
    fn submit_new(&mut self, job: Job<Work>) {
        self.record.classes[usize::from(job.class.0)]
            .counts
            .requests += 1;
        if let Some(load) = self.load_tally(job.payload.origin) {
            load.requests += 1;
        }
        self.submit(job);
    }

    /// Schedules the next line of the trace, if there is one.
    pub(super) fn read_line(&mut self) {
        let Some(trace) = &mut self.trace else { return };
        match trace.advance(&self.scenario.classes) {
            Ok(Some(at)) => self.event_queue.push(at, SimEvent::Line),
            Ok(None) => {}
            Err(error) => self.failed = Some(error),
        }
    }

    pub(super) fn arrive_from_trace(&mut self) {
        let Some(line) = self.trace.as_ref().and_then(Trace::line) else {
            return;
        };
        let request = &self.scenario.trace;
        let work = Work {
            origin: TRACE,
            visits: 1,
            scheduled_visit: false,
            number: 0,
            actual: actual(&request.actual, line.cost, &mut self.rng),
        };
        let flow = u64::from(line.flow);
        let job = self.job(work, request, line.class, flow, line.cost);
        self.submit_new(job.targets(self.trace_set));
        self.read_line();
    }
}
