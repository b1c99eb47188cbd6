//! Copying while the plan runs: it starts early, and ends like one after the other.

use super::support::{Mount, TestDir, text, until};

/// A folder of many pages, listed slowly, and a subfolder.
const LARGE: &str = "synth://?seed=4&depth=1&dirs=1&files=500&size=50-90&page=4&latency=25ms";

fn copied(dir: &TestDir) -> i64 {
    dir.query_number("SELECT count(*) FROM destination WHERE copied > 0 AND kind = 1")
}

/// Returns the result of planning and copying one after the other.
fn in_order(source: &str, prepare: impl Fn(&TestDir)) -> Vec<String> {
    let dir = TestDir::new();
    prepare(&dir);
    dir.expect(0, &["plan", source, "dst"]);
    dir.expect(0, &["copy"]);
    dir.entries()
}

/// Removes the latency, which changes only the duration.
fn at_once(source: &str) -> String {
    source.replace("&latency=25ms", "")
}

/// Compares the classes of all entries. The other state file has other settings of the source.
fn same_end(dir: &TestDir, prepare: impl Fn(&TestDir)) {
    let (ours, theirs) = (dir.entries(), in_order(&at_once(LARGE), prepare));
    let differs = ours.iter().zip(&theirs).find(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn the_first_file_is_written_long_before_the_last_page_is_listed() {
    let dir = TestDir::new();
    let output = dir
        .command(&["run", LARGE, "dst"])
        .env("HEADWORKS_TRACE", dir.path("trace"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let calls = dir.calls();
    let written = calls
        .iter()
        .position(|call| call.starts_with("destination write "))
        .expect("a file is written");
    let is_page = |call: &&String| *call == "source page ";
    let before = calls[..written].iter().filter(is_page).count();
    let all = calls.iter().filter(is_page).count();
    assert!(all > 60 && before < all * 3 / 4, "{before} of {all} pages");
    assert!(
        text(&output).contains("copied already"),
        "{}",
        text(&output)
    );
    // Nothing is written twice, and the destination's root is listed once.
    let mut writes: Vec<&String> = calls
        .iter()
        .filter(|call| call.starts_with("destination write "))
        .collect();
    writes.sort();
    let count = writes.len();
    writes.dedup();
    assert_eq!(writes.len(), count);
    let is_root = |call: &&String| *call == "destination list ";
    // Once by the plan, and once by the verification.
    assert!(calls.iter().filter(is_root).count() <= 2);
    same_end(&dir, |_| {});
    dir.expect_clean("dst");
}

/// Some files exist, and some of them differ.
fn prepare(dir: &TestDir) {
    std::fs::create_dir(dir.path("dst")).unwrap();
    let listed = TestDir::new();
    listed.expect(0, &["plan", &at_once(LARGE), "dst"]);
    for line in listed.entries() {
        let fields: Vec<&str> = line.split(',').collect();
        if fields[1] == "file" && !fields[0].contains('/') && fields[0].ends_with('7') {
            std::fs::write(dir.path("dst").join(fields[0]), "of another size").unwrap();
        }
    }
    std::fs::write(dir.path("dst/only here"), "kept").unwrap();
}

#[test]
fn killed_while_it_plans_and_copies_it_finishes_and_repeats_nothing() {
    for is_empty in [true, false] {
        let dir = TestDir::new();
        if !is_empty {
            prepare(&dir);
        }
        for kill in 1..=2 {
            let before = copied(&dir);
            let mut child = dir
                .command(&["run", LARGE, "dst"])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            until("it copies", || copied(&dir) > before);
            child.kill().unwrap();
            child.wait().unwrap();
            // The first kill at least is early enough.
            assert!(kill > 1 || dir.stage() == "planning");
        }
        let output = dir.expect_no_repeats(&["run", LARGE, "dst"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        same_end(&dir, |dir| match is_empty {
            true => {}
            false => prepare(dir),
        });
        dir.expect_clean("dst");
        assert_eq!(dir.query_number("SELECT count(*) FROM released"), 0);
    }
}

#[test]
fn with_plan_first_nothing_is_written_during_the_plan() {
    let dir = TestDir::new();
    let output = dir
        .command(&["run", LARGE, "dst", "--plan-first"])
        .env("HEADWORKS_TRACE", dir.path("trace"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let calls = dir.calls();
    let written = calls
        .iter()
        .position(|call| call.starts_with("destination write "));
    let listed = calls
        .iter()
        .rposition(|call| call.starts_with("source page"));
    assert!(listed < written, "{listed:?} {written:?}");
}

/// The size of the whole is known when the plan is finished. Until then the copy leaves room, so
/// that a disk that is too small is not full when that is found.
#[test]
fn a_disk_that_is_too_small_is_not_filled_before_the_plan_says_so() {
    let dir = TestDir::new();
    let _mount = Mount::tmpfs(dir.path("disk"), "8m");
    let source = "synth://?seed=4&depth=1&dirs=1&files=300&size=64k&page=4&latency=40ms";
    let printed = dir.expect(1, &["run", source, "disk/dst"]);
    assert!(printed.contains("are free at the destination"), "{printed}");
    let free = free_bytes(&dir);
    assert!(free >= 3 << 20, "only {free} bytes are free: {printed}");
}

/// Returns the free bytes of the small disk.
fn free_bytes(dir: &TestDir) -> u64 {
    let script = "import os; s = os.statvfs('disk'); print(s.f_bavail * s.f_frsize)";
    dir.python(script, &[]).trim().parse().unwrap()
}
