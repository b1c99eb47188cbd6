//! The selection of forwarders for the announced peers of a torrent.

use super::job::ForwardJob;
use crate::active_config::ActiveConfig;
use crate::clock::Seconds;
use crate::config::{Selection, TrackerConfig};
use crate::forwarders::{ForwarderId, ForwarderState};
use crate::swarms::Swarm;
use headworks_core::Pressure;

/// The time until which a torrent is not selected for again if nothing else is known.
const LATEST: Seconds = 3600;
/// One selected forwarder in this many is a random one (ε-greedy), so that others get their turn.
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
    // Looked at once and not per peer: their states are scattered over memory, and the caller holds
    // a lock.
    let is_askable = |forwarder: &ForwarderState| {
        let needs_probe = forwarder.needs_probe();
        forwarder.is_usable() && !(needs_probe && (down || forwarder.is_probed()))
    };
    let listed = active.listed_forwarders();
    let mut askable = Vec::with_capacity(active.forwarders.len());
    askable.extend(listed.map(|(id, forwarder)| (id, is_askable(forwarder))));
    for peer in 0..record.peers().len() {
        if active.access.denies_client(record.peers()[peer].client) {
            continue;
        }
        let mut due = Vec::new();
        let announced = &record.peers()[peer];
        for (id, askable) in &askable {
            let schedule = announced.schedule(*id);
            if schedule.due > now {
                next = next.min(schedule.due);
            } else if *askable {
                due.push(*id);
            } else {
                selected.awaits = true;
            }
        }
        selected.left_out += due.len().saturating_sub(limit);
        order(&mut due, active, random.wrapping_add(peer as u32));
        // A forwarder that is left out now may turn out to respond before its turn comes.
        let needs_probe = |id: &ForwarderId| active.forwarders[id.index()].needs_probe();
        selected.awaits |= due.iter().skip(limit).any(needs_probe);
        due.truncate(limit);
        record.reserve_forwards(peer, &due);
        for id in due {
            let forwarder = &active.forwarders[id.index()];
            let probe = forwarder.needs_probe();
            if probe && !forwarder.try_begin_probe() {
                selected.awaits = true;
                continue;
            }
            if probe && let Ok(index) = askable.binary_search_by_key(&id, |(id, _)| *id) {
                askable[index].1 = false;
            }
            let job = ForwardJob::announce(&record.peers()[peer], id);
            let lost = record.begin_forward(now, peer, id);
            next = next.min(lost);
            selected.jobs.push(ForwardJob { probe, ..job });
        }
    }
    swarm.due = if selected.left_out > 0 { now } else { next };
    selected
}

/// Puts the due forwarders in the order in which they are asked: those that are known to respond
/// first.
fn order(due: &mut [ForwarderId], active: &ActiveConfig, seed: u32) {
    let mut random = fastrand::Rng::with_seed(seed.into());
    // Equal scores are in random order.
    random.shuffle(due);
    if active.config.forwarder_selection == Selection::Yield {
        let score = |id: &ForwarderId| active.forwarders[id.index()].score.value();
        due.sort_by(|one, other| score(other).total_cmp(&score(one)));
    } else {
        due.sort_by_key(|id| active.forwarders[id.index()].needs_probe());
    }
    for index in 0..due.len() {
        if random.usize(..EXPLORE) == 0 {
            let other = random.usize(index..due.len());
            due.swap(index, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TrackerConfig;
    use crate::forwarders::Forwarder;
    use crate::subscriptions::Subscriptions;
    use crate::swarms::PackedAddress;
    use headworks_tracker_wire::Announce;

    fn active(forwarders: usize) -> ActiveConfig {
        let one = |number: usize| Forwarder::at(&format!("udp://192.0.2.1:{}", number + 1));
        let config = TrackerConfig {
            forwarders: (0..forwarders).map(one).collect(),
            ..TrackerConfig::default()
        };
        ActiveConfig::new(&config, &Subscriptions::default(), &[]).unwrap()
    }

    fn swarm() -> Swarm {
        let (mut swarm, ip) = (Swarm::default(), [127, 0, 0, 1].into());
        let address = PackedAddress::new(ip, 1);
        swarm.announce_peer(&Announce::default(), ip, address, 10);
        swarm
    }

    #[test]
    fn a_forwarder_not_known_to_respond_is_asked_for_one_torrent_at_a_time() {
        let active = active(3);
        let first = select(1, 0, &active, &mut swarm(), 100, false);
        assert_eq!((first.jobs.len(), first.awaits), (3, false));
        let second = select(1, 0, &active, &mut swarm(), 100, false);
        assert_eq!((second.jobs.len(), second.awaits), (0, true));
        active.forwarders[1].record_response();
        active.forwarders[1].end_probe();
        let third = select(1, 0, &active, &mut swarm(), 100, false);
        assert_eq!((third.jobs.len(), third.awaits), (1, true));
        let down = select(1, 0, &active, &mut swarm(), 100, true);
        assert_eq!(
            down.jobs.len(),
            1,
            "those that responded last go on being asked"
        );
    }

    #[test]
    fn forwarders_that_respond_come_first_and_others_are_not_forgotten() {
        let active = active(50);
        active.forwarders[7].record_response();
        let mut swarm = swarm();
        let selected = select(1, 3, &active, &mut swarm, 5, false);
        assert_eq!(selected.jobs[0].forwarder, ForwarderId(7));
        assert_eq!((selected.jobs.len(), selected.left_out), (5, 45));
        assert!(
            selected.awaits,
            "one of those left out may turn out to respond"
        );
    }
}
