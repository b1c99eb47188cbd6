//! `pause`, counted at the storages: nothing begins any more, and what runs ends at the next entry.

use super::support::{Place, text, until};
use std::process::{Child, Output};

/// A job that runs beside the test. If the test fails it does not stay paused for ever.
struct Runner(Option<Child>);

impl Runner {
    fn id(&self) -> String {
        self.0.as_ref().expect("it has not ended").id().to_string()
    }

    fn end(mut self) -> Output {
        let child = self.0.take().expect("it has not ended");
        child.wait_with_output().expect("it can be waited for")
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Pauses a job, and waits until its runner says so too.
fn pause(place: &Place) {
    place.expect(0, &["pause"]);
    until("the runner heeds it", || {
        let told = place.expect(0, &["status", "--json"]);
        told.matches("\"paused\":true").count() == 2
    });
}

/// What a job does in the time that another one takes to do all of the same.
fn expect_still(place: &Place, count: impl Fn() -> usize, most: usize, clock: &[&str]) {
    pause(place);
    let before = count();
    Place::new().expect(0, clock);
    let more = count() - before;
    assert!(more <= most, "{more} more after a pause");
}

#[test]
fn a_paused_plan_lists_nothing_more() {
    let place = Place::new();
    let tree = "synth://?seed=2&depth=3&dirs=8&files=1&latency=10ms";
    let mut command = place.command(&["plan", tree, "dst", "--workers=2"]);
    command.env("HEADWORKS_TRACE", place.path("trace"));
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let runner = Runner(Some(command.spawn().unwrap()));
    let listings = || {
        let calls = place.calls();
        let is_listing = |call: &&String| call.starts_with("source list");
        calls.iter().filter(is_listing).count()
    };
    until("it lists", || listings() > 20);
    expect_still(&place, listings, 2, &["plan", tree, "dst", "--workers=2"]);
    assert!(listings() < 300, "it was through before the pause");
    place.expect(0, &["resume"]);
    let output = runner.end();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(listings(), 585);
}

#[test]
fn a_paused_copy_writes_nothing_more() {
    let source = Place::new();
    source.make_tree("src", 12, 40);
    let from = source.path("src");
    let from = from.to_str().unwrap();
    for flags in [&[][..], &["--checksum"]] {
        let place = Place::new();
        let words = ["run", from, "dst", "--bwlimit=30k", "--transfers=2"];
        let words = [&words[..], flags].concat();
        let runner = Runner(Some(place.start(&words)));
        let written = || place.tree("dst").len();
        until("it copies", || written() > 60);
        // What each of the two transfers has in hand.
        expect_still(&place, written, 2 * 17, &words);
        assert!(written() < 400, "it was through before the pause");
        place.expect(0, &["resume"]);
        let output = runner.end();
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_paused_job_stops_when_it_is_told_to() {
    let place = Place::new();
    let tree = "synth://?seed=2&depth=3&dirs=8&files=1&latency=10ms";
    let runner = Runner(Some(place.start(&["plan", tree, "dst", "--workers=2"])));
    until("it lists", || {
        place.number("SELECT count(*) FROM source") > 20
    });
    pause(&place);
    let pid = runner.id();
    let asked = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(asked.unwrap().success());
    let output = runner.end();
    let told = text(&output);
    assert!(told.contains("run the same command again"), "{told}");
    assert!(!told.contains("did not end"), "{told}");
    place.expect(0, &["resume"]);
    place.expect(0, &["plan", tree, "dst"]);
}
