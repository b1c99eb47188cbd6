//! Storages that lie. Their errors are never a success, and never replace an existing file.

use super::support::{Faulty, TestDir};
use std::path::Path;

/// Sizes for every way between two disks: in a batch, buffered, streamed, and in parts.
const SIZES: [(&str, usize); 4] = [
    ("tiny", 10),
    ("small", 40 << 10),
    ("medium", 3 << 20),
    ("large", 20 << 20),
];

/// Bytes that depend on their offset.
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
    // In a sparse file the early end could pass for a hole.
    let sparse = std::fs::File::create(folder.join("short-sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &bytes(6 << 20), 9 << 20).unwrap();
    sparse.set_len(20 << 20).unwrap();
}

#[test]
fn a_truncated_source_is_a_failure_and_replaces_nothing() {
    let dir = TestDir::new();
    make_source(&dir.path("src"));
    let _mount = Faulty::over(&dir, "src", "faulty");
    for flags in [&[][..], &["--checksum"]] {
        dir.reset();
        std::fs::create_dir(dir.path("dst")).unwrap();
        for (name, _) in SIZES {
            std::fs::write(dir.path("dst").join(format!("short-{name}")), "good").unwrap();
        }
        let args = ["run", "faulty", "dst", "--attempts", "2"];
        dir.expect(3, &[&args[..], flags].concat());
        for (name, size) in SIZES {
            let read = |kind| std::fs::read(dir.path(&format!("dst/{kind}-{name}"))).unwrap();
            assert_eq!(read("short"), b"good", "{name} {flags:?}");
            assert!(read("whole") == bytes(size), "{name} {flags:?}");
        }
        assert!(!dir.path("dst/short-sparse").exists(), "{flags:?}");
        dir.expect_clean("dst");
        let failures = dir.expect(3, &["report", "--csv"]);
        assert_eq!(failures.matches("\nshort-").count(), 5, "{failures}");
    }
}

/// Both sides end at the same offset, so the hashes of the received bytes are equal.
#[test]
fn truncated_files_are_not_verified() {
    let dir = TestDir::new();
    make_source(&dir.path("src"));
    dir.expect(0, &["run", "src", "dst"]);
    let _mounts = [
        Faulty::over(&dir, "src", "faulty-source"),
        Faulty::over(&dir, "dst", "faulty-destination"),
    ];
    // The same job, with both sides read through the faulty filesystem.
    let change = "
import os, sqlite3
db = sqlite3.connect('job.db')
for side in 'source', 'destination':
    place = os.path.abspath('faulty-' + side).encode()
    db.execute('UPDATE meta SET value = ? WHERE key = ?', [place, side])
db.commit()";
    dir.python(change, &[]);
    let printed = dir.expect(4, &["verify", "--hash"]);
    assert!(
        printed.contains("it ended after 5 of 10 bytes"),
        "{printed}"
    );
    for (name, _) in SIZES {
        assert!(printed.contains(&format!("short-{name}: ")), "{printed}");
        assert!(!printed.contains(&format!("whole-{name}: ")), "{printed}");
    }
}
