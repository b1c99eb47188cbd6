//! The selection of forwarders for an announce.

use crate::active_config::ActiveConfig;
use crate::clock::Seconds;
use crate::config::{Selection, TrackerConfig};
use crate::forwarders::ForwarderId;
use crate::swarms::{ForwarderSchedule, Swarm};
use headworks_core::Pressure;

/// The time after which forwarders are selected again if some were unavailable.
pub(super) const RECHECK: Seconds = 30;
/// With `yield`, one selected forwarder in this many is a random one (ε-greedy), so that the score
/// of the others stays up to date.
const EXPLORE: usize = 8;

/// A selected forwarder with its schedule before the selection.
pub(super) type Selected = (ForwarderId, ForwarderSchedule);

/// The number of forwarders that an announce may go to.
pub(super) struct Fanout {
    pub(super) limit: usize,
    /// Whether the limit is lower because the queue is filling up.
    pub(super) throttled: bool,
}

impl Fanout {
    pub(super) fn new(config: &TrackerConfig, pressure: Pressure) -> Fanout {
        let throttled = pressure.throttles() && config.queue_throttle_top_n > 0;
        let limit = config.max_forwarders_per_announce;
        let limit = match throttled {
            true => limit.min(config.queue_throttle_top_n),
            false => limit,
        };
        Fanout { limit, throttled }
    }
}

/// Selects at most `limit` forwarders that are due and notes a forward to each in the swarm's
/// record. Returns them in the order in which they are asked, and the number of due ones left out.
pub(super) fn select(
    now: Seconds,
    random: u32,
    active: &ActiveConfig,
    swarm: &mut Swarm,
    limit: usize,
) -> (Vec<Selected>, usize) {
    let record = swarm.record_mut();
    record.reserve(active.forwarders.len());
    let (mut due, mut all_usable, mut next) = (Vec::new(), true, Seconds::MAX);
    for (id, forwarder) in active.listed_forwarders() {
        let schedule = record.schedule(id);
        if !forwarder.is_usable() {
            all_usable = false;
        } else if schedule.due <= now {
            due.push(id);
        } else {
            next = next.min(schedule.due);
        }
    }
    let left_out = due.len().saturating_sub(limit);
    order(&mut due, limit, active, random);
    let begin = |id: ForwarderId| {
        let previous = record.schedule(id);
        next = next.min(record.begin_forward(now, id));
        (id, previous)
    };
    let selected = due.into_iter().map(begin).collect();
    swarm.due = match (left_out, all_usable) {
        (0, true) => next,
        // A suspended or disabled forwarder may be back by then.
        (0, false) => now + RECHECK,
        _ => now,
    };
    (selected, left_out)
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
