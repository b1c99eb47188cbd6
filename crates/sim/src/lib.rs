//! The scheduling core under a virtual clock.
//!
//! * [`Scenario`]: what is simulated, read from TOML. A [`Trial`] makes a [`Report`] of it; [`run`]
//!   and [`replay`] are the short ways.
//! * [`audit`] and [`chaos`]: a core whose every answer is checked, and random walks over
//!   everything it can be told.

pub mod audit;
pub mod chaos;
mod error;
mod record;
mod report;
mod scenario;
mod simulation;
mod trace;
mod trial;

pub use error::{Place, SimError};
pub use report::{Checked, Report};
pub use scenario::{Metric, Scenario, shipped_names};
pub use trial::{Progress, Trial};

use std::path::Path;

/// Runs a scenario. The same scenario and seed always give the same report.
///
/// ```
/// use headworks_sim::{Scenario, run};
/// use std::time::Duration;
///
/// let scenario = Scenario::shipped("ten-classes-wfq").unwrap().shortened(Duration::from_secs(5));
/// let report = run(&scenario, 7)?;
/// assert!(report.to_text().contains("P9"));
/// assert_eq!(report.to_json(), run(&scenario, 7)?.to_json());
/// # Ok::<(), headworks_sim::SimError>(())
/// ```
///
/// # Errors
/// If it would take more steps than the scenario allows.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Report, SimError> {
    Trial::new(scenario, seed).run()
}

/// Replays a recorded load, CSV lines of arrival time in seconds, class, flow and cost, under a
/// scenario's scheduler and targets; its own loads and rounds are left aside.
///
/// # Errors
/// If the trace cannot be read, naming the line and the field, or takes more steps than the
/// scenario allows.
pub fn replay(trace: &Path, scenario: &Scenario, seed: u64) -> Result<Report, SimError> {
    Trial::new(scenario, seed).replaying_file(trace)?.run()
}
