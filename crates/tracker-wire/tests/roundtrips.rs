//! Everything that is written parses back to the same value, and no input makes a parser panic.

use headworks_tracker_wire::bencode::{self, DecodeError, Limits, Value, Writer};
use headworks_tracker_wire::response::{self, AnnounceResponse, ResponseFields};
use headworks_tracker_wire::udp::{self, Request, Response};
use headworks_tracker_wire::{
    Announce, Counts, Event, InfoHash, PeerId, RetryIn, compact, percent_decode, percent_encode,
    query, scrape,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn announces() -> impl Strategy<Value = Announce> {
    let names = (any::<[u8; 20]>(), any::<[u8; 20]>(), 1..=u16::MAX);
    let totals = (any::<u64>(), any::<u64>(), any::<u64>());
    let rest = (
        0..4u8,
        proptest::option::of(0..=i32::MAX as u32),
        any::<u32>(),
    );
    (names, totals, rest).prop_map(|((hash, id, port), (up, down, left), (event, want, key))| {
        Announce {
            info_hash: InfoHash(hash),
            peer_id: PeerId(id),
            port,
            uploaded: up,
            downloaded: down,
            left: Some(left),
            event: [
                Event::None,
                Event::Completed,
                Event::Started,
                Event::Stopped,
            ][event as usize],
            numwant: want,
            key: Some(key),
            ip: None,
            compact: Some(true),
            no_peer_id: false,
        }
    })
}

fn addresses() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(|ip| IpAddr::from(ip).to_canonical()),
    ];
    (ip, 1..=u16::MAX).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn counts() -> impl Strategy<Value = Counts> {
    any::<[u32; 3]>().prop_map(|[complete, incomplete, downloaded]| Counts {
        complete,
        incomplete,
        downloaded,
    })
}

fn packed(peers: &[SocketAddr]) -> (Vec<u8>, Vec<u8>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for peer in peers {
        match peer.ip() {
            IpAddr::V4(ip) => v4.extend(compact::pack4(ip, peer.port())),
            IpAddr::V6(ip) => v6.extend(compact::pack6(ip, peer.port())),
        }
    }
    (v4, v6)
}

fn write_value(value: &Value<'_>, writer: &mut Writer<'_>) {
    match value {
        Value::Int(number) => {
            writer.int(*number);
        }
        Value::Bytes(bytes) => {
            writer.bytes(bytes);
        }
        Value::List(list) => {
            writer.begin_list();
            list.iter().for_each(|value| write_value(value, writer));
            writer.end();
        }
        Value::Dict(entries) => {
            writer.begin_dict();
            for (key, value) in entries {
                writer.bytes(key);
                write_value(value, writer);
            }
            writer.end();
        }
    }
}

proptest! {
    #[test]
    fn parsers_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = bencode::decode(&bytes, Limits::default());
        let _ = response::parse(&bytes);
        let _ = scrape::parse(&bytes);
        let _ = query::parse_announce(&bytes);
        let _ = query::parse_scrape(&bytes).count();
        let _ = udp::parse_request(&bytes);
        let _ = udp::parse_response(&bytes);
        let _ = udp::url_data(&bytes);
    }

    #[test]
    fn bencode_like_text_never_panics(text in "[dlei0-9:a-z]{0,80}") {
        let _ = response::parse(text.as_bytes());
        let _ = scrape::parse(text.as_bytes());
    }

    #[test]
    fn decoded_values_encode_to_the_same_bytes(text in "(i-?[1-9][0-9]{0,8}e|l(i0e|2:ab){0,4}e|d(1:a(i7e|1:x)){0,3}e)") {
        let value = bencode::decode(text.as_bytes(), Limits::default()).unwrap();
        let mut out = Vec::new();
        write_value(&value, &mut Writer::new(&mut out));
        prop_assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn integers_round_trip(number in any::<i64>()) {
        let mut out = Vec::new();
        Writer::new(&mut out).int(number);
        prop_assert_eq!(bencode::decode(&out, Limits::default()), Ok(Value::Int(number)));
    }

    #[test]
    fn percent_encoding_round_trips(bytes in vec(any::<u8>(), 0..64)) {
        let mut text = String::new();
        percent_encode(&bytes, &mut text);
        let mut out = [0; 64];
        let len = percent_decode(text.as_bytes(), &mut out).unwrap();
        prop_assert_eq!(&out[..len], &bytes[..]);
    }

    #[test]
    fn announce_queries_round_trip(announce in announces()) {
        let mut text = String::new();
        query::write_announce(&announce, Some(b"id&="), &mut text);
        prop_assert_eq!(query::parse_announce(text.as_bytes()), Ok(announce));
        prop_assert_eq!(query::value(text.as_bytes(), "trackerid"), Some(&b"id%26%3D"[..]));
    }

    #[test]
    fn udp_announces_round_trip(announce in announces(), connection in any::<u64>(), transaction in any::<u32>(), path in vec(any::<u8>(), 0..600)) {
        let mut packet = Vec::new();
        udp::write_announce(connection, transaction, &announce, &path, &mut packet);
        let Ok(Request::Announce { connection: c, transaction: t, announce: a, options }) = udp::parse_request(&packet) else {
            panic!("an announce")
        };
        prop_assert_eq!((c, t), (connection, transaction));
        prop_assert_eq!(a, Announce { no_peer_id: true, ..announce });
        prop_assert_eq!(udp::url_data(options), path);
    }

    #[test]
    fn udp_announce_responses_round_trip(transaction in any::<u32>(), interval in any::<u32>(), counts in counts(), peers in vec(any::<u8>(), 0..120)) {
        let mut packet = Vec::new();
        udp::write_announce_response(transaction, interval, counts, &mut packet);
        packet.extend(&peers);
        let counts = Counts { downloaded: 0, ..counts };
        prop_assert_eq!(udp::parse_response(&packet), Some(Response::Announce { transaction, interval, counts, peers: &peers }));
    }

    #[test]
    fn udp_scrapes_round_trip(transaction in any::<u32>(), hashes in vec(any::<[u8; 20]>(), 1..74), counts in vec(counts(), 1..74)) {
        let asked: Vec<_> = hashes.iter().copied().map(InfoHash).collect();
        let mut packet = Vec::new();
        udp::write_scrape(5, transaction, &asked, &mut packet);
        prop_assert_eq!(udp::parse_request(&packet), Ok(Request::Scrape { connection: 5, transaction, hashes: &hashes }));
        packet.clear();
        udp::write_scrape_response(transaction, counts.iter().copied(), &mut packet);
        prop_assert_eq!(udp::parse_response(&packet), Some(Response::Scrape { transaction, counts }));
    }

    #[test]
    fn compact_responses_round_trip(peers in vec(addresses(), 0..20), counts in counts(), interval in any::<u32>()) {
        let (v4, v6) = packed(&peers);
        let fields = ResponseFields { interval, min_interval: 5, counts, external_ip: Some("192.0.2.7".parse().unwrap()), tracker_id: Some(b"me"), warning: Some("careful") };
        let mut out = Vec::new();
        response::write_compact(&fields, &v4, &v6, &mut out);
        let Ok(AnnounceResponse::Peers(read)) = response::parse(&out) else { panic!("peers") };
        let mut got: Vec<_> = read.peers.iter().map(|(peer, _)| *peer).collect();
        let mut expected = peers;
        got.sort();
        expected.sort();
        prop_assert_eq!(got, expected);
        prop_assert_eq!((read.interval, read.complete, read.incomplete), (Some(interval), Some(counts.complete), Some(counts.incomplete)));
        prop_assert_eq!((read.warning.as_deref(), read.tracker_id.as_deref()), (Some("careful"), Some(&b"me"[..])));
        prop_assert_eq!(read.external_ip, fields.external_ip);
    }

    #[test]
    fn dictionary_responses_round_trip(peers in vec((proptest::option::of(any::<[u8; 20]>().prop_map(PeerId)), addresses()), 0..20)) {
        let mut out = Vec::new();
        response::write_dict(&ResponseFields::default(), peers.iter().copied(), &mut out);
        let Ok(AnnounceResponse::Peers(read)) = response::parse(&out) else { panic!("peers") };
        let expected: Vec<_> = peers.into_iter().map(|(id, peer)| (peer, id)).collect();
        prop_assert_eq!(read.peers, expected);
    }

    #[test]
    fn scrape_responses_round_trip(torrents in vec((any::<[u8; 20]>().prop_map(InfoHash), counts()), 0..10)) {
        let mut out = Vec::new();
        scrape::write(torrents.iter().copied(), &mut out);
        prop_assert_eq!(scrape::parse(&out), Ok(torrents));
    }
}

#[test]
fn retry_in_is_parsed_in_every_form() {
    let minutes = |n: u64| Some(RetryIn::After(Duration::from_secs(60 * n)));
    for (text, expected) in [
        ("8:retry ini5e", minutes(5)),
        ("8:retry in1:5", minutes(5)),
        ("8:retry in3: 12", minutes(12)),
        ("8:retry in5:never", Some(RetryIn::Never)),
        ("8:retry in5:Never", Some(RetryIn::Never)),
        ("8:retry in4:soon", None),
        ("8:retry ini-5e", None),
        ("8:retry inle", None),
        ("", None),
    ] {
        let response = format!("d14:failure reason4:busy{text}e");
        let reason = "busy".to_owned();
        let retry_in = expected;
        let expected = Ok(AnnounceResponse::Failure { reason, retry_in });
        assert_eq!(response::parse(response.as_bytes()), expected, "{text}");
    }
}

#[test]
fn a_failure_carries_seconds_and_minutes() {
    let mut out = Vec::new();
    response::write_failure("busy", Some(90), &mut out);
    assert_eq!(out, b"d14:failure reason4:busy8:intervali90e8:retry in1:2e");
}

#[test]
fn decoder_limits_are_enforced() {
    let deep = [b'l'; 17];
    assert_eq!(
        bencode::decode(&deep, Limits::default()),
        Err(DecodeError::Depth)
    );
    let many = Limits {
        depth: 2,
        values: 3,
    };
    assert_eq!(
        bencode::decode(b"li1ei2ei3ee", many),
        Err(DecodeError::Values)
    );
    assert_eq!(
        bencode::decode(b"99999999999999999999:", Limits::default()),
        Err(DecodeError::Number(0))
    );
    assert_eq!(
        bencode::decode(b"5:abcd", Limits::default()),
        Err(DecodeError::Truncated)
    );
    assert_eq!(
        bencode::decode(b"ie", Limits::default()),
        Err(DecodeError::Number(1))
    );
}

#[test]
fn invalid_queries_are_rejected_with_a_reason() {
    let good = "info_hash=%00%01%02%03%04%05%06%07%08%09abcdefghij&peer_id=01234567890123456789";
    let read = |rest: &str| {
        query::parse_announce(format!("{good}{rest}").as_bytes()).map_err(|e| e.to_string())
    };
    assert_eq!(read(""), Err("missing port".into()));
    assert_eq!(read("&port=0"), Err("invalid port".into()));
    assert_eq!(read("&port=65536"), Err("invalid port".into()));
    assert!(read("&port=0&event=stopped").is_ok());
    assert!(query::parse_announce(b"info_hash=%0&peer_id=x").is_err());
    let odd = read("&port=1&numwant=99999999999&left=x&ip=%3A%3A1&key=zz&compact=0").unwrap();
    assert_eq!(
        (odd.numwant, odd.left, odd.ip),
        (Some(u32::MAX), None, Some("::1".parse().unwrap()))
    );
    assert_eq!(odd.compact, Some(false));
    assert!(odd.key.is_some() && !odd.is_seeder());
}

#[test]
fn short_packets_are_classified() {
    let mut packet = Vec::new();
    udp::write_announce(9, 8, &Announce::default(), b"", &mut packet);
    assert!(matches!(
        udp::parse_request(&packet[..97]),
        Err(udp::RequestError::Invalid { transaction: 8, .. })
    ));
    assert_eq!(
        udp::parse_request(&packet[..15]),
        Err(udp::RequestError::Unrecognized)
    );
}
