//! Whom an announce goes on to.

use super::{Forwarding, Offered};
use crate::plane::Call;
use crate::swarm::{Asked, Seconds, Swarm};
use headworks_core::{Class, Reason};
use parking_lot::Mutex;
use std::time::Instant;

/// When nobody can be asked for a while, or not everybody, it is looked into again after so long.
const LOOK_AGAIN: Seconds = 30;

impl Forwarding {
    /// Passes an announce on to whoever may be asked.
    pub(crate) fn announce(&self, call: &Call<'_>, first: bool) -> Offered {
        let config = &self.shared.config;
        let hash = &call.announce.info_hash;
        if self.watch.is_down() {
            self.shared
                .swarms
                .with(hash, |swarm| swarm.due = call.now + LOOK_AGAIN);
            return Offered::Nothing;
        }
        let pressure = self.pool.pressure();
        if first && pressure.limits() && !self.limiter.admits(Instant::now()) {
            call.counters.rate_limited.add(1);
            return Offered::Busy;
        }
        let mut most = config.max_forwarders_per_announce;
        let throttles = pressure.throttles() && config.queue_throttle_top_n > 0;
        if throttles {
            most = most.min(config.queue_throttle_top_n);
        }
        let (chosen, left) = self
            .shared
            .swarms
            .with(hash, |swarm| self.choose(call, swarm, most));
        if throttles {
            call.counters.throttled.add(left as u64);
        }
        self.queue(call, first, &chosen)
    }

    /// Marks as asked at most `most` forwarders that are due, in random order, and says how many were left out.
    fn choose(
        &self,
        call: &Call<'_>,
        swarm: &mut Swarm,
        most: usize,
    ) -> (Vec<(u16, Asked)>, usize) {
        let known = swarm.known_mut();
        let (mut due, mut all) = (Vec::new(), true);
        for (number, station) in self.stations.iter().enumerate() {
            let number = number as u16;
            if !station.is_usable() {
                all = false;
            } else if known.asked(number).due <= call.now {
                due.push(number);
            }
        }
        let mut random = u64::from(call.random) << 32 | 1;
        let chosen = due.len().min(most);
        for place in 0..chosen {
            let rest = (due.len() - place) as u64;
            random = random
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            due.swap(place, place + ((random >> 33) % rest) as usize);
        }
        let left = due.len() - chosen;
        due.truncate(chosen);
        let asked = |number: u16| {
            let before = known.asked(number);
            known.depart(call.now, number);
            (number, before)
        };
        let chosen = due.into_iter().map(asked).collect();
        let earliest = known.earliest(self.stations.len());
        swarm.due = match (left, all) {
            (0, true) => earliest,
            // Somebody is suspended or disabled, and may be back by then.
            (0, false) => call.now + LOOK_AGAIN,
            _ => call.now,
        };
        (chosen, left)
    }

    fn queue(&self, call: &Call<'_>, first: bool, chosen: &[(u16, Asked)]) -> Offered {
        let class = if first { Class(1) } else { Class(2) };
        let (mut queued, mut full) = (0, 0);
        let mut refused = Vec::new();
        for (forwarder, before) in chosen {
            match self.submit(self.forward(call, *forwarder, *before), class) {
                Ok(()) => queued += 1,
                Err(reason) => {
                    full += u64::from(matches!(reason, Reason::Full | Reason::TargetFull));
                    refused.push((*forwarder, *before));
                }
            }
        }
        if !refused.is_empty() {
            self.shared.swarms.with(&call.announce.info_hash, |swarm| {
                let known = swarm.known_mut();
                for (forwarder, before) in refused {
                    known.call_off(forwarder, before);
                }
                swarm.due = call.now;
            });
        }
        if full > 0 {
            call.counters.dropped_full.add(full);
            tracing::debug!(dropped = full, "the forward queue is full");
        }
        match (queued, full) {
            (0, 0) => Offered::Nothing,
            (0, _) if first && self.shared.config.queue_rate_limit_threshold > 0 => Offered::Full,
            (0, _) => Offered::Nothing,
            _ => Offered::Queued,
        }
    }
}

/// A token bucket over first announces. It starts full.
pub(super) struct Limiter {
    rate: f64,
    burst: f64,
    state: Mutex<(f64, Option<Instant>)>,
}

impl Limiter {
    pub(super) fn new(rate: f64, burst: u32) -> Limiter {
        let burst = f64::from(burst.max(1));
        Limiter {
            rate: rate.max(0.0),
            burst,
            state: Mutex::new((burst, None)),
        }
    }

    /// Takes a token, if there is one.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let (level, at) = *state;
        let elapsed = at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let level = (level + elapsed * self.rate).min(self.burst);
        let admits = level >= 1.0;
        *state = (level - f64::from(u8::from(admits)), Some(now));
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_and_then_a_rate() {
        let (limiter, start) = (Limiter::new(10.0, 3), Instant::now());
        let admitted = |after: u64, tries: usize| {
            let now = start + Duration::from_millis(after);
            (0..tries).filter(|_| limiter.admits(now)).count()
        };
        assert_eq!(admitted(0, 10), 3);
        assert_eq!(admitted(250, 10), 2);
        assert_eq!(admitted(60_000, 10), 3, "no more than the burst");
    }
}
