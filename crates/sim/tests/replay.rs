//! Replays of recorded loads.

use headworks_sim::{Scenario, replay};
use std::fmt::Write;
use std::path::PathBuf;

/// A temporary file, removed on drop.
struct Recording(PathBuf);

impl Recording {
    fn new(name: &str, text: &[u8]) -> Self {
        let name = format!("headworks-replay-{}-{name}.csv", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("the temporary folder can be written to");
        Recording(path)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn json(trace: &Recording, scenario: &Scenario) -> serde_json::Value {
    let report = replay(&trace.0, scenario, 1).unwrap_or_else(|error| panic!("{error}"));
    serde_json::from_str(&report.to_json()).expect("it is JSON")
}

#[test]
fn a_trace_is_replayed_under_the_default_or_a_scenario() {
    let mut text = "time,class,flow,cost\n# a comment\n".to_owned();
    for n in 0..3000 {
        let _ = writeln!(
            text,
            "{}, {},\"team, {}\",{}",
            f64::from(n) * 0.002,
            n % 10,
            n % 3,
            1 + n % 50
        );
    }
    let trace = Recording::new("right", text.as_bytes());
    let report = json(&trace, &Scenario::for_replay());
    assert_eq!(report["totals"]["requests"], 3000);
    assert_eq!(report["totals"]["done"], 3000);
    assert_eq!(report["flow_count"], 3);
    assert_eq!(report["loads"][0]["name"], "trace");
    assert_eq!(
        report["flows"][0]["name"].as_str().map(|name| &name[..5]),
        Some("team,")
    );
    assert!(
        report["seconds"].as_f64().expect("a number") > 20.0,
        "100 requests per second"
    );

    let tight = Scenario::from_text(
        "tight.toml",
        "duration = \"1s\"\n[scheduler]\nbound = 5\nlimits = { concurrent = 1 }\n[[flows]]\nname = \"team, 1\"\nweight = 5",
    );
    let report = json(&trace, &tight.unwrap_or_else(|error| panic!("{error}")));
    assert!(report["totals"]["refused"].as_u64() > Some(1000));
    let first = &report["flows"][0];
    assert_eq!(
        (first["name"].as_str(), first["weight"].as_u64()),
        (Some("team, 1"), Some(5))
    );
}

#[test]
fn invalid_lines_name_line_and_field() {
    let told = |text: &[u8]| {
        let trace = Recording::new("wrong", text);
        let told = replay(&trace.0, &Scenario::for_replay(), 1)
            .expect_err("it is wrong")
            .to_string();
        told.replace(&trace.0.display().to_string(), "t.csv")
    };
    assert_eq!(
        told(b"0,0,a,1\n1,0,a\n"),
        "t.csv:2:4: cost: 3 fields, not 4; write arrival time, class, flow, cost, as in 0.25,3,tenant-1,800"
    );
    assert_eq!(
        told(b"time,class,flow,cost\nsoon,0,a,1\n"),
        "t.csv:2:1: arrival time: `soon` is not a time; write seconds, as in 12.5 or 1700000000.25"
    );
    assert_eq!(
        told(b"1,0,a,1\n0.5,0,a,1\n"),
        "t.csv:2:1: arrival time: 0.5 is earlier than 1 in the previous line; sort the file by its first column"
    );
    assert_eq!(
        told(b"0,10,a,1\n"),
        "t.csv:1:2: class: unknown class `10`; write 0 to 9, or configure more classes"
    );
    assert_eq!(
        told(b"0,0,a,-4\n"),
        "t.csv:1:4: cost: `-4` is not a cost; write a whole number from 1 to 1000000000000"
    );
    assert_eq!(
        told(b"0,0,a,1\n1,0,\x1b[2J,1\n"),
        "t.csv:2:3: flow: contains a control character (\\x1b); remove it"
    );
    assert_eq!(
        told(b"0,\xff,a,1\n"),
        "t.csv:1:2: class: is not UTF-8; save the file as UTF-8"
    );
    for odd in [
        b"-1,0,a,1".as_slice(),
        b"nan,0,a,1",
        b"1e99,0,a,1",
        b"\"0,0,a,1",
        b"\0",
    ] {
        let told = told(odd);
        assert!(told.starts_with("t.csv:1:"), "{told}");
    }
}

#[test]
fn an_empty_trace_and_a_missing_one() {
    let trace = Recording::new("empty", b"# nothing but a comment\ntime,class,flow,cost\n");
    let empty = replay(&trace.0, &Scenario::for_replay(), 1).expect_err("nothing is in it");
    let told = empty.to_string();
    assert!(told.contains("no requests; write"), "{told}");
    let missing =
        replay(&trace.0.join("no"), &Scenario::for_replay(), 1).expect_err("there is none");
    assert!(missing.to_string().contains("cannot read "), "{missing}");
}

#[test]
fn times_may_be_dates() {
    let lines = |start: f64| {
        let lines = (0..50).map(|n| format!("{:.2},0,a,5\n", start + f64::from(n) * 0.25));
        lines.collect::<String>()
    };
    let seconds = |start: f64| {
        let trace = Recording::new("dates", lines(start).as_bytes());
        let report = json(&trace, &Scenario::for_replay());
        assert_eq!(report["totals"]["done"], 50);
        report["seconds"].as_f64().expect("a number")
    };
    let (plain, dated) = (seconds(0.0), seconds(1_700_000_000.0));
    assert!((plain - dated).abs() < 0.001, "{plain} {dated}");
}
