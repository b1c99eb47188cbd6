//! The next job: class by policy, flow by tag, lane by age of its head, target by load.
//!
//! A choice walks down in policy order. What it finds shut it parks, so that no later choice looks at it again until its
//! gate may have opened; the first job that may go is leased.

use super::Core;
use super::parts::{Lane, NIL, State};
use super::tags::{Pace, Rank, Tag};
use crate::config::Policy;
use crate::gate::Pass;
use crate::id::{Class, Cost, TargetId, Ticket};
use crate::job::Lease;
use crate::target::TargetState;
use crate::time::Time;

/// How many of a class's oldest lanes are looked at for aging.
const AGING_LOOKS: usize = 64;

/// An aged job may be one grant in so many.
const AGING_TURN: u32 = 4;

/// What looking at one lane came to.
enum Look {
    /// Its head may go, to that target.
    Go(u32),
    /// Its flow's gate is shut.
    FlowShut(Option<Time>),
    /// Every target is shut.
    Shut,
    /// Only cost is missing at that target, until then.
    Short(u32, Time),
    /// Only cost is missing in the bucket over everything, until then.
    Hold(Time),
}

/// What one step of the choice came to.
enum Step {
    Go(u32, u32),
    Again,
    Hold(Time),
}

impl<P> Core<P> {
    pub(super) fn choose(&mut self, now: Time) -> Option<Lease<P>> {
        self.gate_at = None;
        if self.paused || self.waiting == 0 {
            return None;
        }
        if let Some(shut) = self.gate.shut(now) {
            if let Pass::Shut(at) = shut {
                self.gate_at = at;
            }
            return None;
        }
        loop {
            let class = self.pick_class()?;
            match self.step(now, class) {
                Step::Go(lane, target) => {
                    let aged = self.aged(now);
                    let (lane, target) = aged.unwrap_or((lane, target));
                    return Some(self.grant(now, lane, target, aged.is_some()));
                }
                Step::Again => {}
                Step::Hold(at) => {
                    self.gate_at = Some(at);
                    return None;
                }
            }
        }
    }

    /// The class whose turn it is, among those that may have an open lane.
    fn pick_class(&self) -> Option<Class> {
        if self.live == 0 {
            return None;
        }
        let first = Class(self.live.trailing_zeros() as u8);
        match self.config.policy {
            Policy::Strict => Some(first),
            Policy::Hybrid if first == Class(0) => Some(first),
            Policy::Wfq | Policy::Hybrid => {
                let first = (self.class_tag(first), first);
                let least = self.live_classes().skip(1).fold(first, |least, class| {
                    let tag = self.class_tag(class);
                    if tag < least.0 { (tag, class) } else { least }
                });
                Some(least.1)
            }
            Policy::Fifo => self.live_classes().min_by_key(|class| {
                let state = &self.classes[class.index()];
                let oldest = |top: Option<(Rank, u32)>| top.map_or(u64::MAX, |(rank, _)| rank.seq);
                oldest(state.ready.top()).min(oldest(state.bays.top()))
            }),
        }
    }

    fn live_classes(&self) -> impl Iterator<Item = Class> {
        let mut live = self.live;
        std::iter::from_fn(move || {
            (live != 0).then(|| {
                let class = Class(live.trailing_zeros() as u8);
                live &= live - 1;
                class
            })
        })
    }

    fn class_tag(&self, class: Class) -> Tag {
        self.tags[class.index()].max(self.clock)
    }

    /// Looks at the first of a class: grants it, or moves what is in the way.
    fn step(&mut self, now: Time, class: Class) -> Step {
        let state = &self.classes[class.index()];
        let ready = state.ready.top();
        if let Some((stored, bay)) = state.bays.top()
            && ready.is_none_or(|(rank, _)| stored < rank)
        {
            if !self.is_open(now, bay) {
                self.close_bay(bay);
                return Step::Again;
            }
            match self.best_parked(bay, class) {
                Some((rank, lane)) if rank == stored => self.promote(lane),
                _ => {}
            }
            self.rank_bay(bay, class);
            return Step::Again;
        }
        let Some((_, queue)) = ready else {
            self.class_changed(class);
            return Step::Again;
        };
        let (_, lane) = self.queues[queue]
            .open
            .top()
            .expect("a ready queue has an open lane");
        match self.look(now, lane) {
            Look::Go(target) => return Step::Go(lane, target),
            Look::Hold(at) => return Step::Hold(at),
            Look::FlowShut(until) => {
                let flow = self.queues[queue].flow;
                self.park_flow(flow, until);
            }
            Look::Shut => self.park(lane),
            Look::Short(target, at) => self.save(lane, target, at),
        }
        Step::Again
    }

    /// Whether a lane's head may go, and where.
    #[inline(always)]
    fn look(&mut self, now: Time, lane: u32) -> Look {
        let Lane {
            queue,
            bay,
            alone,
            head,
            ..
        } = self.lanes[lane];
        let (cost, prepaid) = (self.jobs[head].cost, self.jobs[head].prepaid);
        let gate = &mut self.flows[self.queues[queue].flow].gate;
        match gate.pass(now, cost) {
            Pass::Shut(until) => return Look::FlowShut(until),
            Pass::Short(at) if !prepaid => return Look::FlowShut(Some(at)),
            Pass::Short(_) | Pass::Open => {}
        }
        if alone != NIL {
            return match self.targets[alone as usize].pass(now, cost) {
                Pass::Open => self.look_over_all(now, cost, prepaid, alone),
                Pass::Short(at) => Look::Short(alone, at),
                Pass::Shut(at) => {
                    if let Some(at) = at {
                        self.arm_target(alone, at);
                    }
                    Look::Shut
                }
            };
        }
        let mut best = None;
        let mut short: Option<(Time, u32)> = None;
        for &target in &self.bays[bay as usize].targets {
            let state = &mut self.targets[target as usize];
            match state.pass(now, cost) {
                Pass::Open => {
                    let load = state.load();
                    if best.is_none_or(|(least, _)| load < least) {
                        best = Some((load, target));
                    }
                }
                Pass::Short(at) => {
                    short = Some(short.map_or((at, target), |short| short.min((at, target))));
                }
                Pass::Shut(_) => {}
            }
        }
        if let Some((_, target)) = best {
            return self.look_over_all(now, cost, prepaid, target);
        }
        if let Some((at, target)) = short {
            return Look::Short(target, at);
        }
        // Not open: this sets the timers of those targets that open by themselves.
        self.is_open(now, bay);
        Look::Shut
    }

    /// Whether the bucket over everything has enough for a job that a target would serve.
    #[inline]
    fn look_over_all(&mut self, now: Time, cost: Cost, prepaid: bool, target: u32) -> Look {
        match self.gate.short(now, cost) {
            Some(at) if !prepaid => Look::Hold(at),
            _ => Look::Go(target),
        }
    }

    /// Something may be granted: the oldest lane head that waited too long goes instead, if it is an aged job's turn.
    #[inline]
    fn aged(&mut self, now: Time) -> Option<(u32, u32)> {
        if self.aging == 0 || self.since_aged + 1 < AGING_TURN {
            return None;
        }
        self.oldest_aged(now)
    }

    #[inline(never)]
    fn oldest_aged(&mut self, now: Time) -> Option<(u32, u32)> {
        let mut oldest: Option<((Time, u64), u32, u32)> = None;
        for class in 0..self.classes.len() {
            let Some(limit) = self.classes[class].config.aging else {
                continue;
            };
            for index in 0..AGING_LOOKS {
                let Some((age, lane)) = self.classes[class].ages.get(index) else {
                    break;
                };
                if now.since(age.0) <= limit || oldest.is_some_and(|(least, ..)| least < age) {
                    continue;
                }
                let flow = self.queues[self.lanes[lane].queue].flow;
                if self.flows[flow].parked {
                    continue;
                }
                if let Look::Go(target) = self.look(now, lane) {
                    oldest = Some((age, lane, target));
                }
            }
        }
        oldest.map(|(_, lane, target)| (lane, target))
    }

    /// Leases the head of a lane.
    #[inline(always)]
    fn grant(&mut self, now: Time, lane: u32, target: u32, aged: bool) -> Lease<P> {
        let Lane {
            queue, head: slot, ..
        } = self.lanes[lane];
        let entry = &mut self.jobs[slot];
        let (class, flow, cost) = (entry.class, entry.flow, entry.cost);
        let charge = (!entry.prepaid).then_some(cost);
        entry.state = State::Running { target };
        entry.used += 1;
        let far = &mut self.targets[target as usize];
        far.gate.enter(now, Some(cost));
        far.granted += 1;
        if far.state == TargetState::Probation {
            far.seldom.probe = true;
            entry.probing = true;
        }
        self.gate.enter(now, charge);
        let holder = &mut self.flows[flow];
        holder.gate.enter(now, charge);
        let lease = Lease {
            ticket: Ticket {
                slot,
                serial: entry.serial,
            },
            target: TargetId(target),
            class,
            flow: holder.id,
            cost,
            attempt: entry.used,
            waited: now.since(entry.since),
            aged,
            payload: entry.payload.take().expect("a waiting job has its payload"),
        };
        let pace = holder.pace;
        let waited = now.as_nanos().saturating_sub(entry.since.as_nanos());
        self.charge(queue, class, pace, charge, cost, aged);
        self.running += 1;
        self.since_aged = match aged {
            true => 0,
            false => (self.since_aged + 1).min(AGING_TURN),
        };
        let stats = &mut self.classes[class.index()].stats;
        stats.granted += 1;
        stats.waits.record_nanos(waited);
        self.dequeue(now, slot);
        self.fetch_next(class);
        if aged {
            self.classes[class.index()].stats.aged += 1;
            // Its lane may have been parked: then only this moves its queue.
            self.queue_changed(queue);
        }
        lease
    }

    /// Moves the tags of a queue and its class on by what was granted, and the clocks to where they stood. A job that
    /// went out of turn moves no clock: the others would lose what they are owed.
    #[inline]
    fn charge(
        &mut self,
        queue: u32,
        class: Class,
        pace: Pace,
        charge: Option<Cost>,
        cost: Cost,
        out_of_turn: bool,
    ) {
        let queue = &mut self.queues[queue];
        let state = &mut self.classes[class.index()];
        queue.owed.enter(cost);
        state.owed.enter(cost);
        let Some(charge) = charge else { return };
        state.stats.charged += charge.0;
        if self.config.policy == Policy::Fifo {
            return;
        }
        let start = queue.tag.max(state.clock);
        queue.tag = start + queue.owed.pay(pace.span(charge));
        if !out_of_turn {
            state.clock = start;
        }
        if self.config.policy.shares(class) {
            let tag = &mut self.tags[class.index()];
            let start = (*tag).max(self.clock);
            *tag = start + state.owed.pay(state.pace.span(charge));
            if !out_of_turn {
                self.clock = start;
            }
        }
    }
}
