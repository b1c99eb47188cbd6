//! The output of a run: on a terminal, for programs, and when it is interrupted.

use crate::support::{TestDir, text, until};
use std::process::{Command, Stdio};

const SOURCE: &str = "synth://?seed=3&depth=1&dirs=2&files=20&size=10000";

#[test]
fn every_byte_is_charged_once_against_the_limit() {
    let dir = TestDir::new();
    let args = ["run", SOURCE, "dst", "--bwlimit", "1G", "--json"];
    let printed = dir.expect(0, &args);
    let outcome = printed.lines().find(|line| line.contains("\"outcome\""));
    let outcome: serde_json::Value =
        serde_json::from_str(outcome.expect("an outcome")).expect("JSON");
    let size = &outcome["outcome"]["source"]["bytes"];
    assert!(size.as_u64().is_some_and(|size| size > 0), "{outcome}");
    assert_eq!(&outcome["sent_bytes"], size, "{outcome}");
    let copied = &outcome["outcome"]["classes"]["copied"]["bytes"];
    assert_eq!(copied, size, "{outcome}");
}

/// Interrupts a run once its calls contain something, and waits for its end.
fn interrupt(dir: &TestDir, args: &[&str], when: impl Fn(&[String]) -> bool) {
    let mut command = dir.command(args);
    command.env("HEADWORKS_TRACE", dir.path("trace"));
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().unwrap();
    until("it is at work", || when(&dir.calls()));
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(!printed.contains("did not end"), "{printed}");
}

/// One folder of many pages.
const HUGE_FOLDER: &str = "synth://?seed=1&depth=0&files=60000&latency=20ms";

#[test]
fn a_plan_stops_inside_one_huge_folder() {
    let dir = TestDir::new();
    let pages = |calls: &[String]| calls.iter().filter(|call| *call == "source page ").count();
    interrupt(&dir, &["plan", HUGE_FOLDER, "dst"], |calls| {
        pages(calls) > 3
    });
    let listed = pages(&dir.calls());
    assert!(listed < 55, "{listed} of 60 pages were listed");
    dir.expect_no_repeats(&["plan", HUGE_FOLDER, "dst"]);
    assert_eq!(dir.stage(), "planned");
}

#[test]
fn a_copy_stops_while_it_waits_for_bandwidth() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("src")).unwrap();
    let large = std::fs::File::create(dir.path("src/large")).unwrap();
    large.set_len(64 << 20).unwrap();
    // The first step takes the burst, and the second would wait for most of an hour.
    let args = ["run", "src", "dst", "--bwlimit", "2k"];
    interrupt(&dir, &args, |calls| {
        calls.iter().any(|call| call == "destination write large")
    });
    dir.expect(0, &["run", "src", "dst"]);
    dir.compare_trees("src", "dst");
    dir.expect_clean("dst");
}

#[test]
fn the_closing_lines_stay_on_a_terminal() {
    let dir = TestDir::new();
    let run = format!(
        "stty cols 160 rows 40; {} migrate run '{SOURCE}&latency=30ms' dst --state job.db",
        env!("CARGO_BIN_EXE_headworks")
    );
    // script(1) runs it on a terminal of its own, and records every byte written to that.
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &run, "typescript"])
        .current_dir(dir.path("."))
        .output()
        .expect("script is there");
    assert!(output.status.success(), "{}", text(&output));
    let screen = dir.python(SCREEN, &[]);
    for line in ["missing  ", "copied  ", "verified ", "took "] {
        assert!(screen.contains(line), "{line} was erased: {screen}");
    }
    // Nor does a frame of the bars stay behind.
    assert!(!screen.contains('█'), "{screen}");
}

/// Interprets the typescript as a terminal of 160 columns would.
const SCREEN: &str = r#"
import collections, re
text = open("typescript", encoding="utf-8", errors="replace", newline="").read()
screen, row, column = collections.defaultdict(lambda: [" "] * 160), 0, 0
for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", text, re.DOTALL):
    if token == "\n":
        row += 1
    elif token == "\r":
        column = 0
    elif token.startswith("\x1b["):
        number = int(re.sub(r"\D", "", token) or 1)
        if token.endswith("A"):
            row = max(row - number, 0)
        elif token.endswith("B"):
            row += number
        elif token.endswith("K"):
            screen[row][0 if "2" in token else column:] = [" "] * (160 if "2" in token else 160 - column)
    else:
        if column == 160:
            row, column = row + 1, 0
        screen[row][column] = token
        column += 1
for row in range(max(screen) + 1):
    print("".join(screen[row]).rstrip())
"#;

#[test]
fn latency_is_met_with_more_calls_at_a_time() {
    let dir = TestDir::new();
    // Slow enough for some seconds, with progress each second, however fast the climb is.
    let slow = "synth://?seed=5&depth=3&dirs=16&files=1&latency=100ms";
    let printed = dir.expect(0, &["plan", slow, "dst", "--json"]);
    let events = printed.lines().filter(|line| line.contains("\"progress\""));
    let limits = events.filter_map(|event| {
        let event: serde_json::Value = serde_json::from_str(event).ok()?;
        event["sides"][0]["listings"][0].as_u64()
    });
    // It begins with four.
    let most = limits.max();
    assert!(most.is_some_and(|most| most >= 16), "{most:?}: {printed}");
}

/// Also after folders have been made, which takes no time at the destination.
#[test]
fn latency_is_met_with_more_transfers_at_a_time() {
    let dir = TestDir::new();
    let slow = "synth://?seed=5&depth=2&dirs=16&files=16&size=100&latency=50ms";
    dir.expect(0, &["plan", slow, "dst"]);
    let printed = dir.expect(0, &["copy", "--json"]);
    let events = printed.lines().filter(|line| line.contains("\"progress\""));
    let limits: Vec<u64> = events
        .filter_map(|event| {
            let event: serde_json::Value = serde_json::from_str(event).ok()?;
            event["transfers"][0].as_u64()
        })
        .collect();
    let most = limits.iter().max();
    assert!(
        most.is_some_and(|most| *most >= 16),
        "{limits:?}: {printed}"
    );
}
