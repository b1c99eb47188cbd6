//! Log lines about events that may come by the thousand.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// Counts events, and says when they are worth a log line: at most once per minute.
#[derive(Default)]
pub(crate) struct LogThrottle(Mutex<(Option<Instant>, u64)>);

impl LogThrottle {
    /// Notes events. If the last line was long enough ago, returns the number of all events since.
    pub(crate) fn note(&self, events: u64) -> Option<u64> {
        let mut state = self.0.lock();
        state.1 += events;
        let due = state.0.is_none_or(|last| last.elapsed() >= PAUSE);
        due.then(|| {
            state.0 = Some(Instant::now());
            std::mem::take(&mut state.1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_are_logged_once_per_minute_with_their_sum() {
        let log = LogThrottle::default();
        assert_eq!(log.note(3), Some(3));
        assert_eq!((log.note(1), log.note(1)), (None, None));
        tokio::time::advance(PAUSE).await;
        assert_eq!(log.note(1), Some(3));
    }
}
