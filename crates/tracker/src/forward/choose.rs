//! Whom an announce goes on to.

use super::clerk::{Errand, Later};
use super::intake::{Intake, Round, Wanted};
use super::{Forwarding, Offered};
use crate::config::Selection;
use crate::plan::Plan;
use crate::plane::Call;
use crate::swarm::{Asked, Seconds, Swarm};
use headworks_core::Pressure;
use std::time::Instant;

/// When nobody can be asked for a while, or not everybody, it is looked into again after so long.
const LOOK_AGAIN: Seconds = 30;
/// When those that were worth most are preferred, one place in so many goes to any other.
const EXPLORE: usize = 8;

/// With less of the queue taken than this, in percent, and with what is on its way to it counted as
/// there, a forward will be queued: then all of it can be left for later.
const FULL: u32 = 100;

impl Forwarding {
    /// Passes an announce on to whoever may be asked: later, but for one if it may find the queue
    /// full.
    pub(crate) fn announce(&self, call: &Call<'_>, first: bool, later: &mut Later) -> Offered {
        let config = &call.plan.config;
        let hash = &call.announce.info_hash;
        if self.watch.is_down() {
            self.swarms()
                .with(hash, |swarm| swarm.due = call.now + LOOK_AGAIN);
            return Offered::Nothing;
        }
        let pressure = self.pool().pressure(self.clerk.behind());
        if first && pressure.limits() && !self.limiter.admits(Instant::now(), config) {
            call.counters.rate_limited.add(1);
            return Offered::Busy;
        }
        let wanted = Wanted {
            forward: self.forward(call, 0, Asked::default()),
            first,
            now: call.now,
            random: call.random,
        };
        if pressure.fill() < FULL {
            self.swarms().with(hash, |swarm| {
                swarm.due = call.now + LOOK_AGAIN;
                swarm.known_mut().expect();
            });
            later.push(Errand::Ask(wanted));
            return Offered::Queued;
        }
        if first && self.turned_away.was(call.client, Instant::now()) {
            return self.turn_away(call, pressure);
        }
        let chosen = self.swarms().with(hash, |swarm| {
            self.intake
                .choose(&wanted, call.plan, swarm, pressure, call.counters)
        });
        let offered = self.try_one(call, Round::new(wanted, chosen), later);
        if offered == Offered::Full {
            self.turned_away.note(call.client, Instant::now());
        }
        offered
    }

    /// All that the announce would have gone to is dropped, without a look at the queue or a note
    /// of it.
    fn turn_away(&self, call: &Call<'_>, pressure: Pressure) -> Offered {
        let usable = call
            .plan
            .forwarders()
            .filter(|(_, station)| station.is_usable());
        let (usable, most) = (usable.count(), Intake::most(&call.plan.config, pressure));
        let dropped = usable.min(most.count);
        if most.throttled {
            call.counters.throttled.add((usable - dropped) as u64);
        }
        call.counters.untried.add(dropped as u64);
        call.counters.dropped_full.add(dropped as u64);
        match dropped {
            0 => Offered::Nothing,
            _ => Offered::Full,
        }
    }

    /// Hands in the first forward that finds room, and leaves the others for later.
    fn try_one(&self, call: &Call<'_>, mut round: Round, later: &mut Later) -> Offered {
        let (queued, full) = self.intake.hand_in(&mut round, 1, call.counters);
        if round.chosen.len() > 0 {
            later.push(Errand::HandIn(round));
            return Offered::Queued;
        }
        let limits = call.plan.config.queue_rate_limit_threshold > 0;
        match (queued, full) {
            (0, 0) => Offered::Nothing,
            (0, _) if round.wanted.first && limits => Offered::Full,
            (0, _) => Offered::Nothing,
            _ => Offered::Queued,
        }
    }
}

/// Marks as asked at most `most` forwarders that are due, in random order, and says how many were
/// left out.
pub(super) fn choose(
    wanted: &Wanted,
    plan: &Plan,
    swarm: &mut Swarm,
    most: usize,
) -> (Vec<(u16, Asked)>, usize) {
    let now = wanted.now;
    let known = swarm.known_mut();
    known.make_room(plan.stations.len());
    let (mut due, mut all, mut next) = (Vec::new(), true, Seconds::MAX);
    for (number, station) in plan.forwarders() {
        let asked = known.asked(number);
        if !station.is_usable() {
            all = false;
        } else if asked.due <= now {
            due.push(number);
        } else {
            next = next.min(asked.due);
        }
    }
    let left = due.len().saturating_sub(most);
    order(&mut due, most, plan, wanted.random);
    let asked = |number: u16| {
        let before = known.asked(number);
        next = next.min(known.depart(now, number));
        (number, before)
    };
    let chosen = due.into_iter().map(asked).collect();
    swarm.due = match (left, all) {
        (0, true) => next,
        // Somebody is suspended or disabled, and may be back by then.
        (0, false) => now + LOOK_AGAIN,
        _ => now,
    };
    (chosen, left)
}

/// Puts `most` of the forwarders that are due in the order in which they are asked, and drops the
/// rest.
fn order(due: &mut Vec<u16>, most: usize, plan: &Plan, seed: u32) {
    let mut state = u64::from(seed) << 32 | 1;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        // From the upper bits: the lower ones of such a sequence follow each other in plain
        // patterns.
        (((state >> 32) * below as u64) >> 32) as usize
    };
    let chosen = due.len().min(most);
    let by_worth = plan.config.forwarder_selection == Selection::Yield;
    // Of those that are worth the same, any: all are shuffled first.
    let shuffled = if by_worth { due.len() } else { chosen };
    for place in 0..shuffled {
        let other = place + random(due.len() - place);
        due.swap(place, other);
    }
    if by_worth {
        let score = |number: &u16| plan.stations[usize::from(*number)].worth.score();
        due.sort_by(|one, other| score(other).total_cmp(&score(one)));
        for place in 0..chosen {
            if random(EXPLORE) == 0 {
                let other = place + random(due.len() - place);
                due.swap(place, other);
            }
        }
    }
    due.truncate(chosen);
}
