//! One run of a scenario, with its seed, an optional trace and a progress callback.

use crate::error::SimError;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::simulation::{Simulation, run_fleet};
use crate::trace::Trace;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// One run of a scenario.
///
/// ```
/// use headworks_sim::{Scenario, Trial};
///
/// let scenario = Scenario::for_replay();
/// let recorded = "0.0,0,alice,10\n0.5,3,bob,20\n";
/// let report = Trial::new(&scenario, 1).with_trace("requests.csv", recorded.as_bytes()).run()?;
/// assert_eq!(report.offered(), 2);
/// # Ok::<(), headworks_sim::SimError>(())
/// ```
pub struct Trial<'a> {
    scenario: &'a Scenario,
    seed: u64,
    trace: Option<Trace<'a>>,
    watch: Option<ProgressFn<'a>>,
}

/// Progress callback.
pub(crate) type ProgressFn<'a> = &'a mut dyn FnMut(Progress);

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Steps taken so far: submissions, grants and time advances.
    pub steps: u64,
    /// Simulated time so far.
    pub simulated: Duration,
    /// Simulated time at the end, if known.
    pub length: Option<Duration>,
}

impl<'a> Trial<'a> {
    /// A run of the scenario with its own loads.
    #[must_use]
    pub fn new(scenario: &'a Scenario, seed: u64) -> Self {
        Trial {
            scenario,
            seed,
            trace: None,
            watch: None,
        }
    }

    /// Replays a recorded load in place of the scenario's loads and rounds; `file` is its name in
    /// errors.
    #[must_use]
    pub fn with_trace(mut self, file: &str, lines: impl Read + 'a) -> Self {
        let trace = Trace::new(file.to_owned(), Box::new(lines), &self.scenario.flows);
        self.trace = Some(trace);
        self
    }

    /// Replays a recorded load from a file.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn with_trace_file(self, path: &Path) -> Result<Self, SimError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(opened) => Ok(self.with_trace(&file, opened)),
            Err(source) => Err(SimError::Read { file, source }),
        }
    }

    /// Calls `watch` from time to time with the progress.
    #[must_use]
    pub fn on_progress(mut self, watch: &'a mut dyn FnMut(Progress)) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// When the recorded load cannot be read, or the run would exceed the steps that the scenario
    /// permits.
    pub fn run(self) -> Result<Report, SimError> {
        if self.trace.is_none() {
            self.scenario.check_size()?;
        }
        let (scenario, seed) = (self.scenario, self.seed);
        // A recorded load does not say at which node a request arrived.
        let (run, fleet) = match (&scenario.fleet, self.trace) {
            (Some(plan), None) => {
                let (run, fleet) = run_fleet(scenario, plan, seed, self.watch)?;
                (run, Some(fleet))
            }
            (_, trace) => {
                let simulation = Simulation::new(scenario, seed, trace);
                (simulation.run(self.watch)?, None)
            }
        };
        Ok(Report::new(scenario, seed, run, fleet))
    }
}
