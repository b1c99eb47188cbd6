//! The end of a lease: its job is done, failed, retried or sent elsewhere.

use super::Core;
use crate::config::OnSuspend;
use crate::gate::Charge;
use crate::id::{JobId, TargetId, Ticket};
use crate::job::{Fault, Lease, Outcome, Settled, Verdict};
use crate::jobs::State;
use crate::lanes::LaneState;
use crate::stats::Ended;
use crate::time::Time;

impl<P> Core<P> {
    /// Gives a lease back: how the job went, and what that says about the target. A lease of a job
    /// that has ended settles nothing.
    pub fn finish(
        &mut self,
        now: Time,
        lease: Lease<P>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Settled<P> {
        let now = self.tick(now);
        let Some(target) = self.running_on(lease.ticket) else {
            return Settled::Stale(lease.payload);
        };
        let job = lease.ticket.job;
        let charge = match outcome {
            Outcome::Done { cost: Some(cost) } => Charge::Actual(cost),
            // The target did nothing: all of the charge moves on with the job, or is returned.
            Outcome::Unused | Outcome::Elsewhere => Charge::Returned,
            _ => Charge::Kept,
        };
        let flow = self.jobs[job].flow;
        self.leave_gates(now, job, target, charge);
        self.judge(now, job, target, verdict);
        let settled = self.settle(now, job, target, outcome, lease.payload);
        self.open_target(target);
        self.open_flow(flow);
        settled
    }

    /// Ends a job whose lease was lost with its worker. A later `finish` with that lease is stale.
    /// `false` if the job does not run.
    pub fn reclaim(&mut self, now: Time, ticket: Ticket, verdict: Verdict) -> bool {
        let now = self.tick(now);
        let Some(target) = self.running_on(ticket) else {
            return false;
        };
        let flow = self.jobs[ticket.job].flow;
        self.leave_gates(now, ticket.job, target, Charge::Kept);
        self.judge(now, ticket.job, target, verdict);
        self.end_leased(ticket.job, |ended| &mut ended.failed);
        self.open_target(target);
        self.open_flow(flow);
        true
    }

    /// The target that a ticket's job runs on.
    fn running_on(&self, ticket: Ticket) -> Option<TargetId> {
        match self.jobs.get(ticket)?.state {
            State::Running(target) => Some(target),
            _ => None,
        }
    }

    /// Leaves the gates, and corrects what was charged.
    fn leave_gates(&mut self, now: Time, job: JobId, target: TargetId, charge: Charge) {
        let entry = &self.jobs[job];
        let (cost, flow, class) = (entry.cost, entry.flow, entry.class);
        self.running -= 1;
        self.gate.leave(now, cost, charge);
        self.flows[flow].gate.leave(now, cost, charge);
        self.targets[target].gate.leave(now, cost, charge);
        let actual = match charge {
            Charge::Kept => Some(cost),
            Charge::Actual(actual) => Some(actual),
            Charge::Returned => None,
        };
        let queue = self.flows[flow]
            .queue(class)
            .expect("a running job has a queue");
        self.classes.settle(class, queue, cost, actual);
        if actual == Some(cost) {
            return;
        }
        // The tag moved. Blocked lanes may be ranked too early, never too late.
        if actual.is_none_or(|actual| actual < cost) {
            for index in 0..self.classes[class].queue(queue).lanes().len() {
                let lane = self.classes[class].queue(queue).lanes()[index];
                if self.lanes.state(lane) == LaneState::Blocked {
                    let (group, rank) = (self.lanes.key(lane).group, self.rank(lane));
                    self.blocked.rerank(lane, group, class, rank);
                }
            }
        }
        let blocked = self.flows[flow].blocked;
        self.classes.requeue(class, queue, blocked);
    }

    fn settle(
        &mut self,
        now: Time,
        job: JobId,
        target: TargetId,
        outcome: Outcome,
        payload: P,
    ) -> Settled<P> {
        let entry = &self.jobs[job];
        match outcome {
            Outcome::Done { .. } => {
                self.end_leased(job, |ended| &mut ended.done);
                Settled::Done(payload)
            }
            _ if entry.cancelled || outcome == Outcome::Unused => {
                self.end_leased(job, |ended| &mut ended.cancelled);
                Settled::Cancelled(payload)
            }
            Outcome::Failed | Outcome::Dropped => self.fail(job, payload),
            _ if self.draining => {
                self.end_leased(job, |ended| &mut ended.returned);
                Settled::Returned(payload)
            }
            Outcome::Retry { fault, random } => {
                let at = now + self.config.backoff.delay(entry.attempts_used, random);
                self.retry(job, fault, at, payload)
            }
            Outcome::RetryAt { fault, at } => self.retry(job, fault, at, payload),
            Outcome::Elsewhere => self.elsewhere(now, job, target, payload),
            Outcome::Unused => unreachable!("an unused job ended above"),
        }
    }

    fn retry(&mut self, job: JobId, fault: Fault, at: Time, payload: P) -> Settled<P> {
        let entry = &mut self.jobs[job];
        if fault == Fault::Overload {
            // Waiting for a target that has too much to do is not the job's fault.
            entry.attempts_used -= 1;
        }
        if entry.attempts_used >= entry.attempts {
            return self.fail(job, payload);
        }
        let (class, targets, cost, flow) = (entry.class, entry.targets, entry.cost, entry.flow);
        // It may go to every target that it names again, as far as it still fits.
        let fits = self.gate.fits(cost) && self.flows[flow].gate.fits(cost);
        let whole = self.targets.group_of(targets).filter(|_| fits);
        let fitting = whole.and_then(|group| self.targets.that_fit(group, cost, self.now));
        let Some(group) = fitting else {
            return self.fail(job, payload);
        };
        self.set_group(job, group);
        let delay_key = self.jobs[job].delay_key;
        if delay_key.is_some_and(|key| self.delayed.has_key(key)) {
            self.end_leased(job, |ended| &mut ended.merged);
            return Settled::Merged(payload);
        }
        self.classes[class].stats.retried += 1;
        let entry = &mut self.jobs[job];
        entry.put_back(payload);
        entry.sent_elsewhere = false;
        entry.state = State::Arriving;
        self.enter_delay(job, at, false);
        Settled::Delayed(at)
    }

    fn elsewhere(&mut self, now: Time, job: JobId, target: TargetId, payload: P) -> Settled<P> {
        let (group, cost) = (self.jobs[job].group, self.jobs[job].cost);
        let rest = self.targets.without(group, target, now);
        let fitting = rest.and_then(|rest| self.targets.that_fit(rest, cost, now));
        if let Some(rest) = rest.filter(|rest| Some(*rest) != fitting) {
            self.drop_unused_group(rest);
        }
        let Some(rest) = fitting else {
            return self.fail(job, payload);
        };
        let serves = match self.targets.usable_at(rest) {
            Some(Time::MAX) => false,
            Some(_) => self.config.on_suspend != OnSuspend::End,
            None => true,
        };
        if !serves {
            self.drop_unused_group(rest);
            return self.fail(job, payload);
        }
        self.set_group(job, rest);
        let entry = &mut self.jobs[job];
        entry.attempts_used -= 1;
        entry.sent_elsewhere = true;
        entry.put_back(payload);
        self.reenter_lane(now, job);
        Settled::Elsewhere
    }

    fn fail(&mut self, job: JobId, payload: P) -> Settled<P> {
        self.end_leased(job, |ended| &mut ended.failed);
        Settled::Failed(payload)
    }

    fn end_leased(&mut self, job: JobId, count: impl FnOnce(&mut Ended) -> &mut u64) {
        let (class, group) = (self.jobs[job].class, self.jobs[job].group);
        self.jobs.forget(job);
        self.release_group(group);
        *count(&mut self.classes[class].stats.ended) += 1;
    }
}
