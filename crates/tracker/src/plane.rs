//! The announce plane: what a request does to the swarms, and what it is answered.
//!
//! Runs to completion on the thread that received the request. It hands work to the forward plane
//! and never waits for it.

use crate::clock::Clock;
use crate::config::{CountBy, Overload};
use crate::counters::{Counters, Totals};
use crate::forward::{Forwarding, Later, Offered};
use crate::plan::Plan;
use crate::swarm::{Change, Draw, Packed, Seconds, Swarm, Swarms};
use arc_swap::{ArcSwap, Guard};
use headworks_service::token::Door;
use headworks_tracker_wire::{Announce, Counts, Event, InfoHash, PeerId, compact};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What both planes share.
pub(crate) struct Shared {
    /// What is in force.
    pub(crate) plan: ArcSwap<Plan>,
    /// The swarms' totals are kept in this way from the start on.
    pub(crate) count_by: CountBy,
    /// Who may see clients' addresses.
    pub(crate) door: OnceLock<Door>,
    pub(crate) clock: Clock,
    pub(crate) swarms: Swarms,
    /// Swarms and local peers, as the last purge left them.
    pub(crate) sizes: (AtomicUsize, AtomicUsize),
    counters: Mutex<Vec<Arc<Counters>>>,
}

impl Shared {
    pub(crate) fn new(plan: Plan) -> Shared {
        Shared {
            count_by: plan.config.count_by,
            plan: ArcSwap::from_pointee(plan),
            door: OnceLock::new(),
            clock: Clock::new(),
            swarms: Swarms::new(),
            sizes: Default::default(),
            counters: Mutex::default(),
        }
    }

    /// What is in force.
    pub(crate) fn plan(&self) -> Guard<Arc<Plan>> {
        self.plan.load()
    }

    /// A thread's own counters.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().push(counters.clone());
        counters
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals::of(&self.counters.lock())
    }

    /// Forgets whoever was not heard of for too long.
    pub(crate) fn purge(&self) {
        let age = self.plan().config.age.as_secs() as Seconds;
        let before = self.clock.now().saturating_sub(age);
        let (swarms, peers) = self.swarms.purge(before, self.count_by);
        self.sizes.0.store(swarms, Ordering::Relaxed);
        self.sizes.1.store(peers, Ordering::Relaxed);
    }
}

/// The announce plane.
pub(crate) struct Plane {
    pub(crate) shared: Arc<Shared>,
    pub(crate) forwarding: Forwarding,
}

/// Which addresses an answer can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    V6,
    Both,
}

/// A thread's buffers: what an answer is made in.
#[derive(Default)]
pub(crate) struct Peers {
    /// Packed IPv4 addresses.
    pub(crate) v4: Vec<u8>,
    /// Packed IPv6 addresses.
    pub(crate) v6: Vec<u8>,
    /// Every peer with its name, for clients that want dictionaries.
    pub(crate) named: Vec<(Option<PeerId>, SocketAddr)>,
    /// What is to be handed in once the answers are sent.
    pub(crate) later: Later,
}

impl Peers {
    fn clear(&mut self) {
        self.v4.clear();
        self.v6.clear();
        self.named.clear();
    }
}

/// What a client is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The peers in the buffers.
    Peers { interval: Seconds, counts: Counts },
    /// Nothing: too much to do.
    Refused { why: Refusal, retry: Seconds },
    /// Nothing, now or later: in words.
    Denied(&'static str),
}

/// Why an announce is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// New torrents are held to a rate.
    Busy,
    /// No forward could be queued.
    Full,
}

impl Refusal {
    /// The words for the client; the number is the same as in the interval.
    pub(crate) fn words(self, retry: Seconds) -> String {
        match self {
            Refusal::Busy => format!("tracker busy, retry in {retry} seconds"),
            Refusal::Full if retry.is_multiple_of(60) => {
                format!("tracker queue full, retry in {} minutes", retry / 60)
            }
            Refusal::Full => format!("tracker queue full, retry in {retry} seconds"),
        }
    }
}

/// An announce as it was received.
pub(crate) struct Call<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) now: Seconds,
    /// Where it came from.
    pub(crate) client: IpAddr,
    pub(crate) announce: &'a Announce,
    pub(crate) families: Families,
    /// Whether peers' names are wanted.
    pub(crate) named: bool,
    pub(crate) random: u32,
    pub(crate) counters: &'a Counters,
}

impl Call<'_> {
    /// Where others reach the client.
    pub(crate) fn at(&self) -> Packed {
        let ip = match self.announce.ip {
            Some(ip) if self.plan.config.allow_ip_parameter => ip,
            _ => self.client,
        };
        Packed::new(ip, self.announce.port)
    }
}

/// What the swarm said while it was locked.
struct Seen {
    counts: Counts,
    /// Some forwarder may be asked.
    due: bool,
    /// No forwarder was ever asked.
    first: bool,
    /// The first forwards are on their way.
    waiting: bool,
}

impl Plane {
    /// Answers an announce; its peers are left in `peers`.
    pub(crate) fn announce(&self, call: &Call<'_>, peers: &mut Peers) -> Verdict {
        peers.clear();
        let Call { plan, announce, .. } = call;
        if let Some(words) = plan.access.refuses(&announce.info_hash, call.client) {
            return Verdict::Denied(words);
        }
        let at = call.at();
        if announce.event == Event::Stopped {
            return self.stopped(call, at);
        }
        let seen = self.shared.swarms.with(&announce.info_hash, |swarm| {
            self.hear(call, at, swarm, peers)
        });
        let config = &plan.config;
        let interval = config.announce_interval.as_secs() as Seconds;
        let soon = interval.min(config.first_interval.as_secs() as Seconds);
        let answer = |interval| Verdict::Peers {
            interval,
            counts: seen.counts,
        };
        if announce.event == Event::Completed {
            if plan.tells(announce) {
                self.forwarding.completed(call);
            }
        } else if seen.due {
            let offered = self.forwarding.announce(call, seen.first, &mut peers.later);
            let retry = match offered {
                Offered::Queued if seen.first => return answer(soon),
                Offered::Queued | Offered::Nothing => None,
                Offered::Busy => Some((Refusal::Busy, config.retry_period)),
                Offered::Full => Some((Refusal::Full, config.announce_interval)),
            };
            if let Some((why, retry)) = retry {
                if config.overload == Overload::Serve {
                    return answer(soon);
                }
                let retry = retry.as_secs() as Seconds;
                return Verdict::Refused { why, retry };
            }
        }
        answer(if seen.waiting { soon } else { interval })
    }

    /// The answers are sent: what need not be done before is done now.
    pub(crate) fn hand_in_later(&self, peers: &mut Peers, counters: &Counters) {
        self.forwarding.hand_in(&mut peers.later, counters);
    }

    fn hear(&self, call: &Call<'_>, at: Packed, swarm: &mut Swarm, peers: &mut Peers) -> Seen {
        let Call { now, announce, .. } = call;
        let by = self.shared.count_by;
        let seeder = announce.is_seeder();
        let change = swarm.hear(*now, at, announce.peer_id, seeder, by);
        if announce.event == Event::Completed && change != Change::Same {
            swarm.downloaded = swarm.downloaded.saturating_add(1);
        }
        draw(call, at, swarm, peers);
        let known = swarm.known.as_ref();
        let due = swarm.due <= *now && call.plan.forwards(&announce.info_hash);
        Seen {
            counts: swarm.counts(by),
            due,
            first: due && known.is_none_or(|known| !known.was_asked()),
            waiting: known.is_some_and(|known| known.is_waiting()),
        }
    }

    fn stopped(&self, call: &Call<'_>, at: Packed) -> Verdict {
        if !call.plan.stations.is_empty() {
            self.forwarding.take_back(call.announce);
        }
        let by = self.shared.count_by;
        let hash = &call.announce.info_hash;
        let left = self.shared.swarms.with_known(hash, |swarm| {
            swarm.leave(at, by);
            let known = swarm.known.as_mut();
            let told = known.map(|known| known.untell(call.announce.peer_id));
            if swarm.local_peers() == 0 {
                swarm.drop_known(by);
            }
            (swarm.counts(by), told.unwrap_or_default())
        });
        let (counts, told) = left.unwrap_or_default();
        self.forwarding.stopped(call, &told);
        Verdict::Peers {
            interval: call.plan.config.announce_interval.as_secs() as Seconds,
            counts,
        }
    }

    /// A swarm's totals; zeros if there is none, or none is served.
    pub(crate) fn scrape(&self, plan: &Plan, hash: &InfoHash) -> Counts {
        if plan.access.refuses_torrent(hash) {
            return Counts::default();
        }
        let by = self.shared.count_by;
        let counts = self
            .shared
            .swarms
            .with_known(hash, |swarm| swarm.counts(by));
        counts.unwrap_or_default()
    }
}

/// Leaves peers for the client in its buffers.
fn draw(call: &Call<'_>, at: Packed, swarm: &Swarm, peers: &mut Peers) {
    let most = call.plan.config.max_peers;
    let draw = Draw {
        want: call.announce.numwant.map_or(most, |want| want.min(most)) as usize,
        id: call.announce.peer_id,
        seeder: call.announce.is_seeder(),
        random: call.random,
    };
    let (me4, me6) = match &at {
        Packed::V4(at) => (Some(at), None),
        Packed::V6(at) => (None, Some(at)),
    };
    if call.families != Families::V6 {
        swarm.draw4(&draw, me4, &mut peers.v4);
    }
    if call.families != Families::V4 {
        swarm.draw6(&draw, me6, &mut peers.v6);
    }
    if call.named {
        let v4 = peers.v4.as_chunks::<6>().0.iter();
        let v4 = v4.map(|at| (swarm.v4.id(at), compact::unpack4(at)));
        let v6 = peers.v6.as_chunks::<18>().0.iter();
        let v6 = v6.map(|at| (swarm.v6.id(at), compact::unpack6(at)));
        peers.named.extend(v4.chain(v6));
    }
}
