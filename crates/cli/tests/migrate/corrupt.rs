//! A source that sends wrong bytes: found on the way where it states a checksum, and by a
//! verification that reads both sides where it does not.

use crate::support::{TestDir, text};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The bucket of `corrupt.py`, until it is dropped.
struct Bucket {
    server: Child,
    url: String,
}

impl Bucket {
    fn start(wrong_reads: &str, states: &str) -> Bucket {
        Bucket::with_size(wrong_reads, states, 20)
    }

    /// Starts one with an object of this many MiB.
    fn with_size(wrong_reads: &str, states: &str, size: usize) -> Bucket {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/migrate/corrupt.py");
        let mut server = Command::new("python3")
            .args([script, wrong_reads, states, &size.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut port = String::new();
        let output = server.stdout.as_mut().expect("it is piped");
        BufReader::new(output).read_line(&mut port).unwrap();
        let url = format!("s3://b?anonymous&endpoint=http://127.0.0.1:{}", port.trim());
        Bucket { server, url }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The byte that is wrong at first.
const FLIPPED: usize = 10 << 20;

fn expected(at: usize) -> u8 {
    (at * 31 + (at >> 20)) as u8
}

#[test]
fn a_large_object_that_arrives_wrong_is_read_again() {
    for states in ["md5", "sha256", "composite-md5", "composite-sha256"] {
        let dir = TestDir::new();
        let bucket = Bucket::start("2", states);
        let output = dir.run(&["run", &bucket.url, "dst"]);
        assert_eq!(output.status.code(), Some(0), "{states}: {}", text(&output));
        let copied = std::fs::read(dir.path("dst/big")).unwrap();
        assert_eq!(copied.len(), 20 << 20);
        assert_eq!(copied[FLIPPED], expected(FLIPPED), "{states}");
        let output = dir.run(&["verify", "--hash"]);
        assert_eq!(output.status.code(), Some(0), "{states}: {}", text(&output));
    }
}

/// The bytes before the interruption were never read again.
#[test]
fn a_large_object_that_arrived_wrong_before_an_interruption_is_read_again() {
    for states in ["md5", "sha256", "composite-md5"] {
        let dir = TestDir::new();
        let bucket = Bucket::with_size("1", states, 70);
        let mut command = dir.command(&["run", &bucket.url, "dst"]);
        command.env("HEADWORKS_FAILPOINT", "after-part:1");
        let killed = dir.expect_end_of(command);
        assert_eq!(killed.status.code(), None, "{states}: {}", text(&killed));
        let parts = dir.query_number("SELECT count(*) FROM part WHERE done > 0");
        assert_eq!(parts, 1, "{states}");
        let output = dir.run(&["run", &bucket.url, "dst"]);
        assert_eq!(output.status.code(), Some(0), "{states}: {}", text(&output));
        let copied = std::fs::read(dir.path("dst/big")).unwrap();
        assert_eq!(copied.len(), 70 << 20);
        assert_eq!(copied[FLIPPED], expected(FLIPPED), "{states}");
        dir.expect_clean("dst");
    }
}

/// An interruption of a correct transfer costs nothing.
#[test]
fn a_large_object_that_arrives_right_is_resumed_and_has_a_hash() {
    let dir = TestDir::new();
    let bucket = Bucket::with_size("0", "composite-md5", 70);
    let mut command = dir.command(&["run", &bucket.url, "dst"]);
    command.env("HEADWORKS_FAILPOINT", "after-part:1");
    dir.expect_end_of(command);
    let output = dir.run(&["run", &bucket.url, "dst"]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert_eq!(
        dir.query_number("SELECT count(*) FROM hash"),
        1,
        "{printed}"
    );
}

#[test]
fn a_checksum_of_uneven_parts_counts_as_not_stated() {
    let dir = TestDir::new();
    let bucket = Bucket::start("0", "uneven");
    let output = dir.run(&["run", &bucket.url, "dst"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let copied = std::fs::read(dir.path("dst/big")).unwrap();
    assert_eq!(copied[FLIPPED], expected(FLIPPED));
}

#[test]
fn a_large_object_that_always_arrives_wrong_is_not_copied() {
    let dir = TestDir::new();
    let bucket = Bucket::start("1000", "md5");
    let output = dir.run(&["run", &bucket.url, "dst"]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("do not match the checksum"), "{printed}");
    assert!(!dir.path("dst/big").exists());
    dir.expect_clean("dst");
}

#[test]
fn where_the_source_states_nothing_a_verification_by_hash_reads_it_again() {
    let dir = TestDir::new();
    let bucket = Bucket::start("1", "nothing");
    let output = dir.run(&["run", &bucket.url, "dst"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let wrong = std::fs::read(dir.path("dst/big")).unwrap();
    assert_ne!(wrong[FLIPPED], expected(FLIPPED), "the copy could not know");
    let output = dir.run(&["verify", "--hash"]);
    let printed = text(&output);
    assert_ne!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("different (hash)"), "{printed}");
    let output = dir.run(&["run", &bucket.url, "dst"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let copied = std::fs::read(dir.path("dst/big")).unwrap();
    assert_eq!(copied[FLIPPED], expected(FLIPPED));
}
