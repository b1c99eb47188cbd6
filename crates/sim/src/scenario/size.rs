//! Limits on the size of a run.

use super::{Load, Scenario, TargetChoice};
use crate::error::SimError;
use headworks_core::Time;
use headworks_synth::Arrivals;

/// Default step limit, about a minute of work.
pub(super) const DEFAULT_MAX_STEPS: u64 = 200_000_000;

impl Scenario {
    /// Rejects a scenario that cannot finish within its step limit. The rate of closed loads
    /// depends on response times, so they are counted while the run goes on.
    pub(crate) fn check_size(&self) -> Result<(), SimError> {
        let jobs: Vec<f64> = self.loads.iter().map(|load| self.jobs_of(load)).collect();
        let all: f64 = jobs.iter().sum();
        let most = self.loads.iter().zip(jobs);
        match most.max_by(|(_, a), (_, b)| a.total_cmp(b)) {
            Some((load, _)) if all > self.max_steps as f64 => Err(SimError::LoadTooLarge {
                jobs: all,
                most: load.name.clone(),
                allowed: self.max_steps,
            }),
            _ => Ok(()),
        }
    }

    fn jobs_of(&self, load: &Load) -> f64 {
        let Some(rate) = load.arrivals.mean_rate() else {
            return 0.0;
        };
        let each = match &load.request.pick {
            TargetChoice::Each(targets) => targets.len(),
            TargetChoice::Any(_) | TargetChoice::One(_) => 1,
        };
        let until = load.until.min(Time::ZERO + self.duration);
        let jobs = rate * until.since(Time::ZERO + load.from).as_secs_f64();
        // The first burst occurs however long the pause after it is.
        let least = match load.arrivals {
            Arrivals::Bursts { size, .. } => f64::from(size),
            _ => 0.0,
        };
        jobs.max(least) * each as f64
    }
}
