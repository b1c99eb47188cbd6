//! The scheduling core under a virtual clock.
//!
//! * [`Scenario`]: the simulated system, read from TOML. A [`Trial`] turns it into a [`Report`];
//!   [`run`] and [`replay`] are shortcuts.
//! * [`audit`] and [`chaos`]: a core whose every result is checked, and random walks over all its
//!   operations.

pub mod audit;
pub mod chaos;
mod error;
pub mod fleet;
mod record;
mod report;
mod scenario;
mod simulation;
mod trace;
mod trial;

pub use error::{FileLocation, SimError};
pub use report::{CheckedExpectation, Report};
pub use scenario::{Metric, Scenario, shipped_names};
pub use trial::{Progress, Trial};

use std::path::Path;

/// Runs a scenario. The same scenario and seed always give the same report.
///
/// ```
/// use headworks_sim::{Scenario, run};
/// use std::time::Duration;
///
/// let scenario = Scenario::shipped("ten-classes-wfq").unwrap();
/// let scenario = scenario.with_max_duration(Duration::from_secs(5));
/// let report = run(&scenario, 7)?;
/// assert!(report.to_text().contains("P9"));
/// assert_eq!(report.to_json(), run(&scenario, 7)?.to_json());
/// # Ok::<(), headworks_sim::SimError>(())
/// ```
///
/// # Errors
/// When the run would exceed the steps that the scenario permits.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Report, SimError> {
    Trial::new(scenario, seed).run()
}

/// Replays a recorded load (CSV lines of arrival time in seconds, class, flow and cost) under the
/// scheduler and targets of a scenario. The loads and rounds of the scenario are ignored.
///
/// # Errors
/// When the trace cannot be read (the error names line and field), or the run would exceed the
/// steps that the scenario permits.
pub fn replay(trace: &Path, scenario: &Scenario, seed: u64) -> Result<Report, SimError> {
    Trial::new(scenario, seed).with_trace_file(trace)?.run()
}
