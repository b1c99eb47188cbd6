//! The forward plane over hours of virtual time, with forwarders that cost no network.

mod access;
mod drops;
mod explanations;
mod floods;
mod in_flight_bounds;
mod locks;
mod outages;
mod own_addresses;
mod permits;
mod places;
mod rejections;
mod reports;
mod restarts;

use super::*;
use crate::announce::{AnnounceHandler, AnnounceOutcome, ResponseBuffers};
use crate::client::{ClientError, FakeNetwork};
use crate::explain::explain;
use crate::forwarders::{Forwarder, ForwarderState};
use crate::request::AddressFamilies;
use crate::subscriptions::Subscriptions;
use crate::swarms::{PackedAddress, Peer};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_tracker_wire::response::{self, AnnounceResponse};
use headworks_tracker_wire::{Announce, Event};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use tokio::time::Instant as VirtualInstant;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The time that a good forwarder takes.
const DELAY: Duration = Duration::from_millis(50);

/// The most requests over HTTP that need no worker.
const REQUESTS: usize = 128;

fn no_peers() -> Result<AnnounceResponse, ClientError> {
    Ok(response::parse(b"d8:intervali1800e5:peers0:e").unwrap())
}

/// A forward plane with a number of forwarders behind a fake network.
fn start(forwarders: usize, fake: FakeNetwork) -> (Arc<TrackerState>, Forwarding) {
    let one = |number: usize| format!("udp://192.0.2.1:{}", number + 1);
    let uris: Vec<String> = (0..forwarders).map(one).collect();
    start_at(&uris, fake)
}

/// A forward plane with forwarders at those URIs behind a fake network.
fn start_at(uris: &[impl AsRef<str>], fake: FakeNetwork) -> (Arc<TrackerState>, Forwarding) {
    let config = TrackerConfig {
        forwarders: uris.iter().map(|uri| Forwarder::at(uri.as_ref())).collect(),
        forwarder_queue_size: 1_000_000,
        ..TrackerConfig::default()
    };
    start_with(&config, fake)
}

/// A forward plane with a configuration, behind a fake network.
fn start_with(config: &TrackerConfig, fake: FakeNetwork) -> (Arc<TrackerState>, Forwarding) {
    let active = ActiveConfig::new(config, &Subscriptions::default(), &[]).unwrap();
    let state = Arc::new(TrackerState::new(active));
    let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
    let outbound = Outbound::with_proxies(&OutboundConfig::default(), proxies).unwrap();
    let mut client = TrackerClient::new(outbound).unwrap();
    client.fake = Some(fake);
    let forwarding = Forwarding::start(&state, client, REQUESTS, &Shutdown::new()).unwrap();
    (state, forwarding)
}

/// Handles an announce of the client.
fn send(handler: &AnnounceHandler, announce: Announce) -> AnnounceOutcome {
    send_from(CLIENT, handler, announce)
}

/// Handles an announce of a client.
fn send_from(client: IpAddr, handler: &AnnounceHandler, announce: Announce) -> AnnounceOutcome {
    let (active, counters) = (handler.state.active(), handler.state.new_counters());
    let request = AnnounceRequest {
        active: &active,
        now: handler.state.clock.now(),
        client,
        announce: &announce,
        families: AddressFamilies::V4,
        as_dicts: false,
        random: 0,
        counters: &counters,
    };
    let mut buffers = ResponseBuffers::default();
    let outcome = handler.announce(&request, &mut buffers);
    handler.submit_pending(&mut buffers, &counters);
    outcome
}

fn announce(torrent: u32, event: Event) -> Announce {
    let mut announce = Announce {
        port: 6881,
        left: Some(1),
        event,
        ..Announce::default()
    };
    announce.info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
    announce.peer_id.0[0] = 1;
    announce
}

fn add_torrents(state: &TrackerState, forwarding: &Forwarding, torrents: u32) {
    for torrent in 0..torrents {
        let announce = announce(torrent, Event::Started);
        state.swarms.with_or_insert(&announce.info_hash, |swarm| {
            let address = PackedAddress::new(CLIENT, announce.port);
            let peer = Peer {
                id: announce.peer_id,
                key: 0,
                seeder: false,
                last_announce: state.clock.now(),
            };
            swarm.upsert_peer(CLIENT, address, peer, state.count_by);
            swarm.announce_peer(&announce, CLIENT, address, 10);
        });
    }
    forwarding.arm_all();
}

/// With `HEADWORKS_FULL=1` there are ten thousand torrents and a hundred forwarders.
#[tokio::test(start_paused = true)]
async fn every_announce_is_sent_when_it_is_due() {
    // The last number is the most announces in a second, relative to the average of each round. A
    // round is the sum of several delays, so it is denser in the middle. With few announces chance
    // weighs more.
    let (torrents, forwarders, densest) = match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => (10_000, 100, [1.5, 1.9, 2.2]),
        None => (300, 10, [3.0; 3]),
    };
    type Asks = HashMap<(u16, InfoHash), Vec<Duration>>;
    let asks = Arc::new(Mutex::new(Asks::new()));
    let (log, began) = (asks.clone(), VirtualInstant::now());
    let fake = move |forwarder: &ForwarderState, announce: Option<&Announce>| {
        let port = forwarder.uri.port_u16().unwrap_or_default();
        if let Some(announce) = announce {
            let key = (port, announce.info_hash);
            log.lock().entry(key).or_default().push(began.elapsed());
        }
        (DELAY, no_peers())
    };
    let (state, forwarding) = start(forwarders, Box::new(fake));
    add_torrents(&state, &forwarding, torrents);
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;

    let asks = asks.lock();
    assert_eq!(asks.len(), torrents as usize * forwarders);
    // The asks per second of each round. Rounds are half an hour apart and do not overlap.
    let mut rounds = [const { BTreeMap::<u64, usize>::new() }; 3];
    for times in asks.values() {
        assert!(times.len() >= 4, "{times:?}");
        for (round, pair) in times.windows(2).enumerate() {
            let gap = (pair[1] - pair[0]).as_secs_f64();
            assert!((1800.0..=1980.0).contains(&gap), "{gap} s after the last");
            if let Some(round) = rounds.get_mut(round) {
                *round.entry(pair[1].as_secs()).or_default() += 1;
            }
        }
    }
    for (number, round) in rounds.iter().enumerate() {
        let (first, last) = (round.keys().min().unwrap(), round.keys().max().unwrap());
        let window = last - first + 1;
        // Each round is nearly a tenth of the interval wider than the one before.
        let least = 160 * (number as u64 + 1);
        assert!(window >= least, "all within {window} s, not {least}");
        let (all, most) = (round.values().sum::<usize>(), round.values().max().unwrap());
        let mean = all as f64 / window as f64;
        println!("round {number}: at most {most} in a second, {mean:.0} on average");
        let limit = densest[number] * mean;
        assert!(
            *most as f64 <= limit,
            "{most} in a second, {mean} on average"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_is_given_up_after_half_an_hour_of_retries() {
    let stopped = Arc::new(Mutex::new(0));
    let count = stopped.clone();
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        if announce.is_none_or(|announce| announce.event != Event::Stopped) {
            return (DELAY, no_peers());
        }
        *count.lock() += 1;
        let busy = response::parse(b"d14:failure reason4:busy8:retry ini0ee").unwrap();
        (DELAY, Ok(busy))
    };
    let (state, forwarding) = start(1, Box::new(fake));
    let (announce, counters) = (announce(1, Event::Stopped), state.new_counters());
    let active = state.active();
    let request = AnnounceRequest {
        active: &active,
        now: state.clock.now(),
        client: CLIENT,
        announce: &announce,
        families: AddressFamilies::V4,
        as_dicts: false,
        random: 0,
        counters: &counters,
    };
    forwarding.stopped(&request, &[ForwarderId(0)]);
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    let stopped = *stopped.lock();
    assert!(
        (20..=31).contains(&stopped),
        "{stopped} times, once per minute"
    );
}

/// A cold start with ten good forwarders among many bad ones, by the seed. Returns the number of
/// outages that were assumed.
async fn cold_start(seed: u64) -> u64 {
    const GOOD: usize = 10;
    let mut random = fastrand::Rng::with_seed(seed);
    let bad = [5, 20, 60, 200][random.usize(..4)];
    // Good forwarders are anywhere in the list.
    let mut kinds: Vec<usize> = (0..GOOD).map(|_| 0).collect();
    // Some lists have one kind of bad forwarders only.
    let only = random.usize(..8);
    kinds.extend((0..bad).map(|_| match only {
        kind @ 1..=4 => kind,
        _ => random.usize(1..=4),
    }));
    random.shuffle(&mut kinds);
    let (asked, forwarders) = (Arc::new(Mutex::new(HashSet::new())), kinds.len());
    let log = asked.clone();
    let fake = move |forwarder: &ForwarderState, announce: Option<&Announce>| {
        let number = usize::from(forwarder.uri.port_u16().unwrap_or_default()) - 1;
        if let Some(announce) = announce.filter(|_| kinds[number] == 0) {
            log.lock().insert((number, announce.info_hash));
        }
        match kinds[number] {
            0 => (DELAY, no_peers()),
            1 => (Duration::from_secs(3600), Err(ClientError::Timeout)),
            2 => (DELAY, Err(ClientError::Refused)),
            3 => (DELAY, Err(ClientError::NoSuchHost)),
            _ => (Duration::from_secs(5), no_peers()),
        }
    };
    let (state, forwarding) = start(forwarders, Box::new(fake));
    const TORRENTS: u32 = 50;
    add_torrents(&state, &forwarding, TORRENTS);
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(asked.lock().len(), GOOD * TORRENTS as usize, "seed {seed}");
    forwarding.shutdown(Duration::ZERO).await;
    forwarding.outage.outages.get()
}

/// With `HEADWORKS_FULL=1` there are a hundred cold starts.
#[tokio::test(start_paused = true)]
async fn no_cold_start_raises_a_false_alarm() {
    let starts = match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => 100,
        None => 12,
    };
    for seed in 0..starts {
        assert_eq!(cold_start(seed).await, 0, "outages with seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_real_outage_is_found_and_healed() {
    let (down, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0)));
    let (cut, log) = (down.clone(), asked.clone());
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        if cut.load(Ordering::Relaxed) {
            return (Duration::from_secs(3600), Err(ClientError::Timeout));
        }
        *log.lock() += usize::from(announce.is_some());
        (DELAY, no_peers())
    };
    let (state, forwarding) = start(20, Box::new(fake));
    add_torrents(&state, &forwarding, 50);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(*asked.lock(), 1000);
    down.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2400)).await;
    assert!(forwarding.outage.is_down());
    let active = state.active();
    assert!(active.listed_forwarders().all(|(_, one)| one.is_usable()));
    down.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert!(!forwarding.outage.is_down());
    assert_eq!(forwarding.outage.outages.get(), 1);
    let asked = *asked.lock();
    assert!(asked >= 2000, "every torrent is announced again: {asked}");
}

#[tokio::test(start_paused = true)]
async fn an_announce_takes_its_swarms_lock_at_most_three_times() {
    let (state, forwarding) = start(3, Box::new(|_, _| (DELAY, no_peers())));
    let handler = AnnounceHandler { state, forwarding };
    let (state, counters) = (&handler.state, handler.state.new_counters());
    let mut buffers = ResponseBuffers::default();
    let locks = async |event: Event, peer: u8, buffers: &mut ResponseBuffers| {
        let mut announce = announce(1, event);
        announce.peer_id.0[0] = peer;
        announce.port += u16::from(peer);
        let before = state.swarms.locks.load(Ordering::Relaxed);
        let request = AnnounceRequest {
            active: &state.active(),
            now: state.clock.now(),
            client: CLIENT,
            announce: &announce,
            families: AddressFamilies::V4,
            as_dicts: false,
            random: 0,
            counters: &counters,
        };
        handler.announce(&request, buffers);
        handler.submit_pending(buffers, &counters);
        let at_once = state.swarms.locks.load(Ordering::Relaxed) - before;
        // Everything that follows belongs to the forwards.
        tokio::time::sleep(Duration::from_secs(1)).await;
        at_once
    };
    // One more is taken by the submit task, where forwarders are selected.
    assert_eq!(locks(Event::Started, 1, &mut buffers).await, 1, "first");
    assert_eq!(locks(Event::None, 1, &mut buffers).await, 1, "not due");
    assert_eq!(locks(Event::Started, 2, &mut buffers).await, 1, "another");
    assert_eq!(locks(Event::Completed, 1, &mut buffers).await, 1);
    assert_eq!(locks(Event::Stopped, 1, &mut buffers).await, 2, "cancelled");
    assert_eq!(locks(Event::Stopped, 9, &mut buffers).await, 2, "unknown");
}
