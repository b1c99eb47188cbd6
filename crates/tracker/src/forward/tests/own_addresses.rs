//! Peers that look like one of ours.

use super::*;
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
