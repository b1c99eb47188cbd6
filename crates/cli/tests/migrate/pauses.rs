//! `pause`, measured at the storages: nothing starts any more, and running work ends at the next
//! entry.

use super::support::{TestDir, text, until};
use std::process::{Child, Output};

/// A job that runs next to the test. If the test fails, it is killed.
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

/// Pauses a job, and waits until its runner reports that.
fn pause(dir: &TestDir) {
    dir.expect(0, &["pause"]);
    until("the runner applies it", || {
        let printed = dir.expect(0, &["status", "--json"]);
        printed.matches("\"paused\":true").count() == 2
    });
}

/// Checks how much a paused job does in the time that another one needs for all of it.
fn expect_still(dir: &TestDir, count: impl Fn() -> usize, most: usize, clock: &[&str]) {
    pause(dir);
    let before = count();
    TestDir::new().expect(0, clock);
    let more = count() - before;
    assert!(more <= most, "{more} more after a pause");
}

#[test]
fn a_paused_plan_lists_nothing_more() {
    let dir = TestDir::new();
    let tree = "synth://?seed=2&depth=3&dirs=8&files=1&latency=10ms";
    let mut command = dir.command(&["plan", tree, "dst", "--workers=2"]);
    command.env("HEADWORKS_TRACE", dir.path("trace"));
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let runner = Runner(Some(command.spawn().unwrap()));
    let listings = || {
        let calls = dir.calls();
        let is_listing = |call: &&String| call.starts_with("source list");
        calls.iter().filter(is_listing).count()
    };
    until("it lists", || listings() > 20);
    expect_still(&dir, listings, 2, &["plan", tree, "dst", "--workers=2"]);
    assert!(listings() < 300, "it was done before the pause");
    dir.expect(0, &["resume"]);
    let output = runner.end();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(listings(), 585);
}

#[test]
fn a_paused_copy_writes_nothing_more() {
    let source = TestDir::new();
    source.make_tree("src", 12, 40);
    let from = source.path("src");
    let from = from.to_str().unwrap();
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        let args = ["run", from, "dst", "--bwlimit=30k", "--transfers=2"];
        let args = [&args[..], flags].concat();
        let runner = Runner(Some(dir.start(&args)));
        let written = || dir.tree("dst").len();
        until("it copies", || written() > 60);
        // The entries that the two transfers may still finish.
        expect_still(&dir, written, 2 * 17, &args);
        assert!(written() < 400, "it was done before the pause");
        dir.expect(0, &["resume"]);
        let output = runner.end();
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_paused_job_can_be_stopped() {
    let dir = TestDir::new();
    let tree = "synth://?seed=2&depth=3&dirs=8&files=1&latency=10ms";
    let runner = Runner(Some(dir.start(&["plan", tree, "dst", "--workers=2"])));
    until("it lists", || {
        dir.query_number("SELECT count(*) FROM source") > 20
    });
    pause(&dir);
    let pid = runner.id();
    let asked = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(asked.unwrap().success());
    let output = runner.end();
    let printed = text(&output);
    assert!(printed.contains("run the same command again"), "{printed}");
    assert!(!printed.contains("did not end"), "{printed}");
    dir.expect(0, &["resume"]);
    dir.expect(0, &["plan", tree, "dst"]);
}
