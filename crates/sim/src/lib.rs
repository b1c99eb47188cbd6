//! The scheduling core under a virtual clock.
//!
//! * [`Scenario`]: what is simulated, read from TOML. [`run`] and [`replay`] make a [`Report`] of it.
//! * [`audit`] and [`chaos`]: a core whose every answer is checked, and random walks over everything it can be told.

pub mod audit;
pub mod chaos;
mod error;
mod record;
mod report;
mod scenario;
mod simulation;
mod trace;

pub use error::{Place, SimError};
pub use report::{Checked, Report};
pub use scenario::{Metric, Scenario, shipped_names};

use simulation::Simulation;
use std::path::Path;

/// Runs a scenario. The same scenario and seed always give the same report.
///
/// ```
/// use headworks_sim::{Scenario, run};
/// use std::time::Duration;
///
/// let scenario = Scenario::shipped("ten-classes-wfq").unwrap().shortened(Duration::from_secs(5));
/// let report = run(&scenario, 7);
/// assert!(report.to_text().contains("P9"));
/// assert_eq!(report.to_json(), run(&scenario, 7).to_json());
/// ```
#[must_use]
pub fn run(scenario: &Scenario, seed: u64) -> Report {
    let run = Simulation::new(scenario, seed, None)
        .run()
        .expect("only a trace can fail on the way");
    Report::new(scenario, seed, run)
}

/// Replays a recorded load, CSV lines of arrival time in seconds, class, flow and cost, under a scenario's scheduler and
/// targets; its own loads and rounds are left aside.
///
/// # Errors
/// If the trace cannot be read, naming the line and the field.
pub fn replay(trace: &Path, scenario: &Scenario, seed: u64) -> Result<Report, SimError> {
    let trace = trace::Trace::open(trace, &scenario.flows)?;
    let run = Simulation::new(scenario, seed, Some(trace)).run()?;
    Ok(Report::new(scenario, seed, run))
}
