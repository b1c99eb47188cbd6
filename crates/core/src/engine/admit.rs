//! Admission: which jobs may wait, and which come back to their submitter.
//!
//! A job is checked in three steps: whether any target could ever serve it, whether it may wait at
//! all, and whether there is a place for it at its target and under its bound. A bound holds for
//! each class or for all together. When no place is free, another job may have to be
//! [shed](super::shed) for it; a job that finds no place is refused, with a
//! [hint](super::predict) when to try again.
//!
//! Every check comes before the first change: a refused job leaves nothing behind but its booking,
//! no flow and no group.

use super::Core;
use super::places::Scarce;
use crate::config::{FlowConfig, OnSuspend};
use crate::event::{Reason, Refused};
use crate::id::{Class, FlowId, GroupId, JobId, Section, Ticket};
use crate::job::Job;
use crate::table::Id;
use crate::time::Time;

/// Whether an arrival may take the place of a job that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shedding {
    Allowed,
    Never,
}

/// An arrival that passed every check but that for a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) section: Section,
    pub(super) group: GroupId,
    /// Its flow, if that has a state already: a refused job leaves none behind.
    pub(super) flow: Option<FlowId>,
    pub(super) weight: u32,
    /// When it starts, if not now, and whether that is the end of a suspension.
    pub(super) due: Option<(Time, bool)>,
}

/// How an arrival comes by its place.
#[derive(Clone, Copy, Debug)]
enum Place {
    Free,
    /// This job gives its place up: that of the bound, or that at the target.
    Shed(JobId, Scarce),
}

impl<P> Core<P> {
    pub(super) fn admit(
        &mut self,
        now: Time,
        mut job: Job<P>,
        shedding: Shedding,
    ) -> Result<Ticket, Refused<P>> {
        let now = self.tick(now);
        job.resolve_times(now);
        // A job that can never be served is refused first: waiting or shedding would not help it.
        let group = match self.find_servers(now, &job) {
            Ok(group) => group,
            Err(reason) => return Err(self.refuse(now, job, reason, None, shedding)),
        };
        let placed = self.check_arrival(now, &job, group).and_then(|arrival| {
            let place = match arrival.due {
                Some(_) => Place::Free,
                // A delayed job takes its place when it is due. Taken now, places would stand empty
                // meanwhile.
                None => self.find_place(now, &job, arrival, shedding)?,
            };
            Ok((arrival, place))
        });
        match placed {
            Ok((arrival, place)) => {
                if let Some(booking) = job.booking {
                    let forecast = self.forecast_mut(arrival.section);
                    forecast.release(booking, job.flow);
                }
                Ok(self.keep(now, job, arrival, place))
            }
            Err(reason) => {
                let refused = self.refuse(now, job, reason, Some(group), shedding);
                // The group may have come about for this job alone, and no job names it now.
                self.drop_unused_group(group);
                Err(refused)
            }
        }
    }

    /// Those of the job's targets that could ever serve it.
    fn find_servers(&mut self, now: Time, job: &Job<P>) -> Result<GroupId, Reason> {
        if self.draining {
            return Err(Reason::Draining);
        }
        if job.class.index() >= self.classes.len() {
            return Err(Reason::UnknownClass);
        }
        if job.expire_at.is_some_and(|at| at <= now) {
            return Err(Reason::Expired);
        }
        // Before the limits: a duplicate of a live job is told so even if it names another cost.
        if job.key.is_some_and(|key| self.jobs.find(key).is_some()) {
            return Err(Reason::Duplicate);
        }
        let named = self.targets.group_of(job.targets).ok_or(Reason::NoTarget)?;
        // Larger than a configured maximum is refused for good; larger than a burst only has to
        // wait.
        if !self.gate.fits(job.cost) {
            return Err(Reason::TooLarge);
        }
        let fitting = self.targets.that_fit(named, job.cost, now);
        fitting.ok_or(Reason::TooLarge)
    }

    /// Everything but the bound.
    fn check_arrival(
        &mut self,
        now: Time,
        job: &Job<P>,
        group: GroupId,
    ) -> Result<Arrival, Reason> {
        let mut due = job.start_at.filter(|at| *at > now).map(|at| (at, false));
        match self.targets.usable_at(group) {
            None => {}
            Some(Time::MAX) => return Err(Reason::NoTarget),
            Some(until) => match self.config.on_suspend {
                OnSuspend::End => return Err(Reason::Suspended),
                OnSuspend::Delay => due = due.max(Some((until, true))),
                OnSuspend::Keep => {}
            },
        }
        let flow = self.flows.find(job.flow);
        let (weight, fits) = match flow.map(|flow| &self.flows[flow]) {
            Some(flow) => (flow.weight(), flow.gate.fits(job.cost)),
            None => {
                let FlowConfig { weight, limits } = self.config.flow(job.flow);
                (weight, limits.max_cost.is_none_or(|most| job.cost <= most))
            }
        };
        if !fits {
            return Err(Reason::TooLarge);
        }
        let arrival = Arrival {
            section: self.section(job.class, group),
            group,
            flow,
            weight,
            due,
        };
        if due.is_some() {
            if self.delayed.len() >= self.config.delayed_bound as u64 {
                return Err(Reason::DelayedFull);
            }
            if job.delay_key.is_some_and(|key| self.delayed.has_key(key)) {
                return Err(Reason::Merged);
            }
        } else if let Some(expire_at) = job.expire_at.filter(|_| self.config.refuse_unreachable) {
            if self
                .targets
                .usable_at(group)
                .is_some_and(|at| at >= expire_at)
            {
                return Err(Reason::Suspended);
            }
            // Refused now, the client still has time to go elsewhere; admitted, it would hold a
            // place until it expires.
            if now + self.expected_wait(arrival) > expire_at {
                return Err(Reason::DeadlineUnreachable);
            }
        }
        Ok(arrival)
    }

    /// The section of a job of that class that a group serves.
    #[inline]
    pub(super) fn section(&self, class: Class, group: GroupId) -> Section {
        let domain = self.targets.domain(group);
        Section { domain, class }
    }

    /// How an arrival comes by a place at its target and under its bound.
    fn find_place(
        &mut self,
        now: Time,
        job: &Job<P>,
        arrival: Arrival,
        shedding: Shedding,
    ) -> Result<Place, Reason> {
        // The target first: its places are the scarcer ones, and a place under the bound is of no
        // use without one there.
        if self.has_room_at_target(arrival.group) {
            let place = self.find_place_in_bound(now, job, arrival, shedding);
            return place.ok_or(Reason::Full);
        }
        // Over the bound, one out and one in would keep it above for ever.
        let may_shed = shedding == Shedding::Allowed && !self.is_over_bound(arrival.section);
        let victim = may_shed.then(|| self.victim_at_target(arrival)).flatten();
        (victim.map(|victim| Place::Shed(victim, Scarce::Target))).ok_or(Reason::TargetFull)
    }

    fn find_place_in_bound(
        &mut self,
        now: Time,
        job: &Job<P>,
        arrival: Arrival,
        shedding: Shedding,
    ) -> Option<Place> {
        let section = arrival.section;
        let free = self.places_free(section) as usize;
        let places = self.config.bound.places();
        self.forecast_mut(section).advance(now, places);
        let mut is_due = false;
        if let Some(booking) = job.booking {
            let ahead = self.forecast(section).ahead_of(now, booking, job.flow);
            // Its own booking keeps nothing from it: only those with an earlier time come first.
            if ahead.is_some_and(|ahead| free > ahead) {
                return Some(Place::Free);
            }
            is_due = ahead == Some(0);
        }
        if free > 0 && free > self.kept_from(section, job.flow) {
            return Some(Place::Free);
        }
        if self.is_over_bound(section) || shedding == Shedding::Never {
            return None;
        }
        // A flow's bookings come before its other jobs: they use its share up.
        let claim = self.claim(section, job.flow, is_due);
        let victim = self
            .victim(arrival, claim)
            .or_else(|| self.displaced(section.class))?;
        // The places that are left were promised to others: only an arrival that could shed a job
        // may have one.
        Some(match free {
            0 => Place::Shed(victim, Scarce::Bound),
            _ => Place::Free,
        })
    }

    /// Admits a job.
    fn keep(&mut self, now: Time, job: Job<P>, arrival: Arrival, place: Place) -> Ticket {
        // Before the victim ends, which may be the last job that the group is for.
        self.targets.retain(arrival.group);
        if let Place::Shed(victim, scarce) = place {
            self.shed(now, victim, scarce);
        }
        let flow = match arrival.flow {
            Some(flow) => flow,
            None => self.add_flow(now, job.flow),
        };
        let class = job.class;
        let attempts = job.attempts.unwrap_or(self.config.attempts).max(1);
        let id = self.jobs.insert(job, flow, arrival.group, attempts);
        self.classes.stats_mut(class).admitted += 1;
        match arrival.due {
            Some((due, suspended)) => self.enter_delay(id, due, suspended),
            None => self.enter_lane(now, id),
        }
        self.jobs.ticket(id)
    }
}
