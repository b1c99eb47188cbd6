//! Interrupted plans of deep trees: the next command finishes them, from any durable state.
//!
//! A side that starts far below the root must not wait for one that waits for it. Shallow trees
//! never show that, because the source may be four rounds ahead in any case.

use super::support::{Mount, TestDir, is_full, mount, text};
use std::path::PathBuf;

/// A chain of folders, each with a file.
const CHAIN: &str = "synth://?seed=3&depth=14&dirs=1&files=1&size=1k";

/// Repeats a command that lists `calls` folders per process until it is done.
fn expect_end_by_steps(dir: &TestDir, calls: u32) {
    let source = format!("{CHAIN}&gone={calls}");
    for run in 0.. {
        let output = dir.expect_end(&["plan", &source, "dst"]);
        match output.status.code() {
            Some(0) => return,
            Some(1) => assert!(text(&output).contains("went away"), "{}", text(&output)),
            other => panic!("{other:?}: {}", text(&output)),
        }
        assert!(run < 20, "no progress: {}", text(&output));
    }
}

#[test]
fn a_plan_that_is_resumed_at_every_depth_ends() {
    let dir = TestDir::new();
    dir.expect(0, &["plan", CHAIN, "dst"]);
    let missing = dir.entries();
    for calls in 1..=6 {
        dir.reset();
        expect_end_by_steps(&dir, calls);
        assert_eq!(dir.entries(), missing, "{calls} folders at a time");
    }
}

/// The destination has as much as the source, so its side lists as well.
#[test]
fn a_plan_over_a_full_destination_that_is_resumed_at_every_depth_ends() {
    let dir = TestDir::new();
    dir.expect(0, &["run", CHAIN, "dst"]);
    std::fs::remove_file(dir.path("job.db")).unwrap();
    dir.expect(0, &["plan", CHAIN, "dst"]);
    let same = dir.entries();
    for calls in 1..=6 {
        dir.remove_state();
        expect_end_by_steps(&dir, calls);
        assert_eq!(dir.entries(), same, "{calls} folders at a time");
    }
}

#[test]
fn a_retry_of_deep_folders_that_could_not_be_listed_ends() {
    let mut retries = 0;
    for seed in 1..=6 {
        let dir = TestDir::new();
        let source = format!("synth://?seed={seed}&depth=14&dirs=1&files=1&size=1k&errors=10");
        let output = dir.expect_end(&["plan", &source, "dst", "--attempts", "1"]);
        let clean = output.status.code() == Some(0);
        dir.expect(0, &["retry"]);
        let output = dir.expect_end(&["plan", &source, "dst", "--attempts", "20"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        retries += u32::from(!clean);
    }
    assert!(
        retries >= 3,
        "{retries} of the plans had something to retry"
    );
}

#[test]
fn a_plan_whose_state_disk_was_full_ends_when_there_is_room() {
    let dir = TestDir::new();
    let levels = if is_full() { 300 } else { 40 };
    make_chain(&dir, "src", levels);
    let state = dir.path("state");
    let mut interrupted = 0;
    for size in (256..2048).step_by(128) {
        let _mount = Mount::tmpfs(state.clone(), &format!("{size}k"));
        let plan = || dir.command_with_state("state/job.db", &["plan", "src", "dst"]);
        let output = dir.expect_end_of(plan());
        if output.status.success() {
            break;
        }
        mount(&["-o", "remount,size=16m"], &state);
        let output = dir.expect_end_of(plan());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        interrupted += 1;
    }
    assert!(interrupted > 0, "the disk was never full");
}

/// Makes a chain of folders with long names, each with some files.
pub(crate) fn make_chain(dir: &TestDir, name: &str, levels: u32) {
    let mut path: PathBuf = dir.path(name);
    for level in 0..levels {
        path.push(format!("{level:010}"));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..3 {
            std::fs::write(path.join(format!("file-{file}")), vec![b'x'; 100]).unwrap();
        }
    }
}
