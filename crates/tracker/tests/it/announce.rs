//! The announce plane over real sockets.

use crate::support::{Client, Running, announce};
use headworks_tracker_wire::response::{self, AnnounceResponse};
use headworks_tracker_wire::udp::{self, Response};
use headworks_tracker_wire::{Event, query, scrape};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_each_other_over_both_transports() {
    let running = Running::start("");
    let mut seeder = announce(1, 1, Event::Started);
    seeder.left = Some(0);
    assert!(running.peers(&seeder).await.is_empty());

    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    let mut packet = Vec::new();
    udp::write_announce(
        id,
        77,
        &announce(1, 2, Event::Started),
        b"/announce",
        &mut packet,
    );
    let answer = client.exchange(&packet).expect("a response");
    let Some(Response::Announce {
        transaction: 77,
        interval: 1800,
        counts,
        peers,
    }) = udp::parse_response(&answer)
    else {
        panic!("{answer:?}")
    };
    assert_eq!(peers, [127, 0, 0, 1, 0x27, 0x11]);
    assert_eq!(
        (counts.complete, counts.incomplete),
        (1, 0),
        "one address counts once"
    );

    assert_eq!(
        running.peers(&seeder).await.len(),
        1,
        "the seeder sees the leecher"
    );
    packet.clear();
    udp::write_announce(id, 78, &announce(1, 2, Event::Completed), b"", &mut packet);
    client.exchange(&packet).expect("a response");
    assert!(
        running.peers(&seeder).await.is_empty(),
        "a seeder gets no seeders"
    );

    let mut path = String::from("/scrape?info_hash=");
    headworks_tracker_wire::percent_encode(&seeder.info_hash.0, &mut path);
    let counts = scrape::parse(&running.get(&path).await).unwrap()[0].1;
    assert_eq!((counts.complete, counts.downloaded), (1, 1));
    assert!(
        running
            .get("/scrape")
            .await
            .starts_with(b"d14:failure reason")
    );

    running.announce(&announce(1, 1, Event::Stopped)).await;
    packet.clear();
    udp::write_announce(id, 79, &announce(1, 2, Event::Stopped), b"", &mut packet);
    client.exchange(&packet).expect("a response");
    // Empty torrents are removed.
    running.shows("/stats", "torrents: 0\n").await;
    assert_eq!(running.metric("headworks_tracker_torrents").await, 0.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_two_thousand_announces_is_answered_completely() {
    let running = Running::start("");
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    let receiver = Client(client.0.try_clone().unwrap(), client.1);
    let answers = std::thread::spawn(move || {
        let mut seen = BTreeSet::new();
        while seen.len() < 2000 {
            let Some(packet) = receiver.receive() else {
                break;
            };
            let Some(Response::Announce { transaction, .. }) = udp::parse_response(&packet) else {
                panic!("not an announce response")
            };
            assert!(seen.insert(transaction), "one response per request");
        }
        seen
    });
    for number in 0..2000 {
        let mut packet = Vec::new();
        udp::write_announce(
            id,
            number,
            &announce(number % 7, number as u16, Event::None),
            b"",
            &mut packet,
        );
        client.0.send_to(&packet, client.1).unwrap();
    }
    assert_eq!(answers.join().unwrap(), (0..2000).collect());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_connection_ids_get_no_response() {
    let running = Running::start("");
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    let other = Client::at("127.0.0.2:0", running.udp());
    let mut packet = Vec::new();
    udp::write_announce(id, 5, &announce(1, 1, Event::None), b"", &mut packet);
    other.0.send_to(&packet, other.1).unwrap();
    packet.clear();
    udp::write_announce(id ^ 4, 6, &announce(1, 1, Event::None), b"", &mut packet);
    client.0.send_to(&packet, client.1).unwrap();
    running
        .shows("/stats", "0 announces, 0 scrapes, 2 bad")
        .await;
    // The next response belongs to the next request, so the invalid ones got none.
    packet.clear();
    udp::write_announce(id, 7, &announce(1, 1, Event::None), b"", &mut packet);
    let answer = client.exchange(&packet).expect("a response");
    assert!(matches!(
        udp::parse_response(&answer),
        Some(Response::Announce { transaction: 7, .. })
    ));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_serves_pipelined_requests() {
    let running = Running::start("tracker_id = 'me'\n");
    let at = running.http();
    let read = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(at).unwrap();
        let mut requests = String::new();
        for peer in 0..100 {
            requests.push_str("GET /announce.php?");
            query::write_announce(&announce(1, peer, Event::Started), None, &mut requests);
            requests.push_str(" HTTP/1.1\r\nHost: t\r\n\r\n");
        }
        requests.push_str("GET /healthz HTTP/1.0\r\n\r\n");
        // In pieces that end at arbitrary bytes.
        for piece in requests.as_bytes().chunks(997) {
            stream.write_all(piece).unwrap();
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    });
    let answer = String::from_utf8_lossy(&read.await.unwrap()).into_owned();
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 101);
    assert_eq!(answer.matches("10:tracker id2:me").count(), 100);
    assert!(
        answer.ends_with("Connection: close\r\nContent-Length: 3\r\n\r\nok\n"),
        "{answer}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_respect_numwant_and_the_requested_form() {
    let running = Running::start("");
    for peer in 0..80 {
        running.announce(&announce(1, peer, Event::None)).await;
    }
    for (want, got) in [(Some(0), 0), (Some(7), 7), (None, 50), (Some(9999), 50)] {
        let mut asks = announce(1, 0, Event::None);
        asks.numwant = want;
        assert_eq!(running.peers(&asks).await.len(), got, "{want:?}");
    }
    let mut path = String::from("/announce?");
    query::write_announce(&announce(1, 3, Event::None), None, &mut path);
    let dictionaries = running.get(&path.replace("compact=1", "compact=0")).await;
    let Ok(AnnounceResponse::Peers(peers)) = response::parse(&dictionaries) else {
        panic!()
    };
    assert!(peers.peers.iter().all(|(_, id)| id.is_some()));
    assert!(
        peers.peers.iter().all(|(at, _)| at.port() != 10_003),
        "not the client itself"
    );
    let nameless = running
        .get(&path.replace("compact=1", "compact=0&no_peer_id=1"))
        .await;
    let Ok(AnnounceResponse::Peers(peers)) = response::parse(&nameless) else {
        panic!()
    };
    assert!(peers.peers.len() == 50 && peers.peers.iter().all(|(_, id)| id.is_none()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_bound_what_a_client_can_store() {
    let settings = "max_torrents = 3\nmax_torrents_per_client = 100\nmax_peers_per_client = 2";
    let running = Running::start(settings);
    for hash in 1..=5 {
        running.announce(&announce(hash, 1, Event::None)).await;
    }
    assert_eq!(running.metric("headworks_tracker_torrents").await, 3.0);
    for peer in 2..=5 {
        let peers = running.peers(&announce(1, peer, Event::None)).await;
        assert!(!peers.is_empty(), "answered, although not stored");
    }
    assert_eq!(running.metric("headworks_tracker_peers").await, 4.0);
    assert_eq!(
        running.metric("headworks_tracker_not_stored_total").await,
        5.0
    );
    running.stop().await;

    let running = Running::start("max_torrents_per_client = 4");
    for hash in 1..=6 {
        running.announce(&announce(hash, 1, Event::None)).await;
    }
    assert_eq!(running.metric("headworks_tracker_torrents").await, 4.0);
    running.announce(&announce(1, 1, Event::Stopped)).await;
    running.announce(&announce(9, 1, Event::None)).await;
    assert_eq!(running.metric("headworks_tracker_torrents").await, 4.0);
    assert_eq!(
        running.metric("headworks_tracker_not_stored_total").await,
        2.0
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_downloads_outlive_the_last_peer() {
    let path = std::env::temp_dir().join(format!("headworks-downloads-{}", std::process::id()));
    let settings = format!("snapshot_file = '{}'", path.display());
    for round in 1..=2 {
        let running = Running::start(&settings);
        running.announce(&announce(1, 1, Event::Completed)).await;
        running.announce(&announce(1, 1, Event::Stopped)).await;
        let client = Client::at("127.0.0.1:0", running.udp());
        let mut packet = Vec::new();
        let hash = announce(1, 1, Event::None).info_hash;
        udp::write_scrape(client.connect(), 7, &[hash], &mut packet);
        let scraped = client.exchange(&packet).expect("a response");
        // Seeders, completed downloads, leechers.
        let counts: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, round, 0, 0, 0, 0];
        assert_eq!(scraped[8..], counts);
        running.stop().await;
    }
    std::fs::remove_file(path).unwrap();
}
