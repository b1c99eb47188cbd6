//! What time brings: jobs that are due or expire, gates that open.

use super::Core;
use super::parts::{NIL, State, Timer};
use crate::config::OnSuspend;
use crate::event::{Event, Unservable};
use crate::target::TargetState;
use crate::time::Time;
use crate::wheel::TimerId;

impl<P> Core<P> {
    /// Every call begins here: time moves on (never back), and what is due happens first. So a delayed job takes a
    /// place before an arrival of the same moment.
    #[inline]
    pub(super) fn tick(&mut self, now: Time) -> Time {
        if now > self.now {
            self.now = now;
        }
        if self.wheel.next_at().is_some_and(|at| at <= self.now) {
            self.fire();
        }
        // From here on `next` may answer differently: whoever has somebody to run a job asks it after this call, and for
        // everybody else that time has passed.
        if self.gate_at.is_some_and(|at| at <= self.now) {
            self.gate_at = None;
        }
        self.now
    }

    fn fire(&mut self) {
        let now = self.now;
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now, &mut due);
        // All have fired before any is acted on: what one does must not cancel another that is no more.
        for (_, timer) in &due {
            match *timer {
                Timer::Job(slot) => self.jobs[slot].timer = TimerId::NONE,
                Timer::Target(target) => self.targets[target as usize].seldom.timer = TimerId::NONE,
                Timer::Flow(flow) => self.flows[flow].timer = TimerId::NONE,
            }
        }
        for (_, timer) in due.drain(..) {
            match timer {
                Timer::Job(slot) => self.job_due(now, slot),
                Timer::Target(target) => self.target_due(now, target),
                Timer::Flow(flow) => self.open_flow(flow),
            }
        }
        self.due = due;
    }

    fn job_due(&mut self, now: Time, slot: u32) {
        let entry = &self.jobs[slot];
        if entry.expire_at <= now {
            let ticket = self.ticket(slot);
            let job = self.end_unleased(now, slot);
            self.classes[job.class.index()].stats.ended.expired += 1;
            self.events.push_back(Event::Expired { ticket, job });
        } else if entry.state == State::Delayed {
            self.leave_delay(now, slot);
        }
    }

    /// A delayed job is due: it joins its lane, or is put off if there is no place or no target yet.
    fn leave_delay(&mut self, now: Time, slot: u32) {
        let (class, bay) = (self.jobs[slot].class, self.jobs[slot].bay);
        match (self.usable_at(now, bay), self.config.on_suspend) {
            (Some(Time::MAX), _) => return self.fail_unleased(now, slot, Unservable::NoTarget),
            (Some(_), OnSuspend::End) => {
                return self.fail_unleased(now, slot, Unservable::Suspended);
            }
            (Some(until), OnSuspend::Delay) => return self.put_off(slot, until),
            (Some(_), OnSuspend::Keep) | (None, _) => {}
        }
        if self.places_free(class) == 0 || !self.has_room_alone(bay) {
            return self.put_off(slot, now + self.config.put_off);
        }
        self.release_delay_key(slot);
        self.delayed -= 1;
        let flow = self.jobs[slot].flow;
        self.flows[flow].delayed -= 1;
        self.enqueue(now, slot, NIL);
    }

    fn put_off(&mut self, slot: u32, until: Time) {
        self.later(slot).due = until;
        self.arm_job(slot);
        let class = self.jobs[slot].class;
        self.classes[class.index()].stats.put_off += 1;
        let ticket = self.ticket(slot);
        self.events.push_back(Event::PutOff { ticket, until });
    }

    /// Sets a job's one timer: for when it is due, or for when it expires if that is sooner.
    pub(super) fn arm_job(&mut self, slot: u32) {
        let entry = &self.jobs[slot];
        let at = match entry.state {
            State::Delayed => Some(entry.expire_at.min(self.later[slot as usize].due)),
            State::Waiting => (entry.expire_at < Time::MAX).then_some(entry.expire_at),
            State::Running { .. } => None,
        };
        self.disarm_job(slot);
        if let Some(at) = at {
            self.jobs[slot].timer = self.wheel.set(at, Timer::Job(slot));
        }
    }

    #[inline]
    pub(super) fn disarm_job(&mut self, slot: u32) {
        let timer = std::mem::replace(&mut self.jobs[slot].timer, TimerId::NONE);
        if !timer.is_none() {
            self.wheel.cancel(timer);
        }
    }

    /// Has a target looked at again at that time, or earlier.
    pub(super) fn arm_target(&mut self, target: u32, at: Time) {
        let state = &mut self.targets[target as usize].seldom;
        if !state.timer.is_none() {
            if state.timer_at <= at {
                return;
            }
            self.wheel.cancel(state.timer);
        }
        state.timer_at = at;
        state.timer = self.wheel.set(at, Timer::Target(target));
    }

    /// Whatever a target was to be looked at again for is to be found out anew. A suspension stays.
    pub(super) fn disarm_target(&mut self, target: u32) {
        let state = &mut self.targets[target as usize];
        if !state.seldom.timer.is_none() && !matches!(state.state, TargetState::Suspended { .. }) {
            self.wheel.cancel(state.seldom.timer);
            state.seldom.timer = TimerId::NONE;
        }
    }

    /// Has a parked flow looked at again at that time.
    pub(super) fn arm_flow(&mut self, flow: u32, at: Time) {
        let timer = std::mem::replace(&mut self.flows[flow].timer, TimerId::NONE);
        if !timer.is_none() {
            self.wheel.cancel(timer);
        }
        self.flows[flow].timer = self.wheel.set(at, Timer::Flow(flow));
    }
}
