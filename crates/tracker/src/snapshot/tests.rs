use super::*;
use crate::forwarders::ForwarderId;
use crate::swarms::{ForwarderSchedule, PackedAddress, Peer, Swarm};
use headworks_tracker_wire::{Announce, InfoHash, PeerId};
use proptest::prelude::*;

fn dns_cache() -> Vec<String> {
    vec!["a".into(), "b".into()]
}

fn empty() -> TrackerState {
    TrackerState::new(ActiveConfig::default())
}

/// A tracker with every kind of record.
fn full() -> TrackerState {
    let state = empty();
    let now = state.clock.now();
    for number in 0..24u8 {
        state
            .swarms
            .with_or_insert(&InfoHash([number % 3; 20]), |swarm| {
                let ip = if number % 2 == 0 {
                    format!("10.0.0.{number}")
                } else {
                    format!("fd00::{number}")
                };
                let address = PackedAddress::new(ip.parse().unwrap(), 1000);
                let peer = Peer {
                    id: PeerId([number; 20]),
                    key: u32::from(number),
                    seeder: number % 5 == 0,
                    last_announce: now - u32::from(number),
                };
                // Some claimed their address, over the other family even.
                let client = match number % 4 {
                    0 => [10, 9, 9, number].into(),
                    1 => [10, 9, 9, number].into(),
                    _ => address.ip(),
                };
                swarm.upsert_peer(client, address, peer, state.count_by);
                let remote = PackedAddress::new(format!("192.0.2.{number}").parse().unwrap(), 7);
                swarm.upsert_cached(
                    now,
                    remote,
                    ForwarderId(u16::from(number % 2)),
                    100,
                    state.count_by,
                );
                swarm.downloaded = 9;
                let schedule = ForwarderSchedule {
                    due: now + 500,
                    last: now,
                    contributed: 4,
                };
                let peer = PeerId([number; 20]);
                let announce = Announce {
                    peer_id: peer,
                    ..Announce::default()
                };
                swarm.announce_peer(&announce, [10, 0, 0, number].into(), address, 10);
                let record = swarm.record_mut();
                record.restore(&peer, ForwarderId(0), schedule);
                record.restore(&peer, ForwarderId(1), schedule);
                record.mark_announced(&peer, ForwarderId(1));
            });
    }
    state
}

fn sorted(bytes: &[u8], names: &[String]) -> Vec<SavedTorrent> {
    let mut torrents = decode::decode(bytes, names).unwrap();
    torrents.sort_by_key(|saved| saved.hash);
    for saved in &mut torrents {
        saved.announced.sort();
        saved.peers.sort_by_key(|(_, peer)| peer.id);
        saved.claims.sort_by_key(|(address, _)| address.ip());
    }
    torrents
}

#[test]
fn a_snapshot_restores_everything() {
    let (before, after) = (full(), empty());
    let bytes = encode::encode(&before, &dns_cache());
    for saved in decode::decode(&bytes, &dns_cache()).unwrap() {
        restore(&after, 2, saved);
    }
    assert_eq!(
        sorted(&bytes, &dns_cache()),
        sorted(&encode::encode(&after, &dns_cache()), &dns_cache())
    );
    let hash = InfoHash([1; 20]);
    let totals = |state: &TrackerState| {
        state.swarms.with_or_insert(&hash, |swarm| {
            (swarm.counts(state.count_by), swarm.local_peers())
        })
    };
    assert_eq!(totals(&before), totals(&after));
    let due = after.swarms.with_or_insert(&hash, |swarm| swarm.due);
    assert!(due > after.clock.now() + 400, "its forwarders are not due");
}

#[test]
fn a_file_of_the_first_version_is_loaded() {
    let state = empty();
    let now = state.clock.now();
    let mut bytes = b"HWTRACK\x01".to_vec();
    bytes.extend(0u16.to_le_bytes()); // forwarders
    bytes.extend(1u32.to_le_bytes()); // torrents
    bytes.extend([7; 20]);
    bytes.extend(3u32.to_le_bytes()); // downloads
    bytes.extend(1u32.to_le_bytes()); // peers over IPv4
    bytes.extend([10, 0, 0, 1, 0x1a, 0xe1]);
    bytes.extend([9; 20]);
    bytes.push(1);
    bytes.extend(now.to_le_bytes());
    // Peers over IPv6, cached ones of both families, schedules, announced peers.
    bytes.extend([0; 5 * 4]);
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    for saved in decode::decode(&bytes, &[]).unwrap() {
        restore(&state, 0, saved);
    }
    let read = |swarm: &Swarm| (swarm.v4.iter().collect::<Vec<_>>(), swarm.downloaded);
    let peer = Peer {
        id: PeerId([9; 20]),
        key: 0,
        seeder: true,
        last_announce: now,
    };
    let expected = (vec![([10, 0, 0, 1, 0x1a, 0xe1], peer)], 3);
    assert_eq!(state.swarms.read(&InfoHash([7; 20]), read), Some(expected));
}

#[test]
fn times_and_counts_of_a_snapshot_are_bounded() {
    let config = crate::config::TrackerConfig {
        max_torrents: 2,
        max_peers_per_client: 3,
        max_cached_peers: 5,
        ..Default::default()
    };
    let active = ActiveConfig {
        config,
        ..ActiveConfig::default()
    };
    let state = TrackerState::new(active);
    let now = state.clock.now();
    let address = |last: u8, port| PackedAddress::new([10, 0, 0, last].into(), port);
    let schedule = ForwarderSchedule {
        due: u32::MAX,
        last: u32::MAX,
        contributed: u32::MAX,
    };
    for hash in 1..=3 {
        let peer = |n: u8| {
            let peer = Peer {
                id: PeerId([n; 20]),
                key: u32::MAX,
                seeder: false,
                last_announce: u32::MAX,
            };
            (address(1, n.into()), peer)
        };
        let cached = |n: u8| (address(9, n.into()), ForwarderId(0), u32::MAX);
        let saved = SavedTorrent {
            hash: InfoHash([hash; 20]),
            downloaded: u32::MAX,
            peers: (1..9).map(peer).collect(),
            claims: Vec::new(),
            cached: (1..9).map(cached).collect(),
            schedules: vec![(ForwarderId(0), schedule), (ForwarderId(1), schedule)],
            announced: vec![(PeerId([1; 20]), ForwarderId(0))],
        };
        restore(&state, 2, saved);
    }
    assert_eq!(state.swarms.totals(), (2, 6), "torrents and peers");
    state.swarms.for_each_mut(|hash, swarm| {
        let day = now + MAX_DUE + 60;
        assert!(swarm.due <= day, "{hash} is due {}", swarm.due);
        assert!(swarm.v4.iter().all(|(_, peer)| peer.last_announce <= day));
        let record = swarm.record.as_mut().unwrap();
        assert!(record.v4.iter().all(|(.., last)| last <= day));
        assert_eq!(record.len(), 5);
        let schedule = record.schedule(ForwarderId(0));
        assert!(schedule.due <= day && schedule.last <= day);
        // Counters that are as high as they can be stay there.
        let next = address(8, 1);
        swarm.upsert_cached(day, next, ForwarderId(0), 500, state.count_by);
    });
}

#[test]
fn forwarders_are_matched_by_name() {
    let bytes = encode::encode(&full(), &dns_cache());
    for saved in decode::decode(&bytes, &["b".into()]).unwrap() {
        assert!(saved.schedules.len() == 1 && saved.schedules[0].0 == ForwarderId(0));
        assert!(saved.cached.iter().all(|(_, id, _)| *id == ForwarderId(0)));
    }
}

#[test]
fn a_foreign_file_is_rejected_and_left_unchanged() {
    let folder = std::env::temp_dir().join(format!("headworks-foreign-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let refused = |path: &Path| load(&empty(), &dns_cache(), path).unwrap_err();
    let notes = folder.join("notes");
    std::fs::write(&notes, "a letter").unwrap();
    assert!(refused(&notes).contains("not a snapshot"));
    assert_eq!(std::fs::read(&notes).unwrap(), b"a letter");
    assert!(refused(&folder).contains("not a regular file"));
    assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
    assert!(refused(&folder.join("no/such")).contains("cannot be written"));
    // A file that does not exist yet is fine.
    assert_eq!(load(&empty(), &dns_cache(), &folder.join("new")), Ok(0));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::write(&notes, b"HWTR").unwrap();
    assert_eq!(
        load(&empty(), &dns_cache(), &notes),
        Ok(0),
        "a truncated file"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_damaged_file_is_moved_aside() {
    let path = std::env::temp_dir().join(format!("headworks-snapshot-{}", std::process::id()));
    let state = full();
    save(&state, &dns_cache(), &path).unwrap();
    assert_eq!(load(&empty(), &dns_cache(), &path), Ok(3));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(load(&empty(), &dns_cache(), &path), Ok(0));
    assert!(!path.exists());
    std::fs::remove_file(with_suffix(&path, "damaged")).unwrap();
    assert_eq!(
        decode::decode(b"HWTRACK\x03rest", &[]),
        Err(SnapshotError::Version(3))
    );
    assert_eq!(
        decode::decode(b"something else", &[]),
        Err(SnapshotError::Foreign)
    );
}

proptest! {
    #[test]
    fn the_decoder_never_panics(tail in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..2000usize) {
        let sign = |mut bytes: Vec<u8>| {
            let sum = checksum(&bytes);
            bytes.extend(sum.to_le_bytes());
            bytes
        };
        let _ = decode::decode(&sign([&MAGIC[..], &tail].concat()), &dns_cache());
        let mut bytes = encode::encode(&full(), &dns_cache());
        bytes.truncate(cut.max(8));
        bytes.extend(tail);
        let _ = decode::decode(&sign(bytes), &dns_cache());
    }
}
