//! The pool's door: forwards become its jobs.

use super::{Forward, choose};
use crate::config::TrackerConfig;
use crate::counters::Counters;
use crate::plan::Plan;
use crate::plane::Shared;
use crate::swarm::{Asked, Seconds, Swarm};
use headworks_core::{Class, Job, Key, KeySeed, Pressure, Reason, TargetId};
use headworks_pool::Pool;
use headworks_tracker_wire::{Announce, Event, PeerId};
use std::sync::Arc;
use std::vec;

/// A torrent that found the queue full is not tried again for so long, as a delayed forward would
/// not be.
const PUT_OFF: Seconds = 10;

/// An announce that is to go on.
pub(super) struct Wanted {
    pub(super) forward: Forward,
    /// No forwarder was ever asked for its torrent.
    pub(super) first: bool,
    pub(super) now: Seconds,
    pub(super) random: u32,
}

/// How many forwarders an announce goes to at most.
pub(super) struct Most {
    pub(super) count: usize,
    /// Fewer than it would without the pressure.
    pub(super) throttled: bool,
}

/// An announce and the forwarders that it still goes to.
pub(super) struct Round {
    pub(super) wanted: Wanted,
    pub(super) chosen: vec::IntoIter<(u16, Asked)>,
}

impl Round {
    pub(super) fn new(wanted: Wanted, chosen: Vec<(u16, Asked)>) -> Round {
        Round {
            wanted,
            chosen: chosen.into_iter(),
        }
    }
}

/// Hands forwards in.
#[derive(Clone)]
pub(super) struct Intake {
    pub(super) pool: Pool<Forward>,
    pub(super) shared: Arc<Shared>,
    pub(super) seed: KeySeed,
}

impl Intake {
    /// Chooses whom to ask: fewer under pressure.
    pub(super) fn choose(
        &self,
        wanted: &Wanted,
        plan: &Plan,
        swarm: &mut Swarm,
        pressure: Pressure,
        counters: &Counters,
    ) -> Vec<(u16, Asked)> {
        let most = Intake::most(&plan.config, pressure);
        let (chosen, left) = choose::choose(wanted, plan, swarm, most.count);
        if most.throttled {
            counters.throttled.add(left as u64);
        }
        chosen
    }

    /// How many forwarders an announce goes to.
    pub(super) fn most(config: &TrackerConfig, pressure: Pressure) -> Most {
        let throttled = pressure.throttles() && config.queue_throttle_top_n > 0;
        let most = config.max_forwarders_per_announce;
        let count = match throttled {
            true => most.min(config.queue_throttle_top_n),
            false => most,
        };
        Most { count, throttled }
    }

    /// Asks for a torrent that it was promised for, unless whoever wanted it has left.
    pub(super) fn ask(&self, wanted: Wanted, pressure: Pressure, counters: &Counters) {
        let plan = self.shared.plan();
        let Forward { announce, at, .. } = &wanted.forward;
        let choose = |swarm: &mut Swarm| {
            swarm.known.iter_mut().for_each(|known| known.expected());
            let stays = swarm.has(at);
            stays.then(|| self.choose(&wanted, &plan, swarm, pressure, counters))
        };
        let chosen = self.shared.swarms.with_known(&announce.info_hash, choose);
        if let Some(chosen) = chosen.flatten() {
            self.hand_in(&mut Round::new(wanted, chosen), usize::MAX, counters);
        }
    }

    /// Hands in forwards until so many are queued, and says how many are, and how many found the
    /// queue full.
    pub(super) fn hand_in(
        &self,
        round: &mut Round,
        enough: usize,
        counters: &Counters,
    ) -> (usize, u64) {
        // First announces of a torrent go before others.
        let class = if round.wanted.first {
            Class(1)
        } else {
            Class(2)
        };
        let (mut queued, mut full) = (0, 0);
        let mut refused = Vec::new();
        while queued < enough
            && let Some((forwarder, before)) = round.chosen.next()
        {
            let forward = Forward {
                forwarder,
                before,
                ..round.wanted.forward
            };
            match self.submit(forward, class) {
                Ok(()) => queued += 1,
                // Full for one of a client's announces is full for all of them.
                Err(Reason::Full) => {
                    let untried = round.chosen.len() as u64;
                    counters.untried.add(untried);
                    full += 1 + untried;
                    refused.push((forwarder, before));
                    refused.extend(round.chosen.by_ref());
                }
                Err(reason) => {
                    full += u64::from(reason == Reason::TargetFull);
                    refused.push((forwarder, before));
                }
            }
        }
        if !refused.is_empty() {
            // A torrent that nobody was asked for is tried with every announce: its clients wait
            // for it.
            let waits = full > 0 && !(round.wanted.first && queued == 0);
            let rest = if waits { PUT_OFF } else { 0 };
            let hash = &round.wanted.forward.announce.info_hash;
            self.shared.swarms.with(hash, |swarm| {
                let known = swarm.known_mut();
                for (forwarder, before) in refused {
                    known.call_off(forwarder, before);
                }
                swarm.due = round.wanted.now + rest;
            });
        }
        if full > 0 {
            counters.dropped_full.add(full);
            tracing::debug!(dropped = full, "the forward queue is full");
        }
        (queued, full)
    }

    pub(super) fn submit(&self, forward: Forward, class: Class) -> Result<(), Reason> {
        let key = self.key(&forward.announce, forward.forwarder, forward.kind());
        let target = TargetId::new(u32::from(forward.forwarder));
        let mut job = Job::new(forward)
            .class(class)
            .flow(self.seed.flow(&forward.client))
            .targets(target)
            .key(key);
        if forward.is_announce() {
            // Of announces that wait for a time one is enough for all peers; an event must not be
            // merged into one.
            let name = (forward.announce.info_hash.0, forward.forwarder);
            job = job.delay_key(self.seed.key(&name));
        }
        let answer = self.pool.submit(job);
        answer.map(|_| ()).map_err(|refused| refused.reason)
    }

    pub(super) fn key(&self, announce: &Announce, forwarder: u16, kind: Event) -> Key {
        let PeerId(peer) = announce.peer_id;
        let name = (announce.info_hash.0, forwarder, peer, kind as u8);
        self.seed.key(&name)
    }
}
