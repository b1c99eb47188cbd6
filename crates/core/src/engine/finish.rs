//! The end of a lease.

use super::Core;
use super::parts::{NIL, Place, State};
use crate::config::{OnSuspend, Policy};
use crate::event::{Event, Unservable};
use crate::id::{Class, Cost, Ticket};
use crate::job::{Fault, Lease, Outcome, Settled, Verdict};
use crate::time::Time;

impl<P> Core<P> {
    /// Gives a lease back: how the job went, and what that tells of the target.
    pub fn finish(
        &mut self,
        now: Time,
        lease: Lease<P>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Settled<P> {
        let now = self.tick(now);
        let slot = lease.ticket.slot;
        let runs = |entry: &super::Entry<P>| matches!(entry.state, State::Running { .. });
        if !self.entry(lease.ticket).is_some_and(runs) {
            return Settled::Stale(lease.payload);
        }
        let actual = match outcome {
            Outcome::Done { cost } => cost,
            Outcome::Unused => Some(Cost(0)),
            _ => None,
        };
        let (flow, class) = (self.jobs[slot].flow, self.jobs[slot].class);
        let target = self.leave(now, slot, actual, outcome == Outcome::Elsewhere);
        self.judge(now, slot, target, verdict);
        let settled = self.settle(now, slot, target, outcome, lease.payload);
        self.open_target(target);
        self.open_flow(flow);
        self.rest(class, flow);
        settled
    }

    /// Ends a job whose lease was lost with its worker. What the worker says later is stale. `false` if the job does not run.
    pub fn reclaim(&mut self, now: Time, ticket: Ticket, verdict: Verdict) -> bool {
        let now = self.tick(now);
        if !self
            .entry(ticket)
            .is_some_and(|entry| matches!(entry.state, State::Running { .. }))
        {
            return false;
        }
        let target = self.leave(now, ticket.slot, None, false);
        self.judge(now, ticket.slot, target, verdict);
        let entry = &self.jobs[ticket.slot];
        let (flow, class) = (entry.flow, entry.class);
        self.end_leased(ticket.slot, |ended| &mut ended.failed);
        self.open_target(target);
        self.open_flow(flow);
        self.rest(class, flow);
        true
    }

    /// Leaves the gates, and corrects what was charged. Says which target it was.
    fn leave(&mut self, now: Time, slot: u32, actual: Option<Cost>, elsewhere: bool) -> u32 {
        let entry = &self.jobs[slot];
        let State::Running { target } = entry.state else {
            unreachable!("a valid lease is of a running job")
        };
        let (charged, flow, class) = (entry.cost, entry.flow, entry.class);
        self.running -= 1;
        let far = &mut self.targets[target as usize];
        self.gate.leave(now, charged, actual);
        self.flows[flow].gate.leave(now, charged, actual);
        far.gate.leave(now, charged, actual);
        if elsewhere {
            far.gate.refund(now, charged);
        }
        if let Some(actual) = actual
            && actual != charged
        {
            self.correct_tags(class, flow, charged, actual);
        }
        let queue = self.flows[flow].queues[class.index()];
        self.queues[queue].owed.leave(charged);
        self.classes[class.index()].owed.leave(charged);
        target
    }

    /// Moves tags by what a job drew more or less than it was charged, but never behind the clock.
    fn correct_tags(&mut self, class: Class, flow: u32, charged: Cost, actual: Cost) {
        if self.config.policy == Policy::Fifo {
            return;
        }
        let id = self.flows[flow].queues[class.index()];
        let pace = self.flows[flow].pace;
        let queue = &mut self.queues[id];
        let state = &mut self.classes[class.index()];
        let costs = (charged, actual);
        let waits = queue.waiting > 0;
        let owed = &mut queue.owed;
        queue.tag = owed.correct(queue.tag, state.clock, costs, pace, waits);
        if self.config.policy.shares(class) {
            let (pace, waits) = (state.pace, state.waiting > 0);
            let owed = &mut state.owed;
            let tag = &mut self.tags[class.index()];
            *tag = owed.correct(*tag, self.clock, costs, pace, waits);
        }
        if actual < charged {
            // Parked lanes may be ranked too early, never too late.
            let mut next = self.queues[id].lanes;
            while next != NIL {
                let lane = next;
                next = self.lane_spots[lane as usize].sibling;
                if matches!(self.lanes[lane].place, Place::Behind | Place::Ahead) {
                    self.parked_head_changed(lane);
                }
            }
        }
        self.queue_changed(id);
    }

    fn settle(
        &mut self,
        now: Time,
        slot: u32,
        target: u32,
        outcome: Outcome,
        payload: P,
    ) -> Settled<P> {
        let entry = &mut self.jobs[slot];
        match outcome {
            Outcome::Done { .. } => {
                self.end_leased(slot, |ended| &mut ended.done);
                Settled::Done(payload)
            }
            _ if entry.cancelled || outcome == Outcome::Unused => {
                self.end_leased(slot, |ended| &mut ended.cancelled);
                Settled::Cancelled(payload)
            }
            Outcome::Failed | Outcome::Dropped => {
                self.end_leased(slot, |ended| &mut ended.failed);
                Settled::Failed(payload)
            }
            _ if self.draining => {
                self.end_leased(slot, |ended| &mut ended.returned);
                Settled::Returned(payload)
            }
            Outcome::Retry { fault, random } => {
                let at = now + self.config.backoff.delay(entry.used, random);
                self.retry(slot, fault, at, payload)
            }
            Outcome::RetryAt { fault, at } => self.retry(slot, fault, at, payload),
            Outcome::Elsewhere => self.elsewhere(now, slot, target, payload),
            Outcome::Unused => unreachable!("an unused job ended above"),
        }
    }

    fn retry(&mut self, slot: u32, fault: Fault, at: Time, payload: P) -> Settled<P> {
        let entry = &mut self.jobs[slot];
        if fault == Fault::Overload {
            entry.used -= 1;
        }
        if entry.used >= entry.attempts {
            self.end_leased(slot, |ended| &mut ended.failed);
            return Settled::Failed(payload);
        }
        let (class, targets, cost, flow) = (entry.class, entry.targets, entry.cost, entry.flow);
        // It may go to every target again, as far as it still fits.
        let fits = self.gate.fits(cost) && self.flows[flow].gate.fits(cost);
        let whole = self.bay_of(targets).filter(|_| fits);
        let Some(bay) = whole.and_then(|bay| self.bay_that_fits(bay, cost)) else {
            self.end_leased(slot, |ended| &mut ended.failed);
            return Settled::Failed(payload);
        };
        let entry = &mut self.jobs[slot];
        entry.bay = bay;
        entry.prepaid = false;
        entry.payload = Some(payload);
        if !self.hold_delay_key(slot) {
            let payload = self.jobs[slot].payload.take().expect("just put back");
            self.end_leased(slot, |ended| &mut ended.merged);
            return Settled::Merged(payload);
        }
        self.classes[class.index()].stats.retried += 1;
        self.become_delayed(slot, at);
        Settled::Delayed(at)
    }

    fn elsewhere(&mut self, now: Time, slot: u32, target: u32, payload: P) -> Settled<P> {
        let (bay, cost) = (self.jobs[slot].bay, self.jobs[slot].cost);
        let rest = self.bay_without(bay, target);
        let rest = rest
            .and_then(|bay| self.bay_that_fits(bay, cost))
            .filter(|bay| match self.usable_at(now, *bay) {
                Some(Time::MAX) => false,
                Some(_) => self.config.on_suspend != OnSuspend::End,
                None => true,
            });
        let Some(bay) = rest else {
            self.end_leased(slot, |ended| &mut ended.failed);
            return Settled::Failed(payload);
        };
        let entry = &mut self.jobs[slot];
        entry.used -= 1;
        entry.prepaid = true;
        entry.payload = Some(payload);
        entry.bay = bay;
        self.enqueue_first(slot);
        Settled::Elsewhere
    }

    fn end_leased(&mut self, slot: u32, count: impl FnOnce(&mut crate::stats::Ended) -> &mut u64) {
        self.release_delay_key(slot);
        self.forget_job(slot);
        let class = self.jobs[slot].class.index();
        *count(&mut self.classes[class].stats.ended) += 1;
    }

    /// Ends every job that waits in a bay none of whose targets will serve again.
    pub(super) fn fail_bay(&mut self, now: Time, bay: u32, reason: Unservable) {
        while let Some(slot) = self.first_waiting(bay) {
            self.fail_unleased(now, slot, reason);
        }
    }

    pub(super) fn fail_unleased(&mut self, now: Time, slot: u32, reason: Unservable) {
        let ticket = self.ticket(slot);
        let job = self.end_unleased(now, slot);
        self.classes[job.class.index()].stats.ended.failed += 1;
        self.events.push_back(Event::Failed {
            ticket,
            job,
            reason,
        });
    }

    /// Delays every job that waits in a bay until its first target is usable.
    pub(super) fn delay_bay(&mut self, now: Time, bay: u32, until: Time) {
        while let Some(slot) = self.first_waiting(bay) {
            self.dequeue(now, slot);
            self.delay(slot, until);
        }
    }

    /// Delays a job that is in no lane; it ends as merged if another has its delay key.
    pub(super) fn delay(&mut self, slot: u32, until: Time) {
        if self.hold_delay_key(slot) {
            return self.become_delayed(slot, until);
        }
        let ticket = self.ticket(slot);
        self.forget_job(slot);
        let job = self.hand_back(slot);
        self.classes[job.class.index()].stats.ended.merged += 1;
        self.events.push_back(Event::Merged { ticket, job });
    }

    fn first_waiting(&self, bay: u32) -> Option<u32> {
        let head = |lane: &u32| self.lanes[*lane].head;
        self.bays[bay as usize]
            .lanes
            .iter()
            .map(head)
            .find(|slot| *slot != NIL)
    }
}
