//! The shipped scenarios meet their expectations, and a run is a function of scenario and seed.

use headworks_core::Policy;
use headworks_sim::{Scenario, run, shipped_names};
use std::time::Duration;

#[test]
fn shipped_scenarios_do_what_they_expect() {
    std::thread::scope(|scope| {
        for name in shipped_names() {
            scope.spawn(move || {
                let scenario = Scenario::shipped(name).expect("it is shipped");
                // Only a part is run where it shows the same.
                let length = match name {
                    "greedy-tenant" => Duration::from_secs(60),
                    "ten-classes-strict" => Duration::from_secs(120),
                    _ => Duration::MAX,
                };
                let report = run(&scenario.with_max_duration(length), 1).expect("it is small");
                assert!(!report.expectations().is_empty());
                for checked in report.expectations() {
                    assert!(checked.met, "{name}: {checked:?}\n{}", report.to_text());
                }
            });
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_another() {
    for name in ["tokens", "refused-clients", "forwarders", "rounds", "fleet"] {
        let scenario = Scenario::shipped(name).expect("it is shipped");
        let scenario = scenario.with_max_duration(Duration::from_secs(30));
        let report = run(&scenario, 5).expect("it is small").to_json();
        assert_eq!(
            report,
            run(&scenario, 5).expect("it is small").to_json(),
            "{name}"
        );
        assert_ne!(
            report,
            run(&scenario, 6).expect("it is small").to_json(),
            "{name}"
        );
    }
}

/// The fleet of a scenario: shares by node, use of the limit, and what goes wrong.
#[test]
fn a_fleet_shares_the_limits_and_shows_how() {
    let fleet = |rest: &str, duration: u32| {
        let text = format!(
            "duration = \"{duration}s\"\n\
             [scheduler]\nlimits = {{ requests_per_second = 100, requests_burst = 10 }}\n\
             [[targets]]\nname = 'far'\nlatency = '20ms'\n{rest}"
        );
        let scenario = Scenario::from_text("fleet.toml", &text);
        let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
        let report = run(&scenario, 1).expect("it is small");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
        (report, json["fleet"].clone())
    };
    let busy = |node: u32| {
        format!(
            "[[loads]]\nname = 'l{node}'\nnode = {node}\n\
             arrivals = {{ kind = 'closed', clients = 40, think = '0s' }}\n"
        )
    };
    let two = busy(1) + &busy(2);
    let (report, even) = fleet(&format!("[fleet]\nnodes = 2\n{two}"), 30);
    for node in 0..2 {
        let share = even["nodes"][node]["shares"][20].as_f64().expect("a share");
        assert!((0.45..=0.55).contains(&share), "{even}");
    }
    assert!(even["least_use"].as_f64() > Some(0.96) && even["most_use"].as_f64() < Some(1.02));
    assert_eq!(even["calls_over"], 0);
    let text = report.to_text();
    assert!(
        text.contains("node 2") && text.contains("calls over the limit: 0"),
        "{text}"
    );
    assert!(report.to_html().contains("Shares of the nodes"));
    // A node that dies under `closed` gives its rate to the other after four seconds.
    let dies = format!(
        "[fleet]\nnodes = 2\non_loss = 'closed'\nrequest_timeout = '1s'\n\
         kill = [{{ node = 2, at = '10s' }}]\n{two}"
    );
    let (_, dies) = fleet(&dies, 30);
    let share = |at: usize| dies["nodes"][0]["shares"][at].as_f64().expect("a share");
    assert!(share(11) < 0.6 && share(17) > 0.95, "{dies}");
    assert_eq!(dies["nodes"][1]["shares"][20], 0.0);
    assert_eq!(dies["calls_over"], 0);
    // The server is away for longer than a node may be silent: nobody is forgotten.
    let away = format!(
        "[fleet]\nnodes = 2\nforget_after = '5s'\n\
         cut = [{{ node = 'all', from = '8s', for = '15s' }}]\n{two}"
    );
    let (_, away) = fleet(&away, 40);
    assert_eq!(away["calls_over"], 0, "{away}");
    // One that is forgotten while it goes on exceeds the limit, and the report says so.
    let lost = format!(
        "[fleet]\nnodes = 2\nforget_after = '5s'\n\
         cut = [{{ node = 1, from = '8s', for = '15s' }}]\n{two}"
    );
    let (report, lost) = fleet(&lost, 40);
    assert!(lost["calls_over"].as_u64() > Some(100), "{lost}");
    assert!(report.to_text().contains("first exceeded at"));
}

#[test]
fn another_policy_gives_another_answer() {
    let scenario = Scenario::shipped("ten-classes-wfq").expect("it is shipped");
    let scenario = scenario
        .with_max_duration(Duration::from_secs(20))
        .with_policy(Policy::Strict);
    assert!(!run(&scenario, 1).expect("it is small").is_as_expected());
}

fn small(rest: &str) -> Scenario {
    Scenario::from_text("small.toml", &format!("duration = \"60s\"\n{rest}"))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A number of the JSON report.
fn at(report: &serde_json::Value, path: &str) -> f64 {
    let value = report.pointer(path).unwrap_or_else(|| panic!("no {path}"));
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{path} is {value}"))
}

fn json(scenario: &Scenario) -> serde_json::Value {
    serde_json::from_str(&run(scenario, 1).expect("it is small").to_json()).expect("it is JSON")
}

#[test]
fn every_job_is_accounted_for() {
    let scenario = small(
        "[scheduler]
        limits = { concurrent = 5 }
        bound = 50
        attempts = 2
        [[targets]]
        name = \"far\"
        count = 3
        latency = \"20ms-90ms\"
        errors = { fault = 0.1, rejected = 0.05 }
        capacity = { requests_per_second = 20, retry_after = \"1s\" }
        [[loads]]
        name = \"a\"
        class = [0, 3]
        flows = 4
        arrivals = { kind = \"poisson\", rate = 60.0 }
        timeout = \"2s\"
        clients = { on_refusal = \"obey\", jitter = 0.1 }",
    );
    let report = json(&scenario);
    let total = |name: &str| at(&report, &format!("/totals/{name}"));
    let left = |name: &str| at(&report, &format!("/left/{name}"));
    assert_eq!(total("offered"), total("admitted") + total("refused"));
    let ended = total("done") + total("failed") + total("expired") + total("shed");
    assert_eq!(
        total("admitted"),
        ended + left("waiting") + left("delayed") + left("running")
    );
    assert!(total("failed") > 0.0 && total("expired") > 0.0 && total("done") > 500.0);
}

#[test]
fn a_closed_load_has_no_more_at_once_than_clients() {
    let scenario = small(
        "[[targets]]
        name = \"far\"
        latency = \"100ms\"
        [[loads]]
        name = \"a\"
        arrivals = { kind = \"closed\", clients = 7, think = \"100ms\" }",
    );
    let report = json(&scenario);
    // Seven clients, each with a cycle of a fifth of a second to think and be served.
    let done = at(&report, "/totals/done");
    assert!((1900.0..2200.0).contains(&done), "{done}");
}

#[test]
fn workers_grow_with_the_queue() {
    let scenario = small(
        "[scheduler]
        bound = 50
        classes = 1
        [workers]
        base = 2
        max = 10
        [[targets]]
        name = \"far\"
        latency = \"100ms\"
        [[loads]]
        name = \"a\"
        arrivals = { kind = \"poisson\", rate = 70.0 }
        timeout = \"5s\"",
    );
    let report = json(&scenario);
    let most = at(&report, "/most_workers");
    assert!((7.0..=10.0).contains(&most), "{most}");
    let running = report
        .pointer("/series/running")
        .and_then(|r| r.as_array())
        .expect("a series");
    assert!(running.iter().all(|n| n.as_u64().expect("a number") <= 10));
    assert!(at(&report, "/totals/done") > 3000.0);
}

#[test]
fn estimates_may_be_wrong_and_shares_are_of_what_was_drawn() {
    let load = |name: &str, class: u8, actual: u64| {
        format!(
            "[[loads]]
            name = \"{name}\"
            class = {class}
            arrivals = {{ kind = \"closed\", clients = 20, think = \"0s\" }}
            cost = 100
            actual = {actual}\n"
        )
    };
    let scenario = small(&format!(
        "[scheduler]
        policy = \"wfq\"
        limits = {{ concurrent = 4 }}
        [[classes]]
        weight = 1
        [[classes]]
        weight = 1
        [[targets]]
        name = \"far\"
        latency = \"1ms-3ms\"
        {}{}",
        load("over", 0, 25),
        load("under", 1, 400)
    ));
    let report = json(&scenario);
    assert!(at(&report, "/classes/0/deviation").abs() < 0.02, "{report}");
    let granted = at(&report, "/classes/0/granted") / at(&report, "/classes/1/granted");
    assert!((15.0..17.0).contains(&granted), "{granted}");
}

#[test]
fn the_page_needs_nothing_else_and_shows_what_there_is() {
    let page = |name: &str| {
        let scenario = Scenario::shipped(name).expect("it is shipped");
        run(&scenario.with_max_duration(Duration::from_secs(400)), 1)
            .expect("it is small")
            .to_html()
    };
    let (forwarders, rounds) = (page("forwarders"), page("rounds"));
    for page in [&forwarders, &rounds] {
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        for outside in ["http:", "https:", "<script", "<link", "@import", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme:dark") && !page.contains("NaN"));
        for part in [
            "Expectations",
            "Waits over time",
            "Queue depth",
            "Drops by reason",
            "Targets",
            "Numbers",
        ] {
            assert!(page.contains(part) || part == "Waits over time", "{part}");
        }
    }
    assert!(forwarders.contains("class=\"state suspended\"") && forwarders.contains("flaky-10"));
    assert!(rounds.contains("class=\"round follower\"") && rounds.contains("round 14"));
}

#[test]
fn names_from_outside_are_only_text() {
    let scenario = small(
        "about = \"<script>alert(1)</script>\"
        [[loads]]
        name = \"<img src=x>\"
        flows = 2
        arrivals = { kind = \"poisson\", rate = 5.0 }",
    );
    let page = run(&scenario, 1).expect("it is small").to_html();
    assert!(!page.contains("<script") && !page.contains("<img") && page.contains("&lt;img"));
}

/// The cells of the table row that begins with a name.
fn row(text: &str, name: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no row {name} in {text}"));
    line.split("  ")
        .map(|cell| cell.trim().to_owned())
        .filter(|cell| !cell.is_empty())
        .collect()
}

const TWO: &str = "
    [scheduler]
    policy = \"POLICY\"
    bound = 50
    limits = { concurrent = 2 }
    [[targets]]
    name = \"far\"
    latency = \"10ms\"
    [[loads]]
    name = \"modest\"
    class = MODEST
    arrivals = { kind = \"poisson\", rate = 5.0 }
    [[loads]]
    name = \"greedy\"
    class = 2
    arrivals = { kind = \"poisson\", rate = 900.0 }";

#[test]
fn shares_are_compared_only_where_weights_decide_and_work_waits() {
    let text = |policy: &str, modest: &str| {
        let rest = TWO.replace("POLICY", policy).replace("MODEST", modest);
        run(&small(&rest), 1).expect("it is small").to_text()
    };
    for policy in ["fifo", "strict"] {
        let told = text(policy, "1");
        assert_eq!(row(&told, "P2")[9..11], ["–", "–"], "{told}");
    }
    // A class that gets all it asks for is not entitled to more.
    let told = text("wfq", "1");
    assert_eq!(row(&told, "P1")[9..11], ["–", "–"], "{told}");
    assert_ne!(row(&told, "P2")[9], "–", "{told}");
    let told = text("wfq", "2");
    assert_eq!(row(&told, "modest")[7..9], ["–", "–"], "{told}");
    assert_ne!(row(&told, "greedy")[7], "–", "{told}");
}

#[test]
fn one_panel_is_not_called_all_panels_and_loads_have_their_table() {
    let page = |modest: &str| {
        let rest = TWO.replace("POLICY", "wfq").replace("MODEST", modest);
        run(&small(&rest), 1).expect("it is small").to_html()
    };
    let (one, two) = (page("2"), page("1"));
    assert!(one.contains("Every step of the scale") && !one.contains("All panels"));
    assert!(two.contains("All panels"));
    assert!(one.contains("<th>load<th>requests<th>done") && one.contains("<tr><th>modest<td>"));
}
