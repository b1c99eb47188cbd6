//! The pause before the next attempt to connect.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Exponential backoff with jitter, of at most one second: a database that returns is used within
/// that time, and a fleet that waits for it does not arrive all at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    /// Waits until the next attempt is due.
    pub(crate) async fn wait(&self) {
        if let Some(due) = self.not_before {
            tokio::time::sleep_until(due).await;
        }
    }

    pub(crate) fn failed(&mut self) {
        self.not_before = Some(Instant::now() + pause(self.failures, fastrand::f64()));
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Backoff::default();
    }
}

/// The pause after `failures` earlier failures, between half and all of the exponential one.
fn pause(failures: u32, random: f64) -> Duration {
    let full = FIRST.saturating_mul(1 << failures.min(8)).min(LONGEST);
    full.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_one_second() {
        assert_eq!(pause(0, 1.0), FIRST);
        assert_eq!(pause(1, 1.0), 2 * FIRST);
        for failures in 5..40 {
            assert_eq!(pause(failures, 1.0), LONGEST);
            assert_eq!(pause(failures, 0.0), LONGEST / 2);
        }
    }
}
