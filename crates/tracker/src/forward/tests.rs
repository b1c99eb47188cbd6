//! The forward plane over hours of virtual time, with forwarders that cost no network.

use super::*;
use crate::client::FakeNetwork;
use crate::forwarders::Forwarder;
use crate::request::AddressFamilies;
use crate::subscriptions::Subscriptions;
use crate::swarms::PackedAddress;
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_tracker_wire::response::{self, AnnounceResponse};
use headworks_tracker_wire::{Announce, Event};
use parking_lot::Mutex;
use std::net::IpAddr;
use tokio::time::Instant as VirtualInstant;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A forward plane with a number of forwarders behind a fake network.
fn start(forwarders: usize, fake: FakeNetwork) -> (Arc<TrackerState>, Forwarding) {
    let one = |number: usize| Forwarder::at(&format!("udp://192.0.2.1:{}", number + 1));
    let config = TrackerConfig {
        forwarders: (0..forwarders).map(one).collect(),
        forwarder_queue_size: 1_000_000,
        ..TrackerConfig::default()
    };
    let active = ActiveConfig::new(&config, &Subscriptions::default(), &[]).unwrap();
    let state = Arc::new(TrackerState::new(active));
    let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
    let outbound = Outbound::with_proxies(&OutboundConfig::default(), proxies).unwrap();
    let mut client = TrackerClient::new(outbound).unwrap();
    client.fake = Some(fake);
    let forwarding = Forwarding::start(&state, client, &Shutdown::new()).unwrap();
    (state, forwarding)
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
            let (id, now) = (announce.peer_id, state.clock.now());
            swarm.upsert_peer(now, CLIENT, address, id, false, state.count_by);
            swarm.announce_peer(&announce, CLIENT, address, 10);
        });
    }
    forwarding.arm_all();
}

/// With `HEADWORKS_FULL=1` there are ten thousand torrents and a hundred forwarders.
#[tokio::test(start_paused = true)]
async fn every_announce_is_sent_when_it_is_due() {
    let (torrents, forwarders) = match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => (10_000, 100),
        None => (300, 10),
    };
    type Asks = HashMap<(u16, InfoHash), Vec<Duration>>;
    let asks = Arc::new(Mutex::new(Asks::new()));
    let (log, began) = (asks.clone(), VirtualInstant::now());
    let fake = move |query: &crate::client::AnnounceQuery<'_>| {
        let port = query.forwarder.uri.port_u16().unwrap_or_default();
        let key = (port, query.announce.info_hash);
        log.lock().entry(key).or_default().push(began.elapsed());
        Ok(response::parse(b"d8:intervali1800e5:peers0:e").unwrap())
    };
    let (state, forwarding) = start(forwarders, Box::new(fake));
    add_torrents(&state, &forwarding, torrents);
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;

    let asks = asks.lock();
    assert_eq!(asks.len(), torrents as usize * forwarders);
    let (mut per_second, mut all) = (HashMap::<u64, usize>::new(), 0);
    for times in asks.values() {
        assert!(times.len() >= 4, "{times:?}");
        for pair in times.windows(2) {
            let gap = (pair[1] - pair[0]).as_secs_f64();
            assert!((1799.0..=1980.0).contains(&gap), "{gap} s after the last");
            *per_second.entry(pair[1].as_secs()).or_default() += 1;
            all += 1;
        }
    }
    let most = per_second.values().max().copied().unwrap_or(0);
    assert!(most * 50 < all, "{most} of {all} within a second");
}

#[tokio::test(start_paused = true)]
async fn stopped_is_given_up_after_half_an_hour_of_retries() {
    let stopped = Arc::new(Mutex::new(0));
    let count = stopped.clone();
    let fake = move |query: &crate::client::AnnounceQuery<'_>| {
        if query.announce.event != Event::Stopped {
            return Ok(AnnounceResponse::Peers(Default::default()));
        }
        *count.lock() += 1;
        Ok(response::parse(b"d14:failure reason4:busy8:retry ini0ee").unwrap())
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
