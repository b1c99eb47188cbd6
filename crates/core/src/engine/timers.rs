//! The passage of time: jobs that are due or expire, gates that open.
//!
//! Every call begins with [`tick`](Core::tick). A job has one timer at most, for whichever comes
//! first of its start and its expiry, and a target and a flow have one each. A timer belongs to its
//! entry: code that forgets one of them must cancel it first, or it fires for the next owner of the
//! id.

use super::Core;
use crate::config::OnSuspend;
use crate::event::{Event, Unservable};
use crate::id::{FlowId, GroupId, JobId, TargetId};
use crate::jobs::JobState;
use crate::targets::TargetState;
use crate::time::Time;
use std::time::Duration;

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A job is due, or expires.
    Job(JobId),
    /// A target's gate opens, or its suspension ends.
    Target(TargetId),
    /// A flow's gate opens.
    Flow(FlowId),
}

/// A job that finds no place is postponed by at least this. With zero, the timer would fire again
/// at the same time, for ever.
const SHORTEST_POSTPONEMENT: Duration = Duration::from_millis(10);

impl<P> Core<P> {
    /// Every call begins here: time moves on, never back, and what is due happens first. So a
    /// delayed job takes a place before an arrival of the same moment.
    pub(super) fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        if self.timers.next_at().is_some_and(|at| at <= self.now) {
            self.fire();
        }
        // A driver that can run a job calls `next` after this call. For any other the time has
        // passed, and to be woken for it again would be for nothing.
        if self.gate_opens_at.is_some_and(|at| at <= self.now) {
            self.gate_opens_at = None;
        }
        self.now
    }

    #[cold]
    fn fire(&mut self) {
        let now = self.now;
        let mut due = std::mem::take(&mut self.due);
        self.timers.advance(now, &mut due);
        // All are marked as fired before any is acted on: what one does must not cancel another
        // that is gone.
        for (_, timer) in &due {
            match *timer {
                Timer::Job(job) => self.jobs[job].timer = None,
                Timer::Target(target) => self.targets[target].timer = None,
                Timer::Flow(flow) => self.flows[flow].timer = None,
            }
        }
        for (_, timer) in due.drain(..) {
            match timer {
                Timer::Job(job) => self.job_due(now, job),
                Timer::Target(target) => self.target_due(now, target),
                Timer::Flow(flow) => self.open_flow(flow),
            }
        }
        self.due = due;
    }

    fn job_due(&mut self, now: Time, job: JobId) {
        // An earlier timer of the same moment may have ended this job, or moved it.
        let Some(entry) = self.jobs.by_id(job).filter(|entry| entry.timer.is_none()) else {
            return;
        };
        if entry.has_expired(now) {
            self.expire(now, job);
        } else if let JobState::Delayed { .. } = entry.state {
            self.job_ready(now, job);
        }
    }

    fn expire(&mut self, now: Time, job: JobId) {
        let expired = |ticket, job| Event::Expired { ticket, job };
        self.end_with_event(now, job, |ended| &mut ended.expired, expired);
    }

    /// A delayed job's time has come: it joins its lane, or is postponed if there is no place or no
    /// target yet.
    pub(super) fn job_ready(&mut self, now: Time, job: JobId) {
        if self.jobs[job].has_expired(now) {
            return self.expire(now, job);
        }
        let (class, group) = (self.jobs[job].class, self.jobs[job].group);
        let section = self.section(class, group);
        match (self.targets.usable_at(group), self.config.on_suspend) {
            (Some(Time::MAX), _) => return self.fail_unleased(now, job, Unservable::NoTarget),
            (Some(_), OnSuspend::End) => {
                return self.fail_unleased(now, job, Unservable::Suspended);
            }
            (Some(until), OnSuspend::Delay) => return self.postpone(job, until, true),
            (Some(_), OnSuspend::Keep) | (None, _) => {}
        }
        // A delayed job sheds nobody. It tries again later: admitted once, it is never lost.
        if self.places_free(section) == 0 || !self.has_room_at_target(group) {
            let by = self.config.postpone_by.max(SHORTEST_POSTPONEMENT);
            return self.postpone(job, now + by, false);
        }
        self.leave_delay(job);
        self.jobs.arrive_anew(job);
        self.enter_lane(now, job);
    }

    fn postpone(&mut self, job: JobId, until: Time, suspended: bool) {
        self.set_due(job, until, suspended);
        let class = self.jobs[job].class;
        self.classes.stats_mut(class).postponed += 1;
        let ticket = self.jobs.ticket(job);
        self.events.push_back(Event::Postponed { ticket, until });
    }

    /// Delays a job that is in no lane until a suspension ends; it ends as merged if another
    /// delayed job has its delay key.
    pub(super) fn suspend(&mut self, job: JobId, until: Time) {
        // A waiting job does not hold its delay key, so another one may be delayed under it by now.
        let key = self.jobs[job].delay_key;
        if key.is_none_or(|key| !self.delayed.has_key(key)) {
            return self.enter_delay(job, until, true);
        }
        let merged = |ticket, job| Event::Merged { ticket, job };
        self.end_with_event(self.now, job, |ended| &mut ended.merged, merged);
    }

    /// Counts a job that is in no lane as delayed. Its delay key is free.
    pub(super) fn enter_delay(&mut self, job: JobId, due: Time, suspended: bool) {
        let (key, flow) = (self.jobs[job].delay_key, self.jobs[job].flow);
        self.delayed.insert(key);
        self.flows[flow].count_delayed();
        self.set_due(job, due, suspended);
    }

    /// A job is no longer delayed; it is in no lane yet.
    pub(super) fn leave_delay(&mut self, job: JobId) {
        self.disarm_job(job);
        self.delist(job);
        let entry = &mut self.jobs[job];
        let (key, flow) = (entry.delay_key, entry.flow);
        self.delayed.remove(key);
        self.flows[flow].count_released();
    }

    /// Says when a delayed job is due, and whether that is the end of a suspension.
    fn set_due(&mut self, job: JobId, due: Time, suspended: bool) {
        self.delist(job);
        self.jobs[job].state = JobState::Delayed { due, suspended };
        if suspended {
            let list = &mut self.targets.group_mut(self.jobs[job].group).suspended;
            self.delayed.enlist(list, job);
        }
        self.arm_job(job);
    }

    fn delist(&mut self, job: JobId) {
        let entry = &self.jobs[job];
        if let JobState::Delayed {
            suspended: true, ..
        } = entry.state
        {
            let list = &mut self.targets.group_mut(entry.group).suspended;
            self.delayed.delist(list, job);
        }
    }

    /// A target of the group is usable again: jobs that were delayed until then need not wait any
    /// longer.
    pub(super) fn release_suspended(&mut self, now: Time, group: GroupId) {
        let jobs = self.delayed.listed(&self.targets.group(group).suspended);
        for job in jobs {
            self.release(now, job);
        }
    }

    /// A suspension no longer delays a job: it is due, unless it is to start later.
    pub(super) fn release(&mut self, now: Time, job: JobId) {
        match self.jobs[job].starts_after(now) {
            Some(at) => self.set_due(job, at, false),
            None => self.job_ready(now, job),
        }
    }

    /// Sets a job's one timer: for when it is due, or for when it expires if that is sooner.
    pub(super) fn arm_job(&mut self, job: JobId) {
        self.disarm_job(job);
        let entry = &mut self.jobs[job];
        if let Some(at) = entry.next_time() {
            entry.timer = Some(self.timers.set(at, Timer::Job(job)));
        }
    }

    pub(super) fn disarm_job(&mut self, job: JobId) {
        if let Some(timer) = self.jobs[job].timer.take() {
            self.timers.cancel(timer);
        }
    }

    /// Has a target looked at again at that time, or earlier.
    pub(super) fn arm_target(&mut self, target: TargetId, at: Time) {
        let state = &mut self.targets[target];
        if let Some((armed, timer)) = state.timer {
            if armed <= at {
                return;
            }
            self.timers.cancel(timer);
        }
        state.timer = Some((at, self.timers.set(at, Timer::Target(target))));
    }

    /// Takes a target's timer back, unless it is for the end of a suspension.
    pub(super) fn disarm_target(&mut self, target: TargetId) {
        let state = &mut self.targets[target];
        if matches!(state.state(), TargetState::Suspended { .. }) {
            return;
        }
        if let Some((_, timer)) = state.timer.take() {
            self.timers.cancel(timer);
        }
    }

    /// Has a flow looked at again at that time.
    pub(super) fn arm_flow(&mut self, flow: FlowId, at: Time) {
        if let Some(timer) = self.flows[flow].timer.take() {
            self.timers.cancel(timer);
        }
        self.flows[flow].timer = Some(self.timers.set(at, Timer::Flow(flow)));
    }
}
