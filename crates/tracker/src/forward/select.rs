//! The selection of forwarders for the announced peers of a torrent.

use super::job::ForwardJob;
use crate::active_config::ActiveConfig;
use crate::clock::Seconds;
use crate::config::{Selection, TrackerConfig};
use crate::forwarders::ForwarderId;
use crate::swarms::Swarm;
use headworks_core::Pressure;

/// The time until which a torrent is not selected for again if nothing else is known.
const LATEST: Seconds = 3600;
/// With `yield`, one selected forwarder in this many is a random one (ε-greedy), so that the score
/// of the others stays up to date.
const EXPLORE: usize = 8;

/// The number of forwarders that an announce may go to.
pub(super) struct Fanout {
    pub(super) limit: usize,
}

impl Fanout {
    pub(super) fn new(config: &TrackerConfig, pressure: Pressure) -> Fanout {
        let throttled = pressure.throttles() && config.queue_throttle_top_n > 0;
        let limit = config.max_forwarders_per_announce;
        let limit = match throttled {
            true => limit.min(config.queue_throttle_top_n),
            false => limit,
        };
        Fanout { limit }
    }
}

/// The result of a selection.
#[derive(Default)]
pub(super) struct Selected {
    /// The forwards, in the order in which they are sent.
    pub(super) jobs: Vec<ForwardJob>,
    /// The number of due forwarders beyond the limit.
    pub(super) left_out: usize,
    /// Whether a due forwarder is unavailable, or is being probed with another torrent.
    pub(super) awaits: bool,
}

/// Selects due forwarders, at most `limit` per announced peer, and notes a forward to each in the
/// swarm's record. A forwarder that is not known to respond is asked for one torrent at a time, and
/// not at all while our own network is `down`.
pub(super) fn select(
    now: Seconds,
    random: u32,
    active: &ActiveConfig,
    swarm: &mut Swarm,
    limit: usize,
    down: bool,
) -> Selected {
    let record = swarm.record_mut();
    let (mut selected, mut next) = (Selected::default(), now.saturating_add(LATEST));
    for peer in 0..record.peers().len() {
        let mut due = Vec::new();
        for (id, forwarder) in active.listed_forwarders() {
            let schedule = record.peers()[peer].schedule(id);
            if schedule.due > now {
                next = next.min(schedule.due);
            } else if !forwarder.is_usable()
                || forwarder.needs_probe() && (down || forwarder.is_probed())
            {
                selected.awaits = true;
            } else {
                due.push(id);
            }
        }
        selected.left_out += due.len().saturating_sub(limit);
        order(&mut due, limit, active, random.wrapping_add(peer as u32));
        for id in due {
            let forwarder = &active.forwarders[id.index()];
            let probe = forwarder.needs_probe();
            if probe && !forwarder.try_begin_probe() {
                selected.awaits = true;
                continue;
            }
            let job = ForwardJob::announce(&record.peers()[peer], id);
            let lost = record.begin_forward(now, peer, id, active.forwarders.len());
            next = next.min(lost);
            selected.jobs.push(ForwardJob { probe, ..job });
        }
    }
    swarm.due = if selected.left_out > 0 { now } else { next };
    selected
}

/// Puts `limit` of the due forwarders in the order in which they are asked and drops the rest.
fn order(due: &mut Vec<ForwarderId>, limit: usize, active: &ActiveConfig, seed: u32) {
    let mut random = Random(u64::from(seed) << 32 | 1);
    let selected = due.len().min(limit);
    let by_score = active.config.forwarder_selection == Selection::Yield;
    // A Fisher-Yates shuffle, of all forwarders if they are sorted afterwards: equal scores are
    // then in random order.
    let shuffled = if by_score { due.len() } else { selected };
    for index in 0..shuffled {
        let other = index + random.below(due.len() - index);
        due.swap(index, other);
    }
    if by_score {
        let score = |id: &ForwarderId| active.forwarders[id.index()].score.value();
        due.sort_by(|one, other| score(other).total_cmp(&score(one)));
        for index in 0..selected {
            if random.below(EXPLORE) == 0 {
                let other = index + random.below(due.len() - index);
                due.swap(index, other);
            }
        }
    }
    due.truncate(selected);
}

/// A linear congruential generator (Knuth's MMIX multiplier).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        // The lower bits of such a generator have short periods.
        (((self.0 >> 32) * limit as u64) >> 32) as usize
    }
}
