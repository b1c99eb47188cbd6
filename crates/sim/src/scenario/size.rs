//! How much a run may do, and how much it will do at least.

use super::{Load, Pick, Scenario};
use crate::error::SimError;
use headworks_core::Time;
use headworks_synth::Arrivals;

/// Steps that a run may take unless it is told otherwise: a minute, more or less.
pub(super) const MOST_STEPS: u64 = 200_000_000;

impl Scenario {
    /// Refuses what cannot be run to its end, before it runs. Answers decide how often clients of a
    /// closed load ask: those are counted while it runs.
    pub(crate) fn check_size(&self) -> Result<(), SimError> {
        let jobs: Vec<f64> = self.loads.iter().map(|load| self.jobs_of(load)).collect();
        let all: f64 = jobs.iter().sum();
        let most = self.loads.iter().zip(jobs);
        match most.max_by(|(_, a), (_, b)| a.total_cmp(b)) {
            Some((load, _)) if all > self.max_steps as f64 => Err(SimError::TooLarge {
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
            Pick::Each(targets) => targets.len(),
            Pick::Any(_) | Pick::One(_) => 1,
        };
        let until = load.until.min(Time::ZERO + self.duration);
        let jobs = rate * until.since(Time::ZERO + load.from).as_secs_f64();
        // However long the pause after it is, the first burst comes.
        let least = match load.arrivals {
            Arrivals::Bursts { size, .. } => f64::from(size),
            _ => 0.0,
        };
        jobs.max(least) * each as f64
    }
}
