//! Shedding: the job that gives its place up for an arrival.
//!
//! Shedding keeps a full queue open to flows that hold less than their share, in the manner of
//! longest-queue drop. The victim is always the newest job of the flow that holds most for its
//! weight: it has waited least. Nobody is shed for a flow that would then hold as much as the
//! victim's, so two flows never shed each other in turn.

use super::Core;
use super::admit::Arrival;
use super::places::{Claim, Scarce};
use super::predict::SHORTEST_HINT;
use crate::config::Bound;
use crate::event::Event;
use crate::id::{Class, FlowId, JobId, LaneId, QueueId, Section};
use crate::lanes::LaneKey;
use crate::occupancy::Burden;
use crate::table::Id;
use crate::time::Time;

impl<P> Core<P> {
    /// The newest job of the flow that holds most for its weight, if the arrival's flow holds less
    /// than its share and will hold less than that flow: with and without the places that flows are
    /// promised. A flow's bookings come before its other jobs, so they use its share up.
    pub(super) fn victim(&mut self, arrival: Arrival, claim: Claim) -> Option<JobId> {
        let Arrival {
            section, weight, ..
        } = arrival;
        let places = self.config.bound.places() as u64;
        let held = claim.held;
        let is_below_share = |held, places| match self.config.bound {
            Bound::Shared(_) => self.occupancy.is_below_share(held, weight, places),
            Bound::PerClass(_) => self.classes[section].is_below_share(held, weight, places),
        };
        // Judged with and without bookings: promised places must not count against a flow whose
        // holders never come, nor be used twice by one whose holders do.
        if !is_below_share(held, places) || !is_below_share(held + claim.own, places + claim.all) {
            return None;
        }
        let newest = match self.config.bound {
            Bound::Shared(_) => {
                // With one bound over all, a flow holds places in several classes; its newest job
                // over all of them waited least.
                let most = self.flows.largest(&mut self.occupancy)?;
                let queues = self.flows[most].queues().iter();
                let newest = queues.filter_map(|(section, queue)| self.newest(*section, *queue));
                newest.max_by_key(|job| self.jobs[*job].seq())?
            }
            Bound::PerClass(_) => {
                let (_, most) = self.classes[section].largest_queue()?;
                self.newest(section, most)?
            }
        };
        let flow = &self.flows[self.jobs[newest].flow];
        let theirs = self.held_by(section, flow.name());
        let promised = match claim.all {
            0 => 0,
            _ => self.forecast(section).promised(flow.name()),
        };
        let holds_more = |theirs, own| Burden::of(theirs, flow.weight()) > Burden::of(own, weight);
        // The arrival counts as if it had its place already: otherwise two flows with equal burdens
        // would shed each other in turn.
        let is_most =
            holds_more(theirs, held + 1) && holds_more(theirs + promised, held + claim.own + 1);
        is_most.then_some(newest)
    }

    /// With a shared bound: the newest job of the flow that holds most in the least urgent class
    /// that `class` may displace.
    pub(super) fn displaced(&mut self, class: Class) -> Option<JobId> {
        let from = (self.config.classes[class.index()].displaces)?;
        if !self.shares_bound() {
            return None;
        }
        let last = self.classes.len() as u8;
        // From the least urgent class up: bulk work goes before anything more urgent does.
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
        let tails = lanes.filter_map(|lane| self.lanes[*lane].newest());
        tails.max_by_key(|job| self.jobs[*job].seq())
    }

    /// The job that gives its place at a target up for an arrival that only this target can serve:
    /// the newest of the least urgent class that it displaces, or of the lane that holds most of
    /// the places there for its weight. The arrival's flow must hold less than its share, and will
    /// hold less for its weight than the victim's. The place must count towards the arrival's
    /// bound, so that one is given for one.
    pub(super) fn victim_at_target(&self, arrival: Arrival) -> Option<JobId> {
        let class = arrival.section.class;
        let shared = self.shares_bound();
        let lanes = self.lanes.in_group(arrival.group);
        let candidates = || {
            let keyed = lanes.iter().map(|lane| (*lane, self.lanes[*lane].key));
            keyed.filter(move |(_, key)| shared || key.section.class == class)
        };
        let newest = |lane: LaneId| {
            self.lanes[lane]
                .newest()
                .expect("a lane in the list has jobs")
        };
        let seq = |lane: LaneId| self.jobs[newest(lane)].seq();
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
        let length = |lane: LaneId| self.lanes[lane].len();
        let weight = |flow: FlowId| self.flows[flow].weight();
        // Counted over lanes with jobs alone. Lanes of flows that came and went stay in the table,
        // and counting their weights would shrink every share.
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

    pub(super) fn shed(&mut self, now: Time, victim: JobId, scarce: Scarce) {
        let ticket = self.jobs.ticket(victim);
        let section = self.jobs[victim].section();
        let group = self.jobs[victim].group;
        // Asked before the job leaves: afterwards its own place would count as free.
        let (retry_after, booking) = match (scarce, self.targets.group(group).sole_target()) {
            // Places at a target are not booked.
            (Scarce::Target, Some(target)) => (self.next_grant_at(now, target), None),
            // The place that it gives up is taken at once.
            _ => self.book(now, section, self.flows[self.jobs[victim].flow].name(), 1),
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
}
