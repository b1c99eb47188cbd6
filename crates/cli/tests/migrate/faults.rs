//! Storages that lie. What they get wrong is never a success, and never replaces what was there.

use super::support::{Faulty, Place};
use std::path::Path;

/// Sizes that take every way between two disks: in a batch, as a stream kept in memory and written
/// as it comes, and in parts.
const SIZES: [(&str, usize); 4] = [
    ("tiny", 10),
    ("small", 40 << 10),
    ("medium", 3 << 20),
    ("large", 20 << 20),
];

/// Bytes that tell where they belong.
fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 3 % 251) as u8 | 1).collect()
}

fn make_source(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for (name, size) in SIZES {
        for kind in ["short", "whole"] {
            std::fs::write(folder.join(format!("{kind}-{name}")), bytes(size)).unwrap();
        }
    }
    // With holes the end of the bytes could be taken for one more.
    let sparse = std::fs::File::create(folder.join("short-sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &bytes(6 << 20), 9 << 20).unwrap();
    sparse.set_len(20 << 20).unwrap();
}

#[test]
fn a_source_that_ends_early_is_a_failure_and_replaces_nothing() {
    let place = Place::new();
    make_source(&place.path("src"));
    let _mount = Faulty::over(&place, "src", "faulty");
    for flags in [&[][..], &["--checksum"]] {
        place.forget();
        std::fs::create_dir(place.path("dst")).unwrap();
        for (name, _) in SIZES {
            std::fs::write(place.path("dst").join(format!("short-{name}")), "good").unwrap();
        }
        let words = ["run", "faulty", "dst", "--attempts", "2"];
        place.expect(3, &[&words[..], flags].concat());
        for (name, size) in SIZES {
            let read = |kind| std::fs::read(place.path(&format!("dst/{kind}-{name}"))).unwrap();
            assert_eq!(read("short"), b"good", "{name} {flags:?}");
            assert!(read("whole") == bytes(size), "{name} {flags:?}");
        }
        assert!(!place.path("dst/short-sparse").exists(), "{flags:?}");
        place.expect_clean("dst");
        let failures = place.expect(3, &["report", "--csv"]);
        assert_eq!(failures.matches("\nshort-").count(), 5, "{failures}");
    }
}

/// Both sides end at the same place, so that the hashes of what came are the same.
#[test]
fn bytes_that_did_not_come_are_not_verified() {
    let place = Place::new();
    make_source(&place.path("src"));
    place.expect(0, &["run", "src", "dst"]);
    let _mounts = [
        Faulty::over(&place, "src", "faulty-source"),
        Faulty::over(&place, "dst", "faulty-destination"),
    ];
    // The same job, both sides of which are now read through what lies.
    let change = "
import os, sqlite3
db = sqlite3.connect('job.db')
for side in 'source', 'destination':
    place = os.path.abspath('faulty-' + side).encode()
    db.execute('UPDATE meta SET value = ? WHERE key = ?', [place, side])
db.commit()";
    place.python(change, &[]);
    let told = place.expect(4, &["verify", "--hash"]);
    assert!(told.contains("it ended after 5 of 10 bytes"), "{told}");
    for (name, _) in SIZES {
        assert!(told.contains(&format!("short-{name}: ")), "{told}");
        assert!(!told.contains(&format!("whole-{name}: ")), "{told}");
    }
}
