//! Who may wait.
//!
//! A bound holds for each class or for all together. When it is reached, an arrival whose flow holds less than its share
//! takes the place of the newest job of the flow that holds most; everyone else is refused and told when to come back.

use super::Core;
use super::parts::{Entry, State};
use crate::ahead::fetch_at;
use crate::config::{Bound, OnSuspend};
use crate::event::{Event, Reason, Refused};
use crate::forecast::Forecast;
use crate::id::{Booking, Class, Key, SetRef, TargetSet, Ticket};
use crate::job::Job;
use crate::target::TargetState;
use crate::time::Time;
use crate::wheel::TimerId;
use std::hash::BuildHasher;
use std::time::Duration;

/// How an arrival comes by its place.
enum Entrance {
    /// One is free for it.
    Free,
    /// This job gives up its own.
    Shed(u32),
}

impl<P> Core<P> {
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub(super) fn admit(&mut self, now: Time, job: Job<P>) -> Result<Ticket, Refused<P>> {
        let (bay, flow, due) = match self.examine_arrival(now, &job) {
            Ok(arrival) => arrival,
            Err(reason) => return Err(self.turn_away(now, job, reason)),
        };
        if due.is_some() && self.is_duplicate(&job) {
            return Err(self.turn_away(now, job, Reason::Duplicate));
        }
        if let Some(due) = due {
            return Ok(self.admit_delayed(job, bay, flow, due));
        }
        let lane = self.guess_lane(job.class, flow, bay);
        let entrance = match self.entrance(now, &job, flow, bay) {
            Ok(entrance) => entrance,
            Err(reason) => return Err(self.turn_away(now, job, reason)),
        };
        // Whether another has its key is asked as late as can be: by then the answer is near.
        let slot = self.write(&job, bay, flow, State::Waiting);
        if self.is_duplicate(&job) {
            self.jobs.remove(slot);
            return Err(self.turn_away(now, job, Reason::Duplicate));
        }
        if let Entrance::Shed(victim) = entrance {
            self.shed(now, victim);
        }
        self.keep(slot, job);
        self.enqueue(now, slot, lane);
        Ok(self.ticket(slot))
    }

    #[inline]
    fn is_duplicate(&self, job: &Job<P>) -> bool {
        job.key.is_some_and(|key| self.find(key).is_some())
    }

    /// Refuses a job. That it is a duplicate comes before what else may speak against it.
    #[inline(never)]
    fn turn_away(&mut self, now: Time, job: Job<P>, reason: Reason) -> Refused<P> {
        let reason = match reason {
            Reason::Draining | Reason::UnknownClass | Reason::Expired => reason,
            _ if self.is_duplicate(&job) => Reason::Duplicate,
            reason => reason,
        };
        if reason == Reason::Full {
            return self.refuse_full(now, job);
        }
        let after = self.retry_hint(now, &job, reason);
        self.refuse(job, reason, after, None)
    }

    /// Everything but the bound: where the job belongs, and when it starts if that is not now.
    fn examine_arrival(
        &mut self,
        now: Time,
        job: &Job<P>,
    ) -> Result<(u32, u32, Option<Time>), Reason> {
        if let Some(key) = job.key {
            self.keys.fetch(key.spread());
        }
        if let SetRef::One(target) = job.targets.0 {
            fetch_at(&self.targets, target);
        }
        let name = self.hasher.hash_one(job.flow);
        let guess = self.guess_flow(name);
        if self.draining {
            return Err(Reason::Draining);
        }
        if job.class.index() >= self.classes.len() {
            return Err(Reason::UnknownClass);
        }
        if job.expire_at.is_some_and(|at| at <= now) {
            return Err(Reason::Expired);
        }
        let known = self
            .flows
            .look(guess)
            .is_some_and(|flow| flow.id == job.flow);
        if known {
            self.fetch_queue_and_lane(job, guess);
        }
        let (bay, usable_at) = self.servers(now, job)?;
        let mut due = job.start_at.filter(|at| *at > now);
        match usable_at {
            Some(Time::MAX) => return Err(Reason::NoTarget),
            Some(_) if self.config.on_suspend == OnSuspend::End => return Err(Reason::Suspended),
            Some(until) if self.config.on_suspend == OnSuspend::Delay => due = due.max(Some(until)),
            _ => {}
        }
        let flow = match known {
            true => guess,
            false => self.flow(now, job.flow, name),
        };
        if !self.flows[flow].gate.fits(job.cost) {
            return Err(Reason::TooLarge);
        }
        if due.is_some() {
            if self.delayed >= self.config.delayed_bound as u64 {
                return Err(Reason::DelayedFull);
            }
            if job.delay_key.is_some_and(|key| self.is_delayed(key)) {
                return Err(Reason::Merged);
            }
        } else if self.is_hopeless(now, job) {
            return Err(Reason::Hopeless);
        }
        Ok((bay, flow, due))
    }

    /// Who may serve a job, and when the first of them is usable, if none is now.
    #[inline]
    fn servers(&mut self, now: Time, job: &Job<P>) -> Result<(u32, Option<Time>), Reason> {
        if let SetRef::One(target) = job.targets.0
            && let Some(target) = self.targets.get(target as usize)
            && target.state.is_usable()
        {
            let fits = target.gate.fits(job.cost) && self.gate.fits(job.cost);
            return fits.then_some((target.bay, None)).ok_or(Reason::TooLarge);
        }
        let bay = self.bay_of(job.targets).ok_or(Reason::NoTarget)?;
        if !self.gate.fits(job.cost) {
            return Err(Reason::TooLarge);
        }
        let bay = self.bay_that_fits(bay, job.cost).ok_or(Reason::TooLarge)?;
        Ok((bay, self.usable_at(now, bay)))
    }

    #[inline]
    fn is_hopeless(&mut self, now: Time, job: &Job<P>) -> bool {
        let Some(expire) = job.expire_at.filter(|_| self.config.refuse_hopeless) else {
            return false;
        };
        let ahead = if self.shares_bound() {
            self.waiting
        } else {
            self.classes[job.class.index()].waiting
        };
        self.forecast(job.class)
            .wait(ahead as usize)
            .is_some_and(|wait| now + wait > expire)
    }

    /// Whether one more job may wait for a target that alone can serve it.
    pub(super) fn has_room_alone(&self, bay: u32) -> bool {
        match self.bays[bay as usize].targets[..] {
            [target] => (self.targets[target as usize].waiting as usize) < self.most_alone,
            _ => true,
        }
    }

    fn places_taken(&self, class: Class) -> u64 {
        match self.config.bound {
            Bound::Shared(_) => self.waiting,
            Bound::PerClass(_) => self.classes[class.index()].waiting,
        }
    }

    /// Places that nobody has; booked ones count as free.
    pub(super) fn places_free(&self, class: Class) -> u64 {
        (self.config.bound.places() as u64).saturating_sub(self.places_taken(class))
    }

    /// More wait than may, after a reload to a smaller bound: nobody is let in, not even for another.
    fn is_over(&self, class: Class) -> bool {
        self.places_taken(class) > self.config.bound.places() as u64
    }

    pub(super) fn forecast(&mut self, class: Class) -> &mut Forecast {
        match self.config.bound {
            Bound::Shared(_) => &mut self.forecast,
            Bound::PerClass(_) => &mut self.classes[class.index()].forecast,
        }
    }

    /// How an arrival comes by a place of its target and of its bound.
    fn entrance(
        &mut self,
        now: Time,
        job: &Job<P>,
        flow: u32,
        bay: u32,
    ) -> Result<Entrance, Reason> {
        let room = match job.targets.0 {
            // Without a look at its bay, which is nowhere near.
            SetRef::One(target) => {
                (self.targets[target as usize].waiting as usize) < self.most_alone
            }
            SetRef::Many(_) => self.has_room_alone(bay),
        };
        if room {
            return self.place(now, job, flow).ok_or(Reason::Full);
        }
        let victim = self.victim_in(bay, job.class, flow);
        let victim = victim.filter(|_| !self.is_over(job.class));
        victim.map(Entrance::Shed).ok_or(Reason::TargetFull)
    }

    /// How an arrival comes by a place of its bound.
    fn place(&mut self, now: Time, job: &Job<P>, flow: u32) -> Option<Entrance> {
        let free = self.places_free(job.class) as usize;
        let places = self.config.bound.places();
        let kept = self.forecast(job.class).kept(now, places);
        if let Some(booking) = job.booking {
            let forecast = self.forecast(job.class);
            let ahead = forecast.ahead_of(now, booking);
            if ahead.is_some_and(|ahead| free > ahead) {
                forecast.release(booking);
                return Some(Entrance::Free);
            }
        }
        if free > kept {
            return Some(Entrance::Free);
        }
        if self.is_over(job.class) {
            return None;
        }
        let victim = match self.holds_less_than_its_share(job.class, flow) {
            true => self.victim(job.class, flow),
            false => None,
        };
        let victim = victim.or_else(|| self.displaced(job.class))?;
        // What is left was promised to others: only who could shed somebody for it may have it.
        Some(match free {
            0 => Entrance::Shed(victim),
            _ => Entrance::Free,
        })
    }

    fn shed(&mut self, now: Time, slot: u32) {
        let ticket = self.ticket(slot);
        let class = self.jobs[slot].class;
        // The place goes from one to another: it tells nothing about how fast places are freed.
        let pace = self.forecast(class).pace();
        let job = self.end_unleased(now, slot);
        self.forecast(class).set_pace(pace);
        self.classes[class.index()].stats.ended.shed += 1;
        // Its own place is free only until the arrival takes it.
        let (after, booking) = self.book(now, job.class, 1);
        self.events.push_back(Event::Shed {
            ticket,
            job,
            retry_after: Some(after),
            booking,
        });
    }

    fn refuse_full(&mut self, now: Time, job: Job<P>) -> Refused<P> {
        if let Some(booking) = job.booking {
            self.forecast(job.class).release(booking);
        }
        let (after, booking) = self.book(now, job.class, 0);
        self.refuse(job, Reason::Full, Some(after), booking)
    }

    /// Books a place, of those that are free but for `taken`.
    fn book(&mut self, now: Time, class: Class, taken: u64) -> (Duration, Option<Booking>) {
        let free = self.places_free(class).saturating_sub(taken);
        let places = self.config.bound.places();
        self.forecast(class).book(now, free as usize, places)
    }

    fn retry_hint(&mut self, now: Time, job: &Job<P>, reason: Reason) -> Option<Duration> {
        match reason {
            Reason::TargetFull | Reason::Hopeless => {
                let (free, places) = (self.places_free(job.class), self.config.bound.places());
                Some(
                    self.forecast(job.class)
                        .next_free(now, free as usize, places),
                )
            }
            Reason::Suspended => {
                let bay = self.bay_of(job.targets)?;
                self.usable_at(now, bay).map(|at| at.since(now))
            }
            _ => None,
        }
    }

    fn refuse(
        &mut self,
        job: Job<P>,
        reason: Reason,
        retry_after: Option<Duration>,
        booking: Option<Booking>,
    ) -> Refused<P> {
        if let Some(class) = self.classes.get_mut(job.class.index()) {
            class.stats.refused[reason as usize] += 1;
        }
        Refused {
            reason,
            retry_after,
            booking,
            job,
        }
    }

    fn admit_delayed(&mut self, job: Job<P>, bay: u32, flow: u32, due: Time) -> Ticket {
        let slot = self.write(&job, bay, flow, State::Delayed);
        self.keep(slot, job);
        self.hold_delay_key(slot);
        self.become_delayed(slot, due);
        self.ticket(slot)
    }

    /// Writes down all that is known of a job but its payload, which [`keep`](Self::keep) adds.
    #[inline(always)]
    fn write(&mut self, job: &Job<P>, bay: u32, flow: u32, state: State) -> u32 {
        self.serial += 1;
        let attempts = job.attempts.unwrap_or(self.config.attempts).max(1);
        let (slot, entry) = self.jobs.claim(Entry::vacant);
        entry.serial = self.serial;
        entry.state = state;
        entry.class = job.class;
        entry.flow = flow;
        entry.cost = job.cost;
        entry.targets = job.targets;
        entry.bay = bay;
        entry.key = job.key.unwrap_or(Key(0));
        entry.keyed = job.key.is_some();
        entry.has_delay_key = job.delay_key.is_some();
        entry.holds_delay_key = false;
        entry.expire_at = job.expire_at.unwrap_or(Time::MAX);
        entry.seq = self.serial;
        entry.since = Time::MAX;
        entry.attempts = attempts;
        entry.used = 0;
        entry.prepaid = false;
        entry.cancelled = false;
        entry.probing = false;
        entry.timer = TimerId::NONE;
        slot
    }

    /// Keeps a job that was written down, and its keys.
    #[inline(always)]
    fn keep(&mut self, slot: u32, job: Job<P>) {
        self.jobs[slot].payload = Some(job.payload);
        if let Some(key) = job.key {
            let jobs = &self.jobs;
            let hash = |slot| jobs[slot].key.spread();
            self.keys.insert(key.spread(), slot, hash);
        }
        if let Some(key) = job.delay_key {
            self.later(slot).delay_key = key;
        }
        self.classes[job.class.index()].stats.admitted += 1;
    }

    pub(super) fn bay_of(&self, targets: TargetSet) -> Option<u32> {
        match targets.0 {
            SetRef::One(target) => self.targets.get(target as usize).map(|target| target.bay),
            SetRef::Many(bay) => ((bay as usize) < self.bays.len()).then_some(bay),
        }
    }

    /// When the first of a bay's targets is usable: `None` if one is, the end of time if all are disabled.
    pub(super) fn usable_at(&self, now: Time, bay: u32) -> Option<Time> {
        let at = |target: &u32| match self.targets[*target as usize].state {
            TargetState::Active | TargetState::Probation => now,
            TargetState::Suspended { until } => until,
            TargetState::Disabled { .. } => Time::MAX,
        };
        let first = self.bays[bay as usize]
            .targets
            .iter()
            .map(at)
            .min()
            .unwrap_or(Time::MAX);
        (first > now).then_some(first)
    }
}
