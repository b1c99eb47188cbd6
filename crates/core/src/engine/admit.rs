//! Which jobs may wait.
//!
//! A bound holds for each class or for all together. When it is reached, an arrival whose flow
//! holds less than its share takes the place of the newest job of the flow that holds most;
//! everyone else is refused and told when to try again.

use super::Core;
use crate::config::{Bound, FlowConfig, OnSuspend, Policy};
use crate::event::{Event, Reason, Refused};
use crate::forecast::{Forecast, LONGEST};
use crate::id::{
    Booking, Class, FlowId, GroupId, JobId, LaneId, QueueId, Section, TargetId, Ticket,
};
use crate::job::Job;
use crate::lanes::LaneKey;
use crate::occupancy::Burden;
use crate::table::Id;
use crate::time::Time;
use std::time::Duration;

/// No client is told to try again sooner than this, however fast jobs are served.
const SHORTEST_HINT: Duration = Duration::from_millis(1);

/// Whether an arrival may take the place of a job that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shedding {
    Allowed,
    Never,
}

/// An arrival that passed every check but that for a place.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    section: Section,
    group: GroupId,
    /// Its flow, if that has a state already: a refused job leaves none behind.
    flow: Option<FlowId>,
    weight: u32,
    /// When it starts, if not now, and whether that is the end of a suspension.
    due: Option<(Time, bool)>,
}

/// How an arrival comes by its place.
#[derive(Clone, Copy, Debug)]
enum Place {
    Free,
    /// This job gives its place up: that of the bound, or that at the target.
    Shed(JobId, Scarce),
}

/// The places that an arrival found taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scarce {
    Bound,
    Target,
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
        let group = match self.find_servers(now, &job) {
            Ok(group) => group,
            Err(reason) => return Err(self.refuse(now, job, reason, None, shedding)),
        };
        let placed = self.check_arrival(now, &job, group).and_then(|arrival| {
            let place = match arrival.due {
                Some(_) => Place::Free,
                None => self.find_place(now, &job, arrival, shedding)?,
            };
            Ok((arrival, place))
        });
        match placed {
            Ok((arrival, place)) => Ok(self.keep(now, job, arrival, place)),
            Err(reason) => {
                let refused = self.refuse(now, job, reason, Some(group), shedding);
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
        if job.key.is_some_and(|key| self.jobs.find(key).is_some()) {
            return Err(Reason::Duplicate);
        }
        let named = self.targets.group_of(job.targets).ok_or(Reason::NoTarget)?;
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

    /// How long an arrival would wait at the place that the policy gives it.
    fn expected_wait(&self, arrival: Arrival) -> Duration {
        let forecast = match self.config.bound {
            Bound::Shared(_) => &self.forecast,
            Bound::PerClass(_) => &self.classes[arrival.section].forecast,
        };
        let ahead = self.jobs_ahead(arrival);
        forecast.wait(ahead as usize).unwrap_or(Duration::ZERO)
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
        if self.config.policy == Policy::Fifo {
            return if shared {
                self.waiting()
            } else {
                state.waiting()
            };
        }
        let own = queue.map_or(0, |queue| state.waiting_in(queue));
        let own_weight = if own > 0 { u64::from(weight) } else { 0 };
        let weights = state.occupancy.weights() - own_weight;
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
            } else if class < section.class {
                ahead += other.waiting();
            }
        }
        ahead
    }

    /// Whether one more job may wait for a target that alone can serve it.
    #[inline(always)]
    pub(super) fn has_room_at_target(&self, group: GroupId) -> bool {
        let target = self.targets.group(group).sole_target();
        target.is_none_or(|target| {
            self.targets[target].waiting < self.config.max_waiting_at_target() as u64
        })
    }

    fn places_taken(&self, section: Section) -> u64 {
        match self.config.bound {
            Bound::Shared(_) => self.occupancy.taken(),
            Bound::PerClass(_) => self.classes[section].waiting(),
        }
    }

    /// Places that no job has; booked ones count as free.
    pub(super) fn places_free(&self, section: Section) -> u64 {
        (self.config.bound.places() as u64).saturating_sub(self.places_taken(section))
    }

    /// More wait than may, after a reload to a smaller bound: nobody is admitted, not even for
    /// another.
    fn is_over_bound(&self, section: Section) -> bool {
        self.places_taken(section) > self.config.bound.places() as u64
    }

    fn forecast(&mut self, section: Section) -> &mut Forecast {
        match self.config.bound {
            Bound::Shared(_) => &mut self.forecast,
            Bound::PerClass(_) => &mut self.classes[section].forecast,
        }
    }

    /// How an arrival comes by a place at its target and under its bound.
    fn find_place(
        &mut self,
        now: Time,
        job: &Job<P>,
        arrival: Arrival,
        shedding: Shedding,
    ) -> Result<Place, Reason> {
        if self.has_room_at_target(arrival.group) {
            let place = self.find_place_in_bound(now, job, arrival, shedding);
            return place.ok_or(Reason::Full);
        }
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
        let kept = self.forecast(section).kept(now, places);
        if let Some(booking) = job.booking {
            let forecast = self.forecast(section);
            let ahead = forecast.ahead_of(now, booking);
            if ahead.is_some_and(|ahead| free > ahead) {
                forecast.release(booking);
                return Some(Place::Free);
            }
        }
        if free > kept {
            return Some(Place::Free);
        }
        if self.is_over_bound(section) || shedding == Shedding::Never {
            return None;
        }
        let victim = self
            .victim(arrival)
            .or_else(|| self.displaced(section.class))?;
        // The places that are left were promised to others: only an arrival that could shed a job
        // may have one.
        Some(match free {
            0 => Place::Shed(victim, Scarce::Bound),
            _ => Place::Free,
        })
    }

    /// The newest job of the flow that holds most for its weight, if the arrival's flow holds less
    /// than its share and will hold less than that flow.
    fn victim(&mut self, arrival: Arrival) -> Option<JobId> {
        let Arrival {
            section,
            flow,
            weight,
            ..
        } = arrival;
        let places = self.config.bound.places() as u64;
        match self.config.bound {
            Bound::Shared(_) => {
                let held = flow.map_or(0, |flow| self.flows[flow].holder.held());
                if !self.occupancy.is_below_share(held, weight, places) {
                    return None;
                }
                let (burden, most) = self
                    .occupancy
                    .largest(&self.flows.table, |flow| flow.holder)?;
                let queues = self.flows[most].queues();
                let newest = queues
                    .iter()
                    .filter_map(|(section, queue)| self.newest(*section, *queue));
                let newest = newest.max_by_key(|job| self.jobs[*job].seq);
                newest.filter(|_| burden > Burden::of(held + 1, weight))
            }
            Bound::PerClass(_) => {
                let queue = flow.and_then(|flow| self.flows[flow].queue(section));
                let state = &mut self.classes[section];
                let held = queue.map_or(0, |queue| state.waiting_in(queue));
                if !state.occupancy.is_below_share(held, weight, places) {
                    return None;
                }
                let (burden, most) = state.largest_queue()?;
                let newest = self.newest(section, most);
                newest.filter(|_| burden > Burden::of(held + 1, weight))
            }
        }
    }

    /// With a shared bound: the newest job of the flow that holds most in the least urgent class
    /// that `class` may displace.
    fn displaced(&mut self, class: Class) -> Option<JobId> {
        let from = (self.config.classes[class.index()].displaces)?;
        if !self.shares_bound() {
            return None;
        }
        let last = self.classes.len() as u8;
        let (section, queue) = (from.0..last).rev().find_map(|class| {
            let states = self.classes.everywhere_mut(Class(class));
            let largest = states.filter_map(|state| {
                let (burden, queue) = state.largest_queue()?;
                Some((burden, state.section, queue))
            });
            let (_, section, queue) = largest.max_by_key(|(burden, ..)| *burden)?;
            Some((section, queue))
        })?;
        self.newest(section, queue)
    }

    /// The newest job of a flow queue.
    fn newest(&self, section: Section, queue: QueueId) -> Option<JobId> {
        let lanes = self.classes[section].queue(queue).lanes().iter();
        let tails = lanes.filter_map(|lane| self.lanes[*lane].jobs.tail);
        tails.max_by_key(|job| self.jobs[*job].seq)
    }

    /// The job that gives its place at a target up for an arrival that only this target can serve:
    /// the newest of the least urgent class that it displaces, or of the lane that holds most of
    /// the places there for its weight. The arrival's flow must hold less than its share, and will
    /// hold less for its weight than the victim's. The place must count towards the arrival's
    /// bound, so that one is given for one.
    fn victim_at_target(&self, arrival: Arrival) -> Option<JobId> {
        let class = arrival.section.class;
        let shared = self.shares_bound();
        let lanes = self.lanes.in_group(arrival.group);
        let candidates = || {
            let keyed = lanes.iter().map(|lane| (*lane, self.lanes[*lane].key));
            keyed.filter(move |(_, key)| shared || key.section.class == class)
        };
        let newest = |lane: LaneId| {
            self.lanes[lane]
                .jobs
                .tail
                .expect("a lane in the list has jobs")
        };
        let seq = |lane: LaneId| self.jobs[newest(lane)].seq;
        let displaces = self.config.classes[class.index()]
            .displaces
            .filter(|_| shared);
        if let Some(from) = displaces {
            let displaced = candidates().filter(|(_, key)| key.section.class >= from);
            let last = displaced.max_by_key(|(lane, key)| (key.section.class, seq(*lane)));
            if let Some((lane, _)) = last {
                return Some(newest(lane));
            }
        }
        let length = |lane: LaneId| u64::from(self.lanes[lane].jobs.len);
        let weight = |flow: FlowId| self.flows[flow].weight();
        let (mut own, mut weights) = (0, 0);
        for (lane, key) in candidates() {
            weights += u64::from(weight(key.flow));
            if arrival.flow == Some(key.flow) {
                own += length(lane);
            }
        }
        if own == 0 {
            weights += u64::from(arrival.weight);
        }
        // A flow that holds its share of the places already is refused after this one look.
        let places = self.config.max_waiting_at_target() as u128;
        if u128::from(own) * u128::from(weights) >= places * u128::from(arrival.weight) {
            return None;
        }
        let burden = |(lane, key): &(LaneId, LaneKey)| {
            (Burden::of(length(*lane), weight(key.flow)), seq(*lane))
        };
        let (lane, LaneKey { flow, .. }) = candidates().max_by_key(burden)?;
        let theirs = candidates().filter(|(_, key)| key.flow == flow);
        let held = theirs.map(|(lane, _)| length(lane)).sum();
        let most = Burden::of(held, weight(flow));
        (most > Burden::of(own + 1, arrival.weight)).then(|| newest(lane))
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

    fn add_flow(&mut self, now: Time, name: crate::id::Flow) -> FlowId {
        if self.flows.wants_sweep() {
            self.sweep_flows(now);
        }
        self.flows.insert(name, self.config.flow(name), now)
    }

    /// Forgets flows that have no jobs and whose rates are full. Their debt is remembered.
    fn sweep_flows(&mut self, now: Time) {
        for flow in self.flows.table.ids() {
            let state = &mut self.flows[flow];
            if state.holder.held() > 0 || state.delayed > 0 || !state.gate.is_fresh(now) {
                continue;
            }
            if let Some(timer) = state.timer.take() {
                self.timers.cancel(timer);
            }
            let (name, queues) = (state.name(), state.queues().clone());
            for (section, queue) in queues {
                self.classes.requeue(section, queue, true);
                let queue = self.classes[section].remove_queue(queue, name);
                for lane in queue.lanes() {
                    self.lanes.remove(*lane);
                }
            }
            self.occupancy.forget(flow);
            self.flows.remove(flow);
        }
        self.flows.swept();
    }

    fn shed(&mut self, now: Time, victim: JobId, scarce: Scarce) {
        let ticket = self.jobs.ticket(victim);
        let section = self.jobs[victim].section();
        let group = self.jobs[victim].group;
        let (retry_after, booking) = match (scarce, self.targets.group(group).sole_target()) {
            // Places at a target are not booked.
            (Scarce::Target, Some(target)) => (self.next_grant_at(now, target), None),
            // The place that it gives up is taken at once.
            _ => self.book(now, section, 1),
        };
        let job = self.end_unleased(now, victim);
        self.classes.stats_mut(section.class).ended.shed += 1;
        self.events.push_back(Event::Shed {
            ticket,
            job,
            retry_after: Some(retry_after.max(SHORTEST_HINT)),
            booking,
        });
    }

    /// Books the next place that becomes free, apart from those that are `taken` at once.
    fn book(&mut self, now: Time, section: Section, taken: u64) -> (Duration, Option<Booking>) {
        let (free, places) = (self.places_free(section), self.config.bound.places());
        let free = free.saturating_sub(taken) as usize;
        let least = self.least_wait(now, section, free as u64);
        (self.forecast(section)).book_after(now, least, free, places)
    }

    /// A wait that no place can become free before: grants are limited by the rate over everything.
    fn least_wait(&mut self, now: Time, section: Section, free: u64) -> Duration {
        let claims = self.forecast(section).expected_claims();
        let missing = (claims + 1).saturating_sub(free);
        self.gate.granted_at(now, missing).since(now).min(LONGEST)
    }

    fn refuse(
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
        let (retry_after, booking) = match (reason, section) {
            (Reason::Full, Some(section)) => {
                if let Some(booking) = job.booking {
                    self.forecast(section).release(booking);
                }
                match shedding {
                    Shedding::Allowed => {
                        let (after, booking) = self.book(now, section, 0);
                        (Some(after), booking)
                    }
                    Shedding::Never => (Some(self.next_place(now, section)), None),
                }
            }
            _ => (self.retry_after(now, &job, reason, group), None),
        };
        Refused {
            reason,
            retry_after: retry_after.map(|after| after.max(SHORTEST_HINT)),
            booking,
            job,
        }
    }

    /// When a target is expected to serve the next job that waits for it, and not before its rates
    /// allow it.
    fn next_grant_at(&mut self, now: Time, target: TargetId) -> Duration {
        let over_all = self.gate.granted_at(now, 1).since(now);
        let target = &mut self.targets[target];
        let rate = target.gate.granted_at(now, 1).since(now);
        let served = target.drain.next_grant(now);
        served.max(rate).max(over_all).min(LONGEST)
    }

    fn next_place(&mut self, now: Time, section: Section) -> Duration {
        let (free, places) = (self.places_free(section), self.config.bound.places());
        let least = self.least_wait(now, section, free);
        let next = self.forecast(section).next_free(now, free as usize, places);
        next.max(least)
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
}

/// How many jobs a competitor of weight `theirs` is served while one of weight `ours` is served
/// `turns`.
fn fair_part(turns: u64, theirs: u64, ours: u64) -> u64 {
    let part = u128::from(turns) * u128::from(theirs) / u128::from(ours.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
