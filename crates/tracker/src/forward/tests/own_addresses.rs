//! Peers that look like one of ours.

use super::*;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const SEEDER: Ipv4Addr = Ipv4Addr::new(45, 33, 32, 156);

#[tokio::test(start_paused = true)]
async fn a_popular_seeder_with_the_port_of_our_client_is_not_hidden() {
    let fake = |_: &ForwarderState, _: Option<&Announce>| {
        let mut body = b"d8:intervali1800e5:peers6:".to_vec();
        body.extend(SEEDER.octets());
        body.extend(6881_u16.to_be_bytes());
        body.push(b'e');
        (DELAY, Ok(response::parse(&body).unwrap()))
    };
    let uris = [
        "udp://192.0.2.1:1",
        "udp://192.0.2.2:1",
        "udp://192.0.2.3:1",
    ];
    let (state, forwarding) = start_at(&uris, Box::new(fake));
    let handler = AnnounceHandler { state, forwarding };
    for torrent in 0..8 {
        send(&handler, announce(torrent, Event::Started));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for torrent in 0..8 {
        let hash = announce(torrent, Event::None).info_hash;
        let cached = (handler.state.swarms).with_existing(&hash, |swarm| swarm.cached_peers());
        assert_eq!(cached, Some(1), "torrent {torrent}");
    }
}

/// The address of this network, as forwarders see it.
const OURS: Ipv4Addr = Ipv4Addr::new(45, 33, 32, 7);

/// Trackers that report every client that was announced to any of them, at the address that they
/// see, as UDP trackers do.
fn report_all() -> FakeNetwork {
    let ports = Mutex::new(BTreeMap::<InfoHash, BTreeSet<u16>>::new());
    Box::new(move |_, announce| {
        let Some(announce) = announce else {
            return (DELAY, no_peers());
        };
        let mut ports = ports.lock();
        let ports = ports.entry(announce.info_hash).or_default();
        ports.insert(announce.port);
        let mut body = format!("d8:intervali1800e5:peers{}:", 6 * ports.len()).into_bytes();
        for port in ports.iter() {
            body.extend(OURS.octets());
            body.extend(port.to_be_bytes());
        }
        body.push(b'e');
        (DELAY, Ok(response::parse(&body).unwrap()))
    })
}

fn cached(handler: &AnnounceHandler, torrent: u32) -> usize {
    let hash = announce(torrent, Event::None).info_hash;
    let cached = (handler.state.swarms).with_existing(&hash, |swarm| swarm.cached_peers());
    cached.unwrap()
}

#[tokio::test(start_paused = true)]
async fn our_address_is_learned_from_two_hosts_that_report_two_of_our_clients() {
    for (second, known) in [("udp://198.51.100.1:1", true), ("udp://192.0.2.1:2", false)] {
        let uris = ["udp://192.0.2.1:1", second];
        let (state, forwarding) = start_at(&uris, report_all());
        let handler = AnnounceHandler { state, forwarding };
        let send_peer = async |torrent: u32, port: u16| {
            let mut announce = announce(torrent, Event::Started);
            (announce.port, announce.peer_id.0[1]) = (port, port as u8);
            send_from([10, 0, 0, port as u8].into(), &handler, announce);
            tokio::time::sleep(Duration::from_secs(10)).await;
        };
        send_peer(1, 6881).await;
        assert_eq!(cached(&handler, 1), 1, "one port proves nothing");
        send_peer(1, 51_413).await;
        assert_eq!(cached(&handler, 1) == 0, known, "{second}");
        send_peer(2, 6881).await;
        assert_eq!(cached(&handler, 2) == 0, known, "{second}");
    }
}
