//! Killed at every point that matters, and at random: it finishes, nothing is lost, nothing is done twice.

use super::support::{Place, text};
use std::collections::HashSet;
use std::time::Duration;

/// A tree with small files, links and one file of three parts.
fn make(place: &Place) {
    place.make_tree("src", 40, 12);
    let big: Vec<u8> = (0..150u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(place.path("src/f0/big"), big).unwrap();
    std::fs::hard_link(place.path("src/f0/big"), place.path("src/f1/big too")).unwrap();
    std::os::unix::fs::symlink("big", place.path("src/f0/link")).unwrap();
}

/// Runs to the end what was killed, and has it judged.
fn finish(place: &Place, flags: &[&str]) {
    place.expect(0, &[&["run", "src", "dst"], flags].concat());
    place.judge("src", "dst");
    assert_eq!(place.leftovers("dst"), Vec::<std::path::PathBuf>::new());
    let mut check = std::process::Command::new("python3");
    let script = "import sqlite3,sys; sys.exit(sqlite3.connect('job.db').execute('PRAGMA integrity_check').fetchone()[0] != 'ok')";
    let checked = check
        .args(["-c", script])
        .current_dir(place.path(""))
        .status()
        .unwrap();
    assert!(checked.success(), "the state file is damaged");
}

#[test]
fn killed_at_every_failpoint_it_finishes() {
    let points = [
        "before-commit",
        "before-commit:3",
        "after-commit",
        "after-commit:4",
        "before-sync",
        "before-batch",
        "after-batch",
        "before-commit:7",
        "after-commit:8",
        "before-sync:2",
        "after-batch:9",
    ];
    let streamed = [
        "after-part",
        "after-part:2",
        "before-rename",
        "after-rename",
        "before-rename:100",
        "before-sync:2",
    ];
    let all = points
        .iter()
        .map(|point| (point, &[][..]))
        .chain(streamed.iter().map(|point| (point, &["--checksum"][..])));
    for (point, flags) in all {
        let place = Place::new();
        make(&place);
        let mut command = place.command(&[&["run", "src", "dst"], flags].concat());
        let killed = command.env("HEADWORKS_FAILPOINT", point).output().unwrap();
        assert_eq!(
            killed.status.code(),
            None,
            "{point} was not reached: {}",
            text(&killed)
        );
        finish(&place, flags);
        if point.starts_with("after-part") {
            place.expect(0, &["verify", "--hash"]);
        }
    }
}

#[test]
fn a_large_file_goes_on_where_it_was_with_its_hash() {
    let place = Place::new();
    make(&place);
    let mut command = place.command(&["run", "src", "dst", "--checksum"]);
    command
        .env("HEADWORKS_FAILPOINT", "after-part:2")
        .output()
        .unwrap();
    let told = place.expect(0, &["run", "src", "dst", "--checksum"]);
    assert!(
        told.contains("resumed: 2 parts kept, 0 parts sent again"),
        "{told}"
    );
    let manifest = place.run(&["report", "--manifest"]).stdout;
    std::fs::write(place.path("manifest"), manifest).unwrap();
    let mut check = std::process::Command::new("sha256sum");
    let checked = check
        .args(["-c", "--quiet", "../manifest"])
        .current_dir(place.path("dst"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
}

/// What the backends were asked for in each process, as written down where the calls arrive.
fn calls(log: &str) -> Vec<String> {
    log.lines().map(str::to_owned).collect()
}

#[test]
fn killed_at_random_fifty_times_nothing_durable_is_done_again() {
    let place = Place::new();
    place.make_tree("src", 150, 20);
    let trace = place.path("trace");
    let seed = std::process::id();
    println!("seed {seed}");
    let mut random = u64::from(seed);
    let mut seen: HashSet<String> = HashSet::new();
    let mut kills = 0;
    let mut ended = false;
    while kills < 50 && !ended {
        // What the state file says is done must not be asked for again by the next process.
        let done = durable(&place);
        let _ = std::fs::remove_file(&trace);
        let mut command = place.command(&["run", "src", "dst"]);
        let mut child = command
            .env("HEADWORKS_TRACE", &trace)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let pause = Duration::from_millis(10 + (random >> 33) % 90);
        std::thread::sleep(pause); // not a wait for something: the moment of the kill is what is random
        ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        let log = std::fs::read_to_string(&trace).unwrap_or_default();
        for call in calls(&log) {
            assert!(!done.contains(&call), "after kill {kills} again: {call}");
            seen.insert(call);
        }
    }
    finish(&place, &[]);
    assert!(
        kills > 3 && seen.len() > 100,
        "{kills} kills, {} calls",
        seen.len()
    );
}

/// Calls that need not be made again: folders that are listed, files that are done, by the state file.
fn durable(place: &Place) -> HashSet<String> {
    let script = "
import sqlite3
db = sqlite3.connect('file:job.db?mode=ro', uri=True)
esc = lambda b: b.decode('latin1')
folder = {i: p for i, p in db.execute('SELECT id, path FROM folder')}
for path, src, dst in db.execute('SELECT path, src, dst FROM folder'):
    if src == 1: print('source list ' + esc(path))
    if dst == 1: print('destination list ' + esc(path))
for parent, name in db.execute('SELECT parent, name FROM destination WHERE copied > 0 AND kind = 1'):
    print('destination copy ' + esc(folder[parent]) + esc(name))
";
    if !place.path("job.db").exists() {
        return HashSet::new();
    }
    let mut python = std::process::Command::new("python3");
    let output = python
        .args(["-c", script])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_full_destination_is_a_clear_error_and_resumable() {
    let place = Place::new();
    let full = place.path("dst");
    std::fs::create_dir(&full).unwrap();
    let mut mount = std::process::Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&full);
    if !mount.status().is_ok_and(|status| status.success()) {
        panic!("this test mounts a small tmpfs and must run as root");
    }
    let filled = std::panic::catch_unwind(|| {
        place.make_tree("src", 20, 10);
        place.expect(0, &["plan", "src", "dst"]);
        std::fs::write(full.join("other"), vec![1; 900 << 10]).unwrap();
        // The room was taken after the plan and before the copy looked, or while it copies.
        let told = text(&place.run(&["copy"]));
        assert!(
            told.contains("the destination cannot take it") || told.contains("No space left"),
            "{told}"
        );
        std::fs::remove_file(full.join("other")).unwrap();
        place.expect(0, &["copy"]);
        place.judge("src", "dst");
    });
    let unmounted = std::process::Command::new("umount").arg(&full).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    if let Err(panic) = filled {
        std::panic::resume_unwind(panic);
    }
}
