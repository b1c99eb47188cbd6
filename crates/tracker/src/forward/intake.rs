//! The pool's door: forwards become its jobs.

use super::Forward;
use crate::counters::Counters;
use crate::plane::Shared;
use crate::swarm::{Asked, Seconds};
use headworks_core::{Class, Job, Key, KeySeed, Reason, TargetId};
use headworks_pool::Pool;
use headworks_tracker_wire::{Announce, Event, PeerId};
use std::sync::Arc;
use std::vec;

/// An announce and the forwarders that it still goes to.
pub(super) struct Round {
    pub(super) forward: Forward,
    pub(super) class: Class,
    pub(super) now: Seconds,
    pub(super) chosen: vec::IntoIter<(u16, Asked)>,
}

/// Hands forwards in.
#[derive(Clone)]
pub(super) struct Intake {
    pub(super) pool: Pool<Forward>,
    pub(super) shared: Arc<Shared>,
    pub(super) seed: KeySeed,
}

impl Intake {
    /// Hands in forwards until so many are queued, and says how many are, and how many found the queue full.
    pub(super) fn hand_in(
        &self,
        round: &mut Round,
        enough: usize,
        counters: &Counters,
    ) -> (usize, u64) {
        let (mut queued, mut full) = (0, 0);
        let mut refused = Vec::new();
        while queued < enough
            && let Some((forwarder, before)) = round.chosen.next()
        {
            let forward = Forward {
                forwarder,
                before,
                ..round.forward
            };
            match self.submit(forward, round.class) {
                Ok(()) => queued += 1,
                Err(reason) => {
                    full += u64::from(matches!(reason, Reason::Full | Reason::TargetFull));
                    refused.push((forwarder, before));
                }
            }
        }
        if !refused.is_empty() {
            let hash = &round.forward.announce.info_hash;
            self.shared.swarms.with(hash, |swarm| {
                let known = swarm.known_mut();
                for (forwarder, before) in refused {
                    known.call_off(forwarder, before);
                }
                swarm.due = round.now;
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
            // Of announces that wait for a time one is enough for all peers; an event must not be merged into one.
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
