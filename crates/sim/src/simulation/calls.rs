//! Calls to targets: their start, and the consequences of their responses.

use super::event_queue::SimEvent;
use super::target::Response;
use super::{Call, Simulation, Work};
use crate::record::FAILED;
use headworks_core::{Cost, Fault, Lease, Outcome, Settled, Verdict};

impl Simulation<'_> {
    pub(super) fn call(&mut self, lease: Lease<Work>) {
        self.steps += 1;
        let charged = lease.cost.0;
        let class = usize::from(lease.class.0);
        let tally = &mut self.record.classes[class];
        tally.counts.granted += 1;
        tally.counts.aged += u64::from(lease.aged);
        tally.cost += charged;
        tally.waits.record(lease.waited);
        let slot = &mut self.record.series.slot().classes[class];
        slot.granted += 1;
        slot.cost += charged;
        slot.waits.record(lease.waited);
        let flow = self.record.flow(lease.flow.0);
        flow.granted += 1;
        flow.cost += charged;
        let target = lease.target.index();
        self.record.targets[target].granted += 1;
        if let Some(workers) = &mut self.workers {
            workers.begin();
        }
        let (takes, answer) = self.targets[target].call(self.now, lease.payload.actual);
        let slot = self.calls.insert(Call { lease, answer });
        self.event_queue
            .push(self.now + takes, SimEvent::Response(slot as u32));
    }

    pub(super) fn answered(&mut self, slot: u32) {
        let Call { lease, answer } = self.calls.remove(slot as usize);
        if let Some(workers) = &mut self.workers {
            workers.end();
        }
        let target = lease.target.index();
        self.targets[target].leave();
        let tally = &mut self.record.targets[target];
        tally.failures += u64::from(!matches!(answer, Response::Done | Response::Rejected));
        tally.overloads += u64::from(matches!(answer, Response::MemoryLimit(_)));
        let (class, flow) = (usize::from(lease.class.0), lease.flow.0);
        let (charged, actual) = (lease.cost.0, lease.payload.actual);
        let (outcome, verdict) = self.classify(&lease, answer);
        match outcome {
            Outcome::Done { .. } => self.correct(class, flow, charged, actual),
            Outcome::Elsewhere => self.correct(class, flow, charged, 0),
            _ => {}
        }
        match self.core.finish(self.now, lease, outcome, verdict) {
            Settled::Done(work) => {
                self.record.classes[class].counts.done += 1;
                self.record.flow(flow).done += 1;
                self.end(work, true);
            }
            Settled::Delayed(_) => self.record.classes[class].retried += 1,
            Settled::Elsewhere => {}
            Settled::Failed(work)
            | Settled::Cancelled(work)
            | Settled::Merged(work)
            | Settled::Returned(work)
            | Settled::Stale(work) => {
                self.record.classes[class].counts.failed += 1;
                self.record.drop(FAILED);
                self.end(work, false);
            }
        }
    }

    fn correct(&mut self, class: usize, flow: u64, charged: u64, actual: u64) {
        let fix = |cost: &mut u64| *cost = (*cost + actual).saturating_sub(charged);
        fix(&mut self.record.classes[class].cost);
        fix(&mut self.record.flow(flow).cost);
    }

    /// Translates a response into the outcome and verdict that a caller would report.
    fn classify(&mut self, lease: &Lease<Work>, answer: Response) -> (Outcome, Verdict) {
        let elsewhere = self.has_choice(lease.payload.origin);
        match answer {
            Response::Done => {
                let actual = Cost(lease.payload.actual);
                let cost = (actual != lease.cost).then_some(actual);
                (Outcome::Done { cost }, Verdict::Fine)
            }
            Response::Rejected => (Outcome::Failed, Verdict::Fine),
            Response::Gone if elsewhere => (Outcome::Elsewhere, Verdict::Gone),
            Response::Gone => (Outcome::Failed, Verdict::Gone),
            Response::Fault => {
                let random = self.rng.next_u64();
                let fault = Fault::Temporary;
                (Outcome::Retry { fault, random }, Verdict::Fault)
            }
            Response::MemoryLimit(after) => {
                let pause = self.targets[lease.target.index()].overload_pause();
                let until = self.now + after.unwrap_or(pause);
                let verdict = Verdict::Overload { until };
                if elsewhere {
                    return (Outcome::Elsewhere, verdict);
                }
                let (fault, at) = (Fault::Overload, until);
                (Outcome::RetryAt { fault, at }, verdict)
            }
        }
    }
}
