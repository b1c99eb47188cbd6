//! Lanes whose gates are shut, and gates that open.
//!
//! A lane whose targets are all shut is parked in its bay, a flow whose gate is shut is parked whole. A gate that
//! opens does not wake them all: its bay joins the choice with the rank of its best lane, and lanes leave it one
//! by one, in policy order, for as long as it stays open.

use super::Core;
use super::parts::{Lane, NIL, Parked, Place};
use super::tags::Rank;
use crate::gate::Pass;
use crate::heap::NOWHERE;
use crate::id::Class;
use crate::time::Time;

impl<P> Core<P> {
    /// Parks an open lane in its bay: every target of it is shut.
    pub(super) fn park(&mut self, lane: u32) {
        let Lane { queue, bay, .. } = self.lanes[lane];
        self.close_bay(bay);
        let lane_at = &mut self.lane_at;
        self.queues[queue]
            .open
            .remove(lane_at[lane as usize], |lane, at| {
                lane_at[lane as usize] = at;
            });
        self.queue_changed(queue);
        self.park_by_tag(lane);
    }

    /// Puts a lane that is in no heap into the right one of its bay.
    fn park_by_tag(&mut self, lane: u32) {
        let Lane {
            queue, bay, head, ..
        } = self.lanes[lane];
        let class = self.queues[queue].class;
        let rank = Rank::new(self.effective_tag(queue), self.jobs[head].seq);
        let behind = rank.tag() <= self.classes[class.index()].clock;
        let count = self.classes.len();
        let bay = &mut self.bays[bay as usize];
        if bay.parked.len() < count {
            bay.parked.resize_with(count, Parked::default);
        }
        bay.parked_classes |= 1 << class.0;
        self.parked += 1;
        let parked = &mut bay.parked[class.index()];
        self.lanes[lane].place = if behind { Place::Behind } else { Place::Ahead };
        let lane_at = &mut self.lane_at;
        let place = |lane: u32, at: u32| lane_at[lane as usize] = at;
        if behind {
            parked.behind.push(rank.seq, lane, place);
        } else {
            parked.ahead.push(rank, lane, place);
        }
    }

    /// Takes a lane out of its bay's heaps.
    fn unpark(&mut self, lane: u32) {
        let Lane {
            queue, bay, place, ..
        } = self.lanes[lane];
        let class = self.queues[queue].class;
        let bay = &mut self.bays[bay as usize];
        let parked = &mut bay.parked[class.index()];
        let lane_at = &mut self.lane_at;
        let at = lane_at[lane as usize];
        let set = |lane: u32, at: u32| lane_at[lane as usize] = at;
        match place {
            Place::Behind => parked.behind.remove(at, set),
            _ => parked.ahead.remove(at, set),
        }
        if parked.behind.is_empty() && parked.ahead.is_empty() {
            bay.parked_classes &= !(1 << class.0);
        }
        self.lanes[lane].place = Place::Empty;
        self.parked -= 1;
    }

    /// A parked lane's head or tag changed.
    pub(super) fn parked_head_changed(&mut self, lane: u32) {
        self.unpark(lane);
        let Lane {
            queue, bay, head, ..
        } = self.lanes[lane];
        if head != NIL {
            self.park_by_tag(lane);
        }
        if self.bays[bay as usize].open {
            let class = self.queues[queue].class;
            self.rank_bay(bay, class);
        }
    }

    /// Lets the best lane of a bay take part in the choice.
    pub(super) fn promote(&mut self, lane: u32) {
        let Lane { queue, head, .. } = self.lanes[lane];
        self.unpark(lane);
        self.lanes[lane].place = Place::Open;
        let seq = self.jobs[head].seq;
        let lane_at = &mut self.lane_at;
        self.queues[queue]
            .open
            .push(seq, lane, |lane, at| lane_at[lane as usize] = at);
        self.queue_changed(queue);
    }

    /// The best parked lane of a bay and class. Lanes whose tag moved, or was passed by the clock, are put right
    /// on the way.
    pub(super) fn best_parked(&mut self, bay: u32, class: Class) -> Option<(Rank, u32)> {
        loop {
            let parked = self.bays[bay as usize].parked.get(class.index())?;
            let ahead = parked.ahead.top();
            let (stored, lane, was) = match parked.behind.top() {
                _ if ahead
                    .is_some_and(|(rank, _)| rank.tag() <= self.classes[class.index()].clock) =>
                {
                    let (rank, lane) = ahead.expect("just seen");
                    (rank, lane, Place::Ahead)
                }
                Some((seq, lane)) => (
                    Rank::new(self.classes[class.index()].clock, seq),
                    lane,
                    Place::Behind,
                ),
                None => {
                    let (rank, lane) = ahead?;
                    (rank, lane, Place::Ahead)
                }
            };
            let rank = self.rank(lane);
            let belongs = if rank.tag() <= self.classes[class.index()].clock {
                Place::Behind
            } else {
                Place::Ahead
            };
            if belongs == was && (was == Place::Behind || rank == stored) {
                return Some((rank, lane));
            }
            self.unpark(lane);
            self.park_by_tag(lane);
        }
    }

    /// Puts an open bay where it belongs among a class's bays.
    pub(super) fn rank_bay(&mut self, bay: u32, class: Class) {
        let best = self.best_parked(bay, class);
        let bays = &mut self.bays;
        let Some(at) = bays[bay as usize]
            .parked
            .get(class.index())
            .map(|parked| parked.at)
        else {
            return;
        };
        let place = |bay: u32, at: u32| bays[bay as usize].parked[class.index()].at = at;
        let heap = &mut self.classes[class.index()].bays;
        match best {
            Some((rank, _)) if at == NOWHERE => heap.push(rank, bay, place),
            Some((rank, _)) => heap.rekey(at, rank, place),
            None if at == NOWHERE => {}
            None => heap.remove(at, place),
        }
        self.class_changed(class);
    }

    /// A target of the bay may have opened: its parked lanes join the choice.
    fn open_bay(&mut self, bay: u32) {
        let state = &mut self.bays[bay as usize];
        if state.open || state.parked_classes == 0 {
            return;
        }
        state.open = true;
        let mut classes = state.parked_classes;
        while classes != 0 {
            let class = Class(classes.trailing_zeros() as u8);
            classes &= classes - 1;
            self.rank_bay(bay, class);
        }
    }

    /// Every target of the bay is shut: it leaves the choice.
    pub(super) fn close_bay(&mut self, bay: u32) {
        let state = &mut self.bays[bay as usize];
        if !std::mem::take(&mut state.open) {
            return;
        }
        for class in 0..state.parked.len() {
            let bays = &mut self.bays;
            let at = bays[bay as usize].parked[class].at;
            if at != NOWHERE {
                self.classes[class]
                    .bays
                    .remove(at, |bay, at| bays[bay as usize].parked[class].at = at);
                self.class_changed(Class(class as u8));
            }
        }
    }

    /// Whether any target of the bay would serve some job now. If not, those that open by themselves are watched.
    pub(super) fn is_open(&mut self, now: Time, bay: u32) -> bool {
        for index in 0..self.bays[bay as usize].targets.len() {
            let target = self.bays[bay as usize].targets[index];
            match self.targets[target as usize].shut(now) {
                None => return true,
                Some(Pass::Shut(Some(at))) => self.arm_target(target, at),
                Some(_) => {}
            }
        }
        false
    }

    /// A target may have opened.
    #[inline]
    pub(super) fn open_target(&mut self, target: u32) {
        if self.parked > 0 || self.saved > 0 {
            self.open_bays_of(target);
        }
    }

    fn open_bays_of(&mut self, target: u32) {
        self.unsave(target);
        for index in 0..self.targets[target as usize].seldom.bays.len() {
            let bay = self.targets[target as usize].seldom.bays[index];
            self.unsave_bay(bay);
            self.open_bay(bay);
        }
    }

    /// Lanes of a bay for which some target is saved take part in the choice again.
    fn unsave_bay(&mut self, bay: u32) {
        if self.bays[bay as usize].targets.len() == 1 {
            return;
        }
        for index in 0..self.bays[bay as usize].targets.len() {
            let target = self.bays[bay as usize].targets[index];
            let lane = self.targets[target as usize].saved_for;
            if lane != NIL && self.lanes[lane].bay == bay {
                self.unsave(target);
            }
        }
    }

    /// Saves a target's cost bucket for the head of an open lane until there is enough in it.
    pub(super) fn save(&mut self, lane: u32, target: u32, at: Time) {
        let Lane { queue, .. } = self.lanes[lane];
        let lane_at = &mut self.lane_at;
        self.queues[queue]
            .open
            .remove(lane_at[lane as usize], |lane, at| {
                lane_at[lane as usize] = at;
            });
        self.lanes[lane].place = Place::Saving(target);
        self.targets[target as usize].saved_for = lane;
        self.saved += 1;
        self.arm_target(target, at);
        self.queue_changed(queue);
    }

    /// The choice is to be made anew: the lane that a target is saved for takes part again, and so do the others.
    pub(super) fn unsave(&mut self, target: u32) {
        let lane = std::mem::replace(&mut self.targets[target as usize].saved_for, NIL);
        if lane == NIL {
            return;
        }
        self.saved -= 1;
        self.disarm_target(target);
        self.lanes[lane].place = Place::Empty;
        self.head_changed(lane);
        for index in 0..self.targets[target as usize].seldom.bays.len() {
            let bay = self.targets[target as usize].seldom.bays[index];
            self.open_bay(bay);
        }
    }

    /// A job came for this bay and flow: what was saved for another job on its way is to be chosen anew.
    #[inline]
    pub(super) fn rechoose(&mut self, bay: u32, flow: u32) {
        if self.saved > 0 {
            self.unsave_all_of(bay);
        }
        self.rechoose_flow(flow);
    }

    fn unsave_all_of(&mut self, bay: u32) {
        for index in 0..self.bays[bay as usize].targets.len() {
            let target = self.bays[bay as usize].targets[index];
            if self.targets[target as usize].saved_for != NIL {
                self.unsave(target);
            }
        }
    }

    /// A job came to this flow or left it: what its bucket is saved for is to be chosen anew.
    #[inline]
    pub(super) fn rechoose_flow(&mut self, flow: u32) {
        if !self.flows[flow].timer.is_none() {
            self.open_flow(flow);
        }
    }

    /// Parks a flow whose gate is shut: none of its queues takes part.
    pub(super) fn park_flow(&mut self, flow: u32, until: Option<Time>) {
        self.flows[flow].parked = true;
        self.flow_changed(flow);
        if let Some(at) = until {
            self.arm_flow(flow, at);
        }
    }

    /// A flow's gate may have opened.
    pub(super) fn open_flow(&mut self, flow: u32) {
        if std::mem::take(&mut self.flows[flow].parked) {
            self.flow_changed(flow);
        }
    }

    fn flow_changed(&mut self, flow: u32) {
        for class in 0..self.flows[flow].queues.len() {
            let queue = self.flows[flow].queues[class];
            if queue != NIL {
                self.queue_changed(queue);
            }
        }
    }
}
