use super::*;
use crate::client::TrackerClient;
use crate::forwarders::Forwarder;
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_tracker_wire::udp::Request;
use headworks_tracker_wire::{Announce, Counts};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::UdpSocket;

fn client() -> UdpClient {
    UdpClient::new(DnsCache::default()).unwrap()
}

fn state(uri: &str) -> ForwarderState {
    ForwarderState::new(&Forwarder::at(uri), "f").unwrap()
}

/// Answers every request at an address and counts them.
fn respond(socket: UdpSocket) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut out = Vec::new();
            match udp::parse_request(&buffer[..length]) {
                Ok(Request::Connect { transaction }) => {
                    udp::write_connect_response(transaction, 9, &mut out);
                }
                Ok(Request::Announce { transaction, .. }) => {
                    udp::write_announce_response(transaction, 900, Counts::default(), &mut out);
                }
                _ => continue,
            }
            let _ = socket.send_to(&out, from).await;
        }
    })
}

#[tokio::test]
async fn a_closed_port_is_refused_at_once() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let open = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let good = state(&format!("udp://{}", open.local_addr().unwrap()));
    let _task = respond(open);
    let (client, bad) = (client(), state(&format!("udp://{address}")));
    let announce = Announce::default();
    for _ in 0..3 {
        // The refusal ends the request: nothing here would end its wait otherwise.
        let result = client.announce(&AnnounceQuery::new(&bad, &announce)).await;
        assert_eq!(result, Err(ClientError::Refused));
        // The refusal is that of another forwarder, although they share the socket.
        let result = client.announce(&AnnounceQuery::new(&good, &announce)).await;
        assert!(
            matches!(result, Ok(AnnounceResponse::Peers(_))),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn a_name_in_a_public_list_does_not_lead_into_our_network() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("udp://localhost:{}", socket.local_addr().unwrap().port());
    let _task = respond(socket);
    let client = client();
    let announce = Announce::default();
    for published in [false, true] {
        let listed = Forwarder {
            published,
            ..Forwarder::at(&uri)
        };
        let state = ForwarderState::new(&listed, "f").unwrap();
        let result = client
            .announce(&AnnounceQuery::new(&state, &announce))
            .await;
        let refused = result == Err(ClientError::PrivateHost);
        assert_eq!(refused, published, "{result:?}");
        let probe = client.probe(&state).await;
        assert_eq!(probe.is_err(), published, "{probe:?}");
    }
}

#[tokio::test]
async fn a_forwarder_that_forgot_its_connection_ids_is_asked_again_at_once() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let forwarder = state(&format!("udp://{}", socket.local_addr().unwrap()));
    // It is restarted before every announce but the first: only the newest id is known.
    let _task = tokio::spawn(async move {
        let (mut issued, mut forgets, mut buffer) = (0, false, [0; 2048]);
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut out = Vec::new();
            match udp::parse_request(&buffer[..length]) {
                Ok(Request::Connect { transaction }) => {
                    (issued, forgets) = (issued + 1, false);
                    udp::write_connect_response(transaction, issued, &mut out);
                }
                Ok(Request::Announce { transaction, .. }) if forgets => {
                    udp::write_error_response(transaction, "Connection ID missmatch.", &mut out);
                }
                Ok(Request::Announce { transaction, .. }) => {
                    forgets = true;
                    udp::write_announce_response(transaction, 900, Counts::default(), &mut out);
                }
                _ => continue,
            }
            let _ = socket.send_to(&out, from).await;
        }
    });
    let (client, announce) = (client(), Announce::default());
    for _ in 0..3 {
        let query = AnnounceQuery::new(&forwarder, &announce);
        let result = client.announce(&query).await;
        assert!(
            matches!(result, Ok(AnnounceResponse::Peers(_))),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn the_family_that_responds_is_used() {
    let v6 = UdpSocket::bind("[::1]:0").await.unwrap();
    let port = v6.local_addr().unwrap().port();
    // A socket that never responds on IPv4.
    let _silent = UdpSocket::bind(("127.0.0.1", port)).await;
    let _task = respond(v6);
    let (client, forwarder) = (client(), state(&format!("udp://both.example:{port}")));
    let both = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    let (to, _) = client.connect_first(&forwarder, &both).await.unwrap();
    assert!(to.is_ipv6());
    assert_eq!(*forwarder.responding_address.lock(), Some(to));
}

/// Answers the first announce and none after it. Returns the number of packets so far.
fn respond_once(socket: UdpSocket) -> Arc<AtomicUsize> {
    let packets = Arc::<AtomicUsize>::default();
    let count = packets.clone();
    tokio::spawn(async move {
        let (mut buffer, mut silent) = ([0; 2048], false);
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, Ordering::Relaxed);
            let mut out = Vec::new();
            match udp::parse_request(&buffer[..length]) {
                Ok(Request::Connect { transaction }) if !silent => {
                    udp::write_connect_response(transaction, 9, &mut out);
                }
                Ok(Request::Announce { transaction, .. }) if !silent => {
                    silent = true;
                    udp::write_announce_response(transaction, 900, Counts::default(), &mut out);
                }
                _ => continue,
            }
            let _ = socket.send_to(&out, from).await;
        }
    });
    packets
}

#[tokio::test]
async fn an_address_that_falls_silent_is_left_for_the_other_family() {
    let v4 = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = v4.local_addr().unwrap().port();
    let v4_packets = respond_once(v4);
    let both = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    let names = DnsCache::with_lookup(move |_| Box::pin(async move { Ok(both.to_vec()) }));
    let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
    let outbound = Outbound::with_proxies(&OutboundConfig::default(), proxies).unwrap();
    let client = TrackerClient {
        udp: UdpClient::new(names).unwrap(),
        ..TrackerClient::new(outbound).unwrap()
    };
    let forwarder = state(&format!("udp://both.example:{port}"));
    let announce = Announce::default();
    let query = AnnounceQuery::new(&forwarder, &announce);
    // Only IPv4 answers at first.
    client.announce(&query, Duration::MAX).await.unwrap();
    assert_eq!(*forwarder.responding_address.lock(), Some(both[0]));
    let v6 = UdpSocket::bind(both[1]).await.unwrap();
    let _task = respond(v6);
    // The forwarder may be slow, so the limit is what ends the wait.
    let timeout = Duration::from_millis(200);
    let result = client.announce(&query, timeout).await;
    assert_eq!(result, Err(ClientError::Timeout));
    let before = v4_packets.load(Ordering::Relaxed);
    let result = client.announce(&query, Duration::MAX).await;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(*forwarder.last_address.lock(), Some(both[1].ip()));
    assert!(v4_packets.load(Ordering::Relaxed) <= before + 1, "one try");
}

#[test]
fn families_alternate() {
    let addresses = ["[::1]:1", "[::2]:1", "1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"];
    let addresses = addresses.map(|address| address.parse().unwrap());
    let texts = |with_v6| -> Vec<String> {
        let alternating = alternate(&addresses, with_v6).into_iter();
        alternating.map(|address| address.to_string()).collect()
    };
    assert_eq!(
        texts(true),
        ["1.1.1.1:1", "[::1]:1", "2.2.2.2:1", "[::2]:1"]
    );
    assert_eq!(texts(false), ["1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]);
}

/// Returns the number of packets in a socket.
fn packets(socket: &std::net::UdpSocket) -> usize {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

#[tokio::test(start_paused = true)]
async fn packets_are_retransmitted_with_growing_pauses() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let forwarder = state(&format!("udp://{}", silent.local_addr().unwrap()));
    let client = client();
    let query = AnnounceQuery::new(&forwarder, &Announce::default());
    let ask = |limit| tokio::time::timeout(Duration::from_secs(limit), client.announce(&query));
    assert!(ask(100).await.is_err());
    assert_eq!(packets(&silent), 3, "at 0, 15 and 45 s");
    for _ in 0..20 {
        forwarder.latency.record_response(Duration::from_millis(50));
    }
    assert!(ask(10).await.is_err());
    assert_eq!(
        packets(&silent),
        3,
        "at 0, 2 and 6 s, for a forwarder that is usually quick"
    );
}

#[tokio::test]
async fn expired_connection_ids_are_dropped() {
    let client = client();
    let expired = Instant::now().checked_sub(CONNECTION_LIFETIME).unwrap();
    for number in 0..10_000_u32 {
        let to = SocketAddr::from((Ipv4Addr::from_bits(number), 1));
        client.remember(to, 7, expired);
    }
    let kept = client.connections.lock().len();
    assert!(kept < 100, "{kept} expired ids");
}
