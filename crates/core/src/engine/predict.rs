//! Prediction: how long an arrival would wait, and when a refused job should try again.
//!
//! A wait is predicted from the place that the policy gives a job and from how fast places become
//! free. A hint is never shorter than a bound that can be computed: what must be granted before,
//! at the rate that the limits allow. A refusal for want of a place books the next one.

use super::Core;
use super::admit::{Arrival, Shedding};
use crate::config::Bound;
use crate::event::{Reason, Refused};
use crate::fair_queue::fair_part;
use crate::forecast::LONGEST;
use crate::id::{Booking, Class, Flow, GroupId, Section, TargetId};
use crate::job::Job;
use crate::table::Id;
use crate::time::Time;
use std::time::Duration;

/// No client is told to try again sooner than this, however fast jobs are served.
pub(super) const SHORTEST_HINT: Duration = Duration::from_millis(1);

impl<P> Core<P> {
    /// How long an arrival would wait at the place that the policy gives it.
    pub(super) fn expected_wait(&self, arrival: Arrival) -> Duration {
        let ahead = self.jobs_ahead(arrival);
        let wait = self.forecast(arrival.section).wait(ahead as usize);
        wait.unwrap_or(Duration::ZERO)
    }

    /// How many waiting jobs of the same bound and domain would go before an arrival: those of its
    /// own flow, and as many of the others as their weights entitle them to meanwhile.
    fn jobs_ahead(&self, arrival: Arrival) -> u64 {
        let Arrival {
            section, weight, ..
        } = arrival;
        let queue = arrival
            .flow
            .and_then(|flow| self.flows[flow].queue(section));
        let shared = self.shares_bound();
        let state = &self.classes[section];
        if self.config.policy.is_by_arrival() {
            return if shared {
                self.waiting()
            } else {
                state.waiting()
            };
        }
        let own = queue.map_or(0, |queue| state.waiting_in(queue));
        // Start-time fair queueing serves the others by their weights while it serves the flow's
        // own jobs and this one; never more of them than there are.
        let own_weight = if own > 0 { u64::from(weight) } else { 0 };
        let weights = state.weights() - own_weight;
        let others = fair_part(own + 1, weights, u64::from(weight));
        let in_class = own + others.min(state.waiting() - own);
        if !shared {
            return in_class;
        }
        let mut ahead = in_class;
        for class in (0..self.classes.len()).map(Class::from_index) {
            let other = &self.classes[Section { class, ..section }];
            let policy = self.config.policy;
            if class == section.class {
                continue;
            } else if policy.shares(section.class) && policy.shares(class) {
                let (theirs, ours) = (other.config.weight, state.config.weight);
                let part = fair_part(in_class + 1, u64::from(theirs), u64::from(ours));
                ahead += part.min(other.waiting());
            // Waiting jobs of more urgent classes go first in any case; those that arrive later are
            // unknown.
            } else if class < section.class {
                ahead += other.waiting();
            }
        }
        ahead
    }

    pub(super) fn refuse(
        &mut self,
        now: Time,
        job: Job<P>,
        reason: Reason,
        group: Option<GroupId>,
        shedding: Shedding,
    ) -> Refused<P> {
        if job.class.index() < self.classes.len() {
            self.classes.stats_mut(job.class).refused[reason as usize] += 1;
        }
        let section = group.map(|group| self.section(job.class, group));
        // Only a missing place is worth a booking: what else refuses a job is not freed by waiting
        // in line.
        let (retry_after, booking) = match (reason, section) {
            (Reason::Full, Some(section)) => self.retry_when_free(now, &job, section, shedding),
            _ => (self.retry_after(now, &job, reason, group), None),
        };
        Refused {
            reason,
            retry_after: retry_after.map(|after| after.max(SHORTEST_HINT)),
            booking,
            job,
        }
    }

    /// When a job that finds no place should try again, and the place that is booked for it.
    fn retry_when_free(
        &mut self,
        now: Time,
        job: &Job<P>,
        section: Section,
        shedding: Shedding,
    ) -> (Option<Duration>, Option<Booking>) {
        // A caller that only tries does not come back on time; a booking for it would keep a place
        // from those who wait.
        if shedding == Shedding::Never {
            return (Some(self.wait_for_place(now, section, job.flow, 0)), None);
        }
        if let Some(booking) = job.booking {
            if let Some(wait) = self.renew(now, section, job.flow, booking) {
                return (Some(wait), Some(booking));
            }
            // Its time is over or has not come. It is replaced by a new one, or one client could
            // hold many.
            self.forecast_mut(section).release(booking, job.flow);
        }
        let (after, booking) = self.book(now, section, job.flow, 0);
        (Some(after), booking)
    }

    /// When trying again would help, for refusals that book no place.
    fn retry_after(
        &mut self,
        now: Time,
        job: &Job<P>,
        reason: Reason,
        group: Option<GroupId>,
    ) -> Option<Duration> {
        let group = group?;
        let usable = self.targets.usable_at(group).filter(|at| *at < Time::MAX);
        let suspended = usable.map(|at| at.since(now));
        match reason {
            Reason::Suspended => suspended,
            Reason::TargetFull => {
                let target = self.targets.group(group).sole_target()?;
                let after = self.next_grant_at(now, target);
                Some(after.max(suspended.unwrap_or_default()).min(LONGEST))
            }
            Reason::DeadlineUnreachable => {
                let flow = self.flows.find(job.flow);
                let weight = self.config.flow(job.flow).weight;
                let section = self.section(job.class, group);
                let arrival = Arrival {
                    section,
                    group,
                    flow,
                    weight,
                    due: None,
                };
                let wait = self.expected_wait(arrival);
                let budget = job.expire_at.map_or(Duration::ZERO, |at| at.since(now));
                let interval = self.forecast(section).interval().unwrap_or_default();
                Some(wait.saturating_sub(budget).max(interval).min(LONGEST))
            }
            _ => None,
        }
    }

    /// Books the next place that becomes free for a flow, apart from those that are `taken` at
    /// once.
    pub(super) fn book(
        &mut self,
        now: Time,
        section: Section,
        flow: Flow,
        taken: u64,
    ) -> (Duration, Option<Booking>) {
        let wait = self.wait_for_place(now, section, flow, taken);
        let claimant = self.claimant(section, flow);
        self.forecast_mut(section).book(now, &claimant, wait)
    }

    /// How long until a place is free for a flow, apart from those that are `taken` at once.
    pub(super) fn wait_for_place(
        &mut self,
        now: Time,
        section: Section,
        flow: Flow,
        taken: u64,
    ) -> Duration {
        let places = self.config.bound.places();
        self.forecast_mut(section).advance(now, places);
        let free = self.places_free(section).saturating_sub(taken);
        // From here on a place is waited for, so the time until it is freed counts as an interval.
        if free == 0 {
            self.forecast_mut(section).blocked(now);
        }
        let forecast = self.forecast(section);
        let held = |flow| self.held_by(section, flow);
        let holders = match self.config.bound {
            Bound::Shared(_) => self.occupancy.weights(),
            Bound::PerClass(_) => self.classes[section].weights(),
        };
        let ahead = forecast.ahead(&self.claimant(section, flow), holders, held);
        // The measured rate may be higher than what the limits allow from now on; the larger of the
        // two is the honest answer.
        let wait = forecast.next_free(now, ahead, free as usize, places);
        wait.max(self.least_wait(now, (ahead + 1).saturating_sub(free)))
    }

    /// Renews a booking whose holder came in its time and found no place: it keeps its turn.
    fn renew(
        &mut self,
        now: Time,
        section: Section,
        flow: Flow,
        booking: Booking,
    ) -> Option<Duration> {
        let places = self.config.bound.places();
        // Itself is among those that are due.
        let ahead = (self.kept_from(section, flow) as u64).saturating_sub(1);
        let next = self.forecast(section).next_free(now, ahead, 0, places);
        let wait = next.max(self.least_wait(now, ahead + 1));
        let forecast = self.forecast_mut(section);
        forecast.renew(now, booking, flow, wait).then_some(wait)
    }

    /// A wait before which that many places cannot become free: grants are limited by the rate over
    /// everything.
    fn least_wait(&mut self, now: Time, missing: u64) -> Duration {
        self.gate.granted_at(now, missing).since(now).min(LONGEST)
    }

    /// When a target is expected to serve the next job that waits for it, and not before its rates
    /// allow it.
    pub(super) fn next_grant_at(&mut self, now: Time, target: TargetId) -> Duration {
        let over_all = self.gate.granted_at(now, 1).since(now);
        let served = self.targets[target].next_grant(now);
        served.max(over_all).min(LONGEST)
    }
}
