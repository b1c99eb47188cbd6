//! Scenarios: the simulated system, read from TOML.
//!
//! `file` has the tables and keys as written. `build` turns them into the runnable form (`model`,
//! `expect`), resolves names and checks constraints between keys. Every error names file, line, key
//! and remedy.

mod amount;
mod build;
mod expect;
mod file;
mod location;
mod model;
mod read;
mod shipped;
mod size;

pub use expect::Metric;
pub(crate) use expect::{Expect, Scope};
pub(crate) use model::{
    ActualCost, Clients, FleetPlan, Load, NodeChoice, OnRefusal, OutageKind, Request, RoundsSpec,
    SimulatedTarget, TargetChoice, Trouble,
};

use crate::error::SimError;
use headworks_core::{Config, Policy};
use std::path::Path;
use std::time::Duration;

/// A simulated system: scheduler, targets, loads and expectations.
///
/// ```
/// use headworks_sim::Scenario;
///
/// let scenario = Scenario::from_text("small.toml", r#"
///     duration = "10s"
///     [scheduler]
///     policy = "wfq"
///     limits = { concurrent = 4 }
///     [[loads]]
///     name = "chat"
///     arrivals = { kind = "poisson", rate = 100.0 }
/// "#)?;
/// assert_eq!(scenario.duration().as_secs(), 10);
///
/// let text = "duration = \"10s\"\n[scheduler]\npolcy = \"wfq\"";
/// let wrong = Scenario::from_text("small.toml", text).unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "small.toml:3:1: unknown key `scheduler.polcy`; did you mean `policy`?"
/// );
/// # Ok::<(), headworks_sim::SimError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) seed: u64,
    pub(crate) duration: Duration,
    pub(crate) max_steps: u64,
    pub(crate) config: Config,
    pub(crate) classes: Vec<String>,
    pub(crate) flows: Vec<String>,
    pub(crate) targets: Vec<SimulatedTarget>,
    pub(crate) loads: Vec<Load>,
    pub(crate) trace: Request,
    pub(crate) workers: Option<(usize, usize)>,
    pub(crate) rounds: Option<RoundsSpec>,
    pub(crate) fleet: Option<FleetPlan>,
    pub(crate) expects: Vec<Expect>,
}

impl Scenario {
    /// Parses a scenario from text; `file` is its name in errors.
    ///
    /// # Errors
    /// The first error in the text.
    pub fn from_text(file: &str, text: &str) -> Result<Self, SimError> {
        let read = read::read(file, text)?;
        let name = Path::new(file).file_stem().map_or_else(
            || file.to_owned(),
            |stem| stem.to_string_lossy().into_owned(),
        );
        build::build(name, &read).map_err(|wrong| wrong.at(file, text))
    }

    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn from_file(path: &Path) -> Result<Self, SimError> {
        Scenario::from_text(&path.display().to_string(), &read::text(path)?)
    }

    /// A scenario that is shipped with the program.
    ///
    /// ```
    /// use headworks_sim::Scenario;
    ///
    /// assert!(Scenario::shipped("greedy-tenant").is_some());
    /// ```
    #[must_use]
    pub fn shipped(name: &str) -> Option<Self> {
        let (name, text) = shipped::SHIPPED.iter().find(|(known, _)| *known == name)?;
        Scenario::from_text(name, text).ok()
    }

    /// Opens the file of that name, or else the shipped scenario.
    ///
    /// # Errors
    /// When it is neither, or the file is invalid.
    pub fn open(name: &str) -> Result<Self, SimError> {
        let path = Path::new(name);
        if path.exists() || name.contains(['/', '\\']) || name.ends_with(".toml") {
            return Scenario::from_file(path);
        }
        Scenario::shipped(name).ok_or_else(|| SimError::NoSuchScenario {
            name: name.to_owned(),
            remedy: read::remedy(name, &shipped_names()),
        })
    }

    /// The default for replays: ten classes under `hybrid`, with limits of 50 concurrent requests,
    /// 100 requests per second and a cost of 10,000 per second.
    #[must_use]
    pub fn for_replay() -> Self {
        const DEFAULT: &str = "
            about = 'the default configuration'
            duration = '1h'
            [scheduler.limits]
            concurrent = 50
            requests_per_second = 100
            cost_per_second = 10000
            [[targets]]
            name = 'target'
            latency = '50ms-350ms'
        ";
        Scenario::from_text("default", DEFAULT).expect("the default is right, and a test says so")
    }

    /// The name of the scenario.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A one-line description.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The seed of the scenario, or 0.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The simulated duration.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Limits the simulated duration to `duration`.
    #[must_use]
    pub fn with_max_duration(mut self, duration: Duration) -> Self {
        self.duration = self.duration.min(duration);
        self
    }

    /// Limits a run to `steps` steps: submissions, grants and time advances.
    #[must_use]
    pub fn with_max_steps(mut self, steps: u64) -> Self {
        self.max_steps = steps;
        self
    }

    /// The same scenario under another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.config.policy = policy;
        self
    }
}

/// The names of the shipped scenarios.
#[must_use]
pub fn shipped_names() -> Vec<&'static str> {
    shipped::SHIPPED.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests;
