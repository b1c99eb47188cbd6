//! The next job: domain and class by policy, flow by start tag, lane by the age of its head, target
//! by load.
//!
//! A selection walks down in policy order. A lane that cannot go is taken out of the order until
//! its gate may have opened, so that no later selection looks at it again; the first that can go is
//! leased.

use super::Core;
use crate::aging::Blocker;
use crate::classes::ClassState;
use crate::config::Policy;
use crate::gate::Pass;
use crate::id::{Class, Domain, JobId, LaneId, Section, TargetId};
use crate::job::Lease;
use crate::lanes::LaneKey;
use crate::time::Time;

/// At most one grant in this many is an aged one.
const AGED_TURN: u32 = 4;

/// The result of trying a lane.
#[derive(Clone, Copy, Debug)]
enum Fit {
    /// Its head may go to that target.
    Go(TargetId),
    /// Its flow's gate is shut, until then or until a job of the flow ends.
    FlowShut(Option<Time>),
    /// Every target is shut.
    TargetsShut,
    /// Only cost is missing at that target, until then.
    Short(TargetId, Time),
    /// Only cost is missing in the bucket over everything, until then.
    AllShort(Time),
}

/// A job that may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected {
    lane: LaneId,
    target: TargetId,
    aged: bool,
}

impl<P> Core<P> {
    pub(super) fn select(&mut self, now: Time) -> Option<Selected> {
        self.gate_opens_at = None;
        if self.paused || self.limits_have_ended() || self.waiting() == 0 {
            return None;
        }
        // Asked before any lane is: while this gate is shut no lane can go, and trying them would
        // only block them one by one.
        if let Pass::Shut(at) = self.gate.pass_any(now) {
            self.gate_opens_at = at;
            return None;
        }
        loop {
            let section = self.first_section()?;
            // A stored rank was outdated or a group has shut. Each round moves a lane or closes a
            // group, so the loop ends.
            let Some(lane) = self.first_lane(now, section) else {
                continue;
            };
            match self.try_lane(now, lane) {
                Fit::Go(target) => {
                    let selected = Selected {
                        lane,
                        target,
                        aged: false,
                    };
                    // Aging comes only after the policy found a job: a job that ages changes who
                    // goes, never whether anybody does.
                    return Some(self.select_aged(now).unwrap_or(selected));
                }
                // All of the flow leaves the order, not this lane alone: its other lanes draw on
                // the same gate and would be tried in vain.
                Fit::FlowShut(until) => self.block_flow(self.lanes[lane].key.flow, until),
                Fit::TargetsShut => self.block_lane(lane),
                // Without a reservation, small jobs would empty the bucket for ever and the large
                // one would starve.
                Fit::Short(target, at) => self.reserve(target, lane, at),
                // The bucket over everything is reserved for this job: all others draw on it too.
                Fit::AllShort(at) => {
                    self.gate_opens_at = Some(at);
                    return None;
                }
            }
        }
    }

    /// The section that the policy serves next, among those that may have a lane to serve.
    fn first_section(&self) -> Option<Section> {
        if self.blocked.is_empty() {
            return self.classes.first(ClassState::oldest_ready);
        }
        self.classes.first(|class| {
            // A section takes part with its best candidate, ready or blocked: a lane of an open
            // group may be the one that the policy wants next.
            let ready = class.oldest_ready();
            let blocked = self.blocked.first(class.section).map(|(rank, _)| rank.tie);
            ready.into_iter().chain(blocked).min()
        })
    }

    /// The lane that a section serves next. `None` if something was in the way and has been moved:
    /// the caller asks again.
    fn first_lane(&mut self, now: Time, section: Section) -> Option<LaneId> {
        let ready = self.classes[section].first_lane();
        let Some((stored, group)) = self.blocked.first(section) else {
            return ready.map(|(_, lane)| lane);
        };
        if let Some((_, lane)) = ready.filter(|(rank, _)| *rank <= stored) {
            return Some(lane);
        }
        // The group was opened because one of its targets might serve. Whether one does is found
        // out only now, when its first lane is about to be chosen.
        if !self.is_open(now, group) {
            self.blocked.set_open(group, false);
            return None;
        }
        // The stored rank may be outdated, but only too early: the lane moves back if it is.
        let (_, lane) = self.blocked.first_lane(group, section.class)?;
        let rank = self.rank(lane);
        if rank > stored {
            self.blocked.rerank(lane, group, section, rank);
        } else {
            self.unblock_lane(lane);
        }
        None
    }

    /// The key and the head of a lane in the order.
    #[inline]
    fn head_of(&self, lane: LaneId) -> (LaneKey, JobId) {
        let lane = &self.lanes[lane];
        (lane.key, lane.head().expect("a lane in the order has jobs"))
    }

    /// Whether a lane's head may go, and where.
    fn try_lane(&mut self, now: Time, lane: LaneId) -> Fit {
        let (key, head) = self.head_of(lane);
        let cost = self.jobs[head].cost;
        // The flow before the targets: it is one gate, and a flow that is shut makes every target
        // of the group pointless to ask.
        match self.flows[key.flow].gate.pass(now, cost) {
            Pass::Open => {}
            Pass::Shut(until) => return Fit::FlowShut(until),
            Pass::Short(at) => return Fit::FlowShut(Some(at)),
        }
        let mut best: Option<((u64, u64), TargetId)> = None;
        let mut short: Option<(Time, TargetId)> = None;
        let count = match key.sole_target {
            Some(_) => 1,
            None => self.targets.group(key.group).targets().len(),
        };
        for index in 0..count {
            let nth = || self.targets.group(key.group).targets()[index];
            let target = key.sole_target.unwrap_or_else(nth);
            let state = &mut self.targets[target];
            let pass = state.pass(now, cost);
            // Where there is no choice, the division can be saved.
            let load = if count > 1 { state.load() } else { (0, 0) };
            // A reservation holds against those that come after it in policy order, and nobody
            // else.
            let reserved = state.reserved_for.filter(|other| *other != lane);
            match pass {
                _ if reserved.is_some_and(|other| self.precedes(other, lane)) => {}
                Pass::Open if best.is_none_or(|(least, _)| load < least) => {
                    best = Some((load, target));
                }
                Pass::Short(at) if short.is_none_or(|short| (at, target) < short) => {
                    short = Some((at, target));
                }
                _ => {}
            }
        }
        if best.is_none() {
            // Others of its targets may open by time alone, and sooner than there is enough in a
            // bucket.
            let group = key.group;
            self.arm_targets(now, group);
        }
        match (best, short) {
            // The bucket over everything is looked at last: a job that no target would take must
            // not reserve it against all others.
            (Some((_, target)), _) => match self.gate.short_until(now, cost) {
                Some(at) => Fit::AllShort(at),
                None => Fit::Go(target),
            },
            (None, Some((at, target))) => Fit::Short(target, at),
            (None, None) => Fit::TargetsShut,
        }
    }

    /// Whether one lane's head comes before another's in policy order.
    fn precedes(&self, one: LaneId, other: LaneId) -> bool {
        // The order in which a selection would come to the two heads: class first, then flow.
        let order = |lane: LaneId| {
            let (section, rank) = (self.lanes[lane].key.section, self.rank(lane));
            match self.config.policy {
                Policy::Fifo => (rank, rank),
                Policy::Strict | Policy::Wfq | Policy::Hybrid => {
                    (self.classes.rank_of(section, rank.tie), rank)
                }
            }
        };
        order(one) < order(other)
    }

    /// Something may be granted: the oldest lane head that waited too long goes instead, if it is
    /// an aged job's turn.
    fn select_aged(&mut self, now: Time) -> Option<Selected> {
        if !self.has_aging() || self.since_aged + 1 < AGED_TURN {
            return None;
        }
        let classes = self.classes.len();
        let sections = (0..self.classes.domains() * classes).map(|index| Section {
            domain: Domain((index / classes) as u16),
            class: Class((index % classes) as u8),
        });
        let oldest = sections.filter_map(|section| self.oldest_aged(now, section));
        let (_, lane, target) = oldest.min_by_key(|(age, ..)| *age)?;
        Some(Selected {
            lane,
            target,
            aged: true,
        })
    }

    /// The oldest head of a section that waited too long and whose gates are open. Blocked lanes
    /// are set aside.
    fn oldest_aged(
        &mut self,
        now: Time,
        section: Section,
    ) -> Option<(crate::aging::Age, LaneId, TargetId)> {
        // Lanes are tried oldest first and set aside when blocked, so that a search costs one step
        // per lane that changed since the last one.
        let limit = self.classes[section].config.aging?;
        loop {
            let (age, lane) = self.classes[section].aging.as_ref()?.oldest()?;
            if now.since(age.0) <= limit {
                return None;
            }
            let key = self.lanes[lane].key;
            let blocker = match self.try_lane(now, lane) {
                Fit::Go(target) => return Some((age, lane, target)),
                // The bucket over everything is short for this job. It keeps its age, and the
                // policy decides who waits for the bucket.
                Fit::AllShort(_) => return None,
                Fit::FlowShut(until) => {
                    if let Some(at) = until.filter(|_| !self.flows[key.flow].is_blocked()) {
                        self.arm_flow(key.flow, at);
                    }
                    Blocker::Flow(key.flow)
                }
                Fit::TargetsShut => Blocker::Group(key.group),
                Fit::Short(target, at) => {
                    self.arm_target(target, at);
                    Blocker::Group(key.group)
                }
            };
            self.classes[section]
                .aging
                .as_mut()?
                .set_aside(lane, blocker);
        }
    }

    /// Leases the head of a lane.
    pub(super) fn grant(&mut self, now: Time, selected: Selected) -> Lease<P> {
        let Selected { lane, target, aged } = selected;
        let (key, job) = self.head_of(lane);
        // The grant draws on the bucket and may shut the gate of the flow: either way, what the
        // reservations stood for may not hold any more.
        self.unreserve(target);
        self.reconsider_reservations(key.flow);
        self.disarm_job(job);
        let cost = self.jobs[job].cost;
        let probing = self.targets[target].grant(now, cost);
        self.gate.enter(now, cost);
        self.flows[key.flow].gate.enter(now, cost);
        // An aged job pays like any other, but does not move the clock: those that it passed lose
        // nothing.
        self.classes.charge(key.section, key.queue, cost, !aged);
        self.take_from_lane(now, lane, job, true);
        self.running += 1;
        self.since_aged = if aged {
            0
        } else {
            (self.since_aged + 1).min(AGED_TURN)
        };
        let entry = &mut self.jobs[job];
        let (attempt, waited, payload) = entry.begin(now, target, probing);
        let lease = Lease {
            ticket: entry.ticket(job),
            target,
            class: key.section.class,
            flow: self.flows[key.flow].name(),
            cost,
            attempt,
            waited,
            aged,
            payload,
        };
        let stats = self.classes.stats_mut(key.section.class);
        stats.granted += 1;
        stats.charged = stats.charged.saturating_add(cost.0);
        stats.aged += u64::from(aged);
        stats.waits.record(waited);
        lease
    }
}
