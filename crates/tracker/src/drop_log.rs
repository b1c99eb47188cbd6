//! A log of dropped forwards that does not fill the disk.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// Logs dropped forwards, at most one line per minute.
#[derive(Default)]
pub(crate) struct DropLog(Mutex<(Option<Instant>, u64)>);

impl DropLog {
    /// Notes dropped forwards, and logs all of them since the last line if that was long enough
    /// ago. Returns the number in the line.
    pub(crate) fn log(&self, dropped: u64) -> Option<u64> {
        let mut state = self.0.lock();
        state.1 += dropped;
        let due = state.0.is_none_or(|last| last.elapsed() >= PAUSE);
        due.then(|| {
            let total = std::mem::take(&mut state.1);
            state.0 = Some(Instant::now());
            tracing::warn!(
                dropped = total,
                "the forward queue is full: raise `forwarder_queue_size` or list fewer forwarders"
            );
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drops_are_logged_once_per_minute_with_their_sum() {
        let log = DropLog::default();
        assert_eq!(log.log(3), Some(3));
        assert_eq!((log.log(1), log.log(1)), (None, None));
        tokio::time::advance(PAUSE).await;
        assert_eq!(log.log(1), Some(3));
    }
}
