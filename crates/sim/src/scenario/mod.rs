//! Scenarios: what is simulated, read from TOML.
//!
//! `file` has the tables and keys as they are written, `build` makes of them what is run (`model`,
//! `expect`), looking up names and checking what no key can check alone. Every error names file,
//! line, key and the way out.

mod amount;
mod build;
mod expect;
mod file;
mod model;
mod place;
mod read;
mod shipped;
mod size;

pub use expect::Metric;
pub(crate) use expect::{Expect, Scope};
pub(crate) use model::{
    Actual, Clients, FarSide, Load, OnRefusal, OutageKind, Pick, Request, RoundsPlan,
};

use crate::error::SimError;
use headworks_core::{Config, Policy};
use std::path::Path;
use std::time::Duration;

/// What is simulated.
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
/// let wrong = Scenario::from_text("small.toml", "duration = \"10s\"\n[scheduler]\npolcy = \"wfq\"").unwrap_err();
/// assert_eq!(wrong.to_string(), "small.toml:3:1: unknown key `scheduler.polcy`; did you mean `policy`?");
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
    pub(crate) targets: Vec<FarSide>,
    pub(crate) loads: Vec<Load>,
    pub(crate) trace: Request,
    pub(crate) workers: Option<(usize, usize)>,
    pub(crate) rounds: Option<RoundsPlan>,
    pub(crate) expects: Vec<Expect>,
}

impl Scenario {
    /// Reads a scenario from text; `file` is what errors call it.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn from_text(file: &str, text: &str) -> Result<Self, SimError> {
        let read = read::read(file, text)?;
        let name = Path::new(file).file_stem().map_or_else(
            || file.to_owned(),
            |stem| stem.to_string_lossy().into_owned(),
        );
        build::build(name, read).map_err(|wrong| wrong.at(file, text))
    }

    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn from_file(path: &Path) -> Result<Self, SimError> {
        Scenario::from_text(&path.display().to_string(), &read::text(path)?)
    }

    /// A scenario that comes with the program.
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

    /// The file of that name, or else the shipped scenario.
    ///
    /// # Errors
    /// If it is neither, or something is wrong with the file.
    pub fn open(name: &str) -> Result<Self, SimError> {
        let path = Path::new(name);
        if path.exists() || name.contains(['/', '\\']) || name.ends_with(".toml") {
            return Scenario::from_file(path);
        }
        Scenario::shipped(name).ok_or_else(|| SimError::NoSuchScenario {
            name: name.to_owned(),
            way_out: read::way_out(name, &shipped_names()),
        })
    }

    /// What a trace is replayed under if nothing else is said: ten classes under `hybrid`, 50 at
    /// once, 100 requests and a cost of 10,000 a second.
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
            name = 'far side'
            latency = '50ms-350ms'
        ";
        Scenario::from_text("default", DEFAULT).expect("the default is right, and a test says so")
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it shows, in a line.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The seed that it names, or 0.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How long it runs, in its own time.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Makes it run for another time, at most as long as it says.
    #[must_use]
    pub fn shortened(mut self, duration: Duration) -> Self {
        self.duration = self.duration.min(duration);
        self
    }

    /// Lets a run take so many steps: jobs handed in, jobs granted, moments it comes to.
    #[must_use]
    pub fn at_most(mut self, steps: u64) -> Self {
        self.max_steps = steps;
        self
    }

    /// The same under another policy: what if?
    #[must_use]
    pub fn under(mut self, policy: Policy) -> Self {
        self.config.policy = policy;
        self
    }
}

/// The names of the scenarios that come with the program.
#[must_use]
pub fn shipped_names() -> Vec<&'static str> {
    shipped::SHIPPED.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests;
