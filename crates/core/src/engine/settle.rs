//! The end of a lease: its job is done, failed, retried or sent elsewhere.
//!
//! Gates and accounts are settled first, then the target is judged, then the job goes where its
//! outcome says, and only then are the gates' waiters tried: an overloaded target must not be
//! offered the next job before it is suspended. A lease is checked against its ticket once, at the
//! start; a stale one changes nothing.

use super::Core;
use crate::config::OnSuspend;
use crate::gate::Charge;
use crate::id::{Cost, FlowId, JobId, Section, TargetId, Ticket};
use crate::job::{Fault, Lease, Outcome, Settled, Verdict};
use crate::jobs::JobState;
use crate::stats::Ended;
use crate::time::Time;

/// A job whose lease is given back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leased {
    job: JobId,
    pub(super) target: TargetId,
    section: Section,
    flow: FlowId,
    cost: Cost,
    /// Its outcome decides about a target on probation.
    pub(super) probing: bool,
}

impl<P> Core<P> {
    /// Gives a lease back: how the job went, and what that says about the target. A lease of a job
    /// that has ended settles nothing.
    ///
    /// ```
    /// use headworks_core::{Config, Core, Fault, Job, Outcome, Settled, Time, Verdict};
    ///
    /// let mut core = Core::new(Config::default(), Time::ZERO)?;
    /// core.submit(Time::ZERO, Job::new("fetch")).expect("room");
    /// let lease = core.next(Time::ZERO).expect("nothing is limited");
    /// let (fault, at) = (Fault::Temporary, Time::from_secs(5));
    /// let settled = core.finish(Time::ZERO, lease, Outcome::RetryAt { fault, at }, Verdict::Fault);
    /// assert_eq!(settled, Settled::Delayed(at));
    ///
    /// let again = core.next(at).expect("its second attempt");
    /// assert_eq!(again.attempt, 2);
    /// assert_eq!(core.finish(at, again, Outcome::DONE, Verdict::Fine), Settled::Done("fetch"));
    /// # Ok::<(), headworks_core::ConfigError>(())
    /// ```
    pub fn finish(
        &mut self,
        now: Time,
        lease: Lease<P>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Settled<P> {
        let now = self.tick(now);
        // The ticket is the fence: a lease that was reclaimed or whose job ended must not settle
        // the job that has its id now.
        let Some(leased) = self.leased(lease.ticket) else {
            return Settled::Stale(lease.payload);
        };
        let charge = match outcome {
            Outcome::Done { cost: Some(cost) } => Charge::Actual(cost),
            // The target did nothing: all of the charge moves on with the job, or is returned.
            Outcome::Unused | Outcome::Elsewhere => Charge::Returned,
            // A failed attempt, or one that nobody reported, may have cost the target everything
            // that was estimated.
            _ => Charge::Kept,
        };
        self.leave_gates(now, &leased, charge);
        // Before the job is put back: if the target is suspended by this verdict, the job must not
        // be offered to it again.
        self.judge(now, &leased, verdict);
        let settled = self.settle(now, &leased, outcome, lease.payload);
        self.open_target(leased.target);
        self.open_flow(leased.flow);
        settled
    }

    /// Ends a job whose lease was lost with its worker. A later `finish` with that lease is stale.
    /// `false` if the job does not run.
    pub fn reclaim(&mut self, now: Time, ticket: Ticket, verdict: Verdict) -> bool {
        let now = self.tick(now);
        let Some(leased) = self.leased(ticket) else {
            return false;
        };
        self.leave_gates(now, &leased, Charge::Kept);
        self.judge(now, &leased, verdict);
        self.end_leased(leased.job, |ended| &mut ended.failed);
        self.open_target(leased.target);
        self.open_flow(leased.flow);
        true
    }

    /// The running job of a ticket.
    fn leased(&self, ticket: Ticket) -> Option<Leased> {
        let entry = self.jobs.get(ticket)?;
        let JobState::Running(target) = entry.state else {
            return None;
        };
        Some(Leased {
            job: ticket.job,
            target,
            section: entry.section(),
            flow: entry.flow,
            cost: entry.cost,
            probing: entry.is_probe(),
        })
    }

    /// Leaves the gates, and corrects what was charged.
    fn leave_gates(&mut self, now: Time, leased: &Leased, charge: Charge) {
        let Leased { section, cost, .. } = *leased;
        let flow = &mut self.flows[leased.flow];
        self.running -= 1;
        self.gate.leave(now, cost, charge);
        flow.gate.leave(now, cost, charge);
        self.targets[leased.target].gate.leave(now, cost, charge);
        let actual = match charge {
            Charge::Kept => Some(cost),
            Charge::Actual(actual) => Some(actual),
            Charge::Returned => None,
        };
        let queue = flow.queue(section).expect("a running job has a queue");
        let blocked = flow.is_blocked();
        self.classes.settle(section, queue, cost, actual);
        if actual == Some(cost) {
            return;
        }
        // The tag moved. Blocked lanes may be ranked too early, never too late.
        if actual.is_none_or(|actual| actual < cost) {
            self.rerank_blocked(section, queue);
        }
        self.classes.requeue(section, queue, blocked);
    }

    fn settle(&mut self, now: Time, leased: &Leased, outcome: Outcome, payload: P) -> Settled<P> {
        let Leased { job, target, .. } = *leased;
        if let Outcome::Done { .. } = outcome {
            self.end_leased(job, |ended| &mut ended.done);
            return Settled::Done(payload);
        }
        let entry = &self.jobs[job];
        match outcome {
            _ if entry.is_cancelled() => self.cancel_leased(job, payload),
            Outcome::Failed | Outcome::Dropped => self.fail(job, payload),
            // Also what was granted and never begun: it is handed back like what still waits.
            _ if self.draining => {
                self.end_leased(job, |ended| &mut ended.returned);
                Settled::Returned(payload)
            }
            Outcome::Unused => self.cancel_leased(job, payload),
            Outcome::Retry { fault, random } => {
                let at = now + self.config.backoff.delay(entry.attempts_used(), random);
                self.retry(job, fault, at, payload)
            }
            Outcome::RetryAt { fault, at } => self.retry(job, fault, at, payload),
            Outcome::Elsewhere => self.elsewhere(now, job, target, payload),
            Outcome::Done { .. } => unreachable!("the job ended above"),
        }
    }

    fn retry(&mut self, job: JobId, fault: Fault, at: Time, payload: P) -> Settled<P> {
        let entry = &mut self.jobs[job];
        if fault == Fault::Overload {
            entry.return_attempt();
        }
        if !entry.has_attempts_left() {
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
        self.classes.stats_mut(class).retried += 1;
        self.jobs[job].try_again(payload);
        self.enter_delay(job, at, false);
        Settled::Delayed(at)
    }

    fn elsewhere(&mut self, now: Time, job: JobId, target: TargetId, payload: P) -> Settled<P> {
        let (group, cost) = (self.jobs[job].group, self.jobs[job].cost);
        // Never back to the target that refused it, or two targets could pass a job to and fro
        // without an end.
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
        self.jobs[job].send_elsewhere(payload);
        self.enter_lane(now, job);
        Settled::Elsewhere
    }

    fn cancel_leased(&mut self, job: JobId, payload: P) -> Settled<P> {
        self.end_leased(job, |ended| &mut ended.cancelled);
        Settled::Cancelled(payload)
    }

    fn fail(&mut self, job: JobId, payload: P) -> Settled<P> {
        self.end_leased(job, |ended| &mut ended.failed);
        Settled::Failed(payload)
    }

    fn end_leased(&mut self, job: JobId, count: impl FnOnce(&mut Ended) -> &mut u64) {
        let (class, group) = (self.jobs[job].class, self.jobs[job].group);
        self.jobs.forget(job);
        self.release_group(group);
        *count(&mut self.classes.stats_mut(class).ended) += 1;
    }
}
