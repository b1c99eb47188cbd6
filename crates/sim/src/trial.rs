//! One run of a scenario: with which seed, under which recorded load, and who wants to know how far
//! it is.

use crate::error::SimError;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::simulation::Simulation;
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
/// let report = Trial::new(&scenario, 1).replaying("requests.csv", recorded.as_bytes()).run()?;
/// assert_eq!(report.offered(), 2);
/// # Ok::<(), headworks_sim::SimError>(())
/// ```
pub struct Trial<'a> {
    scenario: &'a Scenario,
    seed: u64,
    trace: Option<Trace<'a>>,
    watch: Option<Watch<'a>>,
}

/// Is told from time to time how far a run is.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Progress);

/// How far a run is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// What it has done so far: jobs handed in, jobs granted, moments it came to.
    pub steps: u64,
    /// How much time has passed in it.
    pub simulated: Duration,
    /// How much will have passed in the end, if that is known.
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

    /// With a recorded load instead of the scenario's loads and rounds; `file` is what errors call
    /// it.
    #[must_use]
    pub fn replaying(mut self, file: &str, lines: impl Read + 'a) -> Self {
        let trace = Trace::new(file.to_owned(), Box::new(lines), &self.scenario.flows);
        self.trace = Some(trace);
        self
    }

    /// With a recorded load that is in a file.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn replaying_file(self, path: &Path) -> Result<Self, SimError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(opened) => Ok(self.replaying(&file, opened)),
            Err(source) => Err(SimError::Read { file, source }),
        }
    }

    /// Tells `watch` from time to time how far it is.
    #[must_use]
    pub fn watched(mut self, watch: &'a mut dyn FnMut(Progress)) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// If the recorded load cannot be read, or the run would take more steps than the scenario
    /// allows.
    pub fn run(self) -> Result<Report, SimError> {
        if self.trace.is_none() {
            self.scenario.check_size()?;
        }
        let run = Simulation::new(self.scenario, self.seed, self.trace).run(self.watch)?;
        Ok(Report::new(self.scenario, self.seed, run))
    }
}
