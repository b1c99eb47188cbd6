use super::*;
use crate::plan::Plan;
use proptest::prelude::*;

fn names() -> Vec<String> {
    vec!["a".into(), "b".into()]
}

fn empty() -> Shared {
    Shared::new(Plan::default())
}

/// A tracker that knows something of everything.
fn full() -> Shared {
    let shared = empty();
    let now = shared.clock.now();
    for number in 0..40u8 {
        shared.swarms.with(&InfoHash([number % 3; 20]), |swarm| {
            let ip = if number % 2 == 0 {
                format!("10.0.0.{number}")
            } else {
                format!("fd00::{number}")
            };
            let at = Packed::new(ip.parse().unwrap(), 1000);
            swarm.hear(
                now - u32::from(number),
                at,
                PeerId([number; 20]),
                number % 5 == 0,
                shared.count_by,
            );
            let far = Packed::new(format!("192.0.2.{number}").parse().unwrap(), 7);
            swarm.find(now, far, u16::from(number % 2), 100, shared.count_by);
            swarm.downloaded = 9;
            let known = swarm.known_mut();
            let asked = Asked {
                due: now + 500,
                last: now,
                contributed: 4,
            };
            known.remember(0, asked);
            known.remember(1, asked);
            known.tell(PeerId([number; 20]), 1);
        });
    }
    shared
}

fn sorted(bytes: &[u8], names: &[String]) -> Vec<Saved> {
    let mut torrents = read::decode(bytes, names).unwrap();
    torrents.sort_by_key(|saved| saved.hash);
    for saved in &mut torrents {
        saved.told.sort();
        saved.peers.sort_by_key(|(_, id, ..)| *id);
    }
    torrents
}

#[test]
fn what_is_saved_is_loaded() {
    let (before, after) = (full(), empty());
    let bytes = write::encode(&before, &names());
    for saved in read::decode(&bytes, &names()).unwrap() {
        restore(&after, 2, saved);
    }
    assert_eq!(
        sorted(&bytes, &names()),
        sorted(&write::encode(&after, &names()), &names())
    );
    let hash = InfoHash([1; 20]);
    let look = |shared: &Shared| {
        shared.swarms.with(&hash, |swarm| {
            (swarm.counts(shared.count_by), swarm.local_peers())
        })
    };
    assert_eq!(look(&before), look(&after));
    let due = after.swarms.with(&hash, |swarm| swarm.due);
    assert!(due > after.clock.now() + 400, "it is not asked for again");
}

#[test]
fn forwarders_are_known_by_name() {
    let bytes = write::encode(&full(), &names());
    for saved in read::decode(&bytes, &["b".into()]).unwrap() {
        assert!(saved.asked.len() == 1 && saved.asked[0].0 == 0);
        assert!(saved.found.iter().all(|(_, forwarder, _)| *forwarder == 0));
    }
}

#[test]
fn what_is_no_snapshot_is_refused_and_left_as_it_is() {
    let folder = std::env::temp_dir().join(format!("headworks-foreign-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let refused = |path: &Path| load(&empty(), &names(), path).unwrap_err();
    let notes = folder.join("notes");
    std::fs::write(&notes, "a letter").unwrap();
    assert!(refused(&notes).contains("no snapshot"));
    assert_eq!(std::fs::read(&notes).unwrap(), b"a letter");
    assert!(refused(&folder).contains("not a regular file"));
    assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
    assert!(refused(&folder.join("no/such")).contains("cannot be written"));
    // What there is not yet will be.
    assert_eq!(load(&empty(), &names(), &folder.join("new")), Ok(0));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::write(&notes, b"HWTR").unwrap();
    assert_eq!(load(&empty(), &names(), &notes), Ok(0), "it was cut short");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_damaged_file_is_set_aside() {
    let path = std::env::temp_dir().join(format!("headworks-snapshot-{}", std::process::id()));
    let shared = full();
    save(&shared, &names(), &path).unwrap();
    assert_eq!(load(&empty(), &names(), &path), Ok(3));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(load(&empty(), &names(), &path), Ok(0));
    assert!(!path.exists());
    std::fs::remove_file(beside(&path, "damaged")).unwrap();
    assert_eq!(
        read::decode(b"HWTRACK\x02rest", &[]),
        Err(SnapshotError::Version(2))
    );
    assert_eq!(
        read::decode(b"something else", &[]),
        Err(SnapshotError::Foreign)
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(tail in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..2000usize) {
        let sign = |mut bytes: Vec<u8>| {
            let sum = checksum(&bytes);
            bytes.extend(sum.to_le_bytes());
            bytes
        };
        let _ = read::decode(&sign([&MAGIC[..], &tail].concat()), &names());
        let mut bytes = write::encode(&full(), &names());
        bytes.truncate(cut.max(8));
        bytes.extend(tail);
        let _ = read::decode(&sign(bytes), &names());
    }
}
