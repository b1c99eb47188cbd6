//! Runs that would never end are stopped with an error.

use headworks_sim::{Scenario, Trial, run};

fn problem(text: &str) -> String {
    let scenario = Scenario::from_text("size.toml", text).unwrap_or_else(|error| panic!("{error}"));
    run(&scenario, 1).expect_err("it is too large").to_string()
}

#[test]
fn loads_that_cannot_be_handed_in_are_refused_before_the_run() {
    let fast = problem(
        "duration = \"60s\"
        [[loads]]
        name = \"slow\"
        arrivals = { kind = \"constant\", rate = 1.0 }
        [[loads]]
        name = \"fast\"
        arrivals = { kind = \"poisson\", rate = 1e9 }",
    );
    assert_eq!(
        fast,
        "about 6.0e10 jobs would be submitted, most of them by the load `fast`, but a run is limited to 200000000 steps; \
         lower its rate, shorten `duration`, or allow more with `max_steps`"
    );
    let wide = problem(
        "duration = \"60s\"
        [[targets]]
        name = \"t\"
        count = 1000000
        [[loads]]
        name = \"wide\"
        pick = \"each\"
        arrivals = { kind = \"constant\", rate = 100.0 }",
    );
    assert!(wide.starts_with("about 6.0e9 jobs"), "{wide}");
}

/// Targets that respond at once and clients that never think: time hardly advances.
const BUSY: &str = "
    duration = \"60s\"
    max_steps = 50000
    [[targets]]
    name = \"t\"
    latency = \"1ns\"
    [[loads]]
    name = \"clients\"
    arrivals = { kind = \"closed\", clients = 10, think = \"0s\" }";

#[test]
fn a_run_that_comes_to_no_end_is_stopped() {
    let told = problem(BUSY);
    assert!(
        told.starts_with("stopped after 50001 steps, with 1.2 ms simulated; give targets"),
        "{told}"
    );
    assert!(told.contains("`max_steps`"), "{told}");
}

#[test]
fn progress_is_reported() {
    let scenario = Scenario::from_text("busy.toml", BUSY).unwrap_or_else(|error| panic!("{error}"));
    let scenario = scenario.with_max_steps(300_000);
    let mut told = Vec::new();
    let mut watch = |progress: headworks_sim::Progress| told.push(progress.steps);
    let ended = Trial::new(&scenario, 1).on_progress(&mut watch).run();
    assert!(ended.is_err());
    assert!(told.len() >= 4 && told.is_sorted(), "{told:?}");
}
