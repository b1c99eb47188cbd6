//! The scenario in the guide is valid.

use headworks_sim::{Scenario, run};

#[test]
fn the_scenario_of_the_guide_runs_and_does_what_it_expects() {
    let guide = include_str!("../../../docs/scenarios.md");
    let text = guide
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let scenario =
        Scenario::from_text("docs/scenarios.md", text.expect("the guide has a scenario"));
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let report = run(&scenario, scenario.seed()).expect("it is small");
    assert!(report.is_as_expected(), "{}", report.to_text());
}
