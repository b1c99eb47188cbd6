//! A concurrency limit that adapts to the responses of a service.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay after an overload without `Retry-After`; later ones double.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Limits concurrent calls by additive increase and multiplicative decrease (AIMD, Chiu and Jain
/// 1989): an overload halves the limit and suspends all calls for a while; a round of successes
/// raises it by one.
#[derive(Clone)]
pub(crate) struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<LimiterState>,
    changed: Notify,
}

struct LimiterState {
    limit: f64,
    max: f64,
    running: usize,
    suspended_until: Option<Instant>,
    pause: Duration,
    /// The minimum interval between calls, and when the next may start.
    interval: Duration,
    next_start: Instant,
}

/// The configured limits of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of concurrent calls.
    pub(crate) concurrent: usize,
    /// Minimum interval between calls.
    pub(crate) interval: Duration,
}

/// How far delayed calls may catch up: timers are not exact.
const MAX_CATCH_UP: Duration = Duration::from_millis(100);

/// A permit for a call, released when it is dropped.
pub(crate) struct LimiterPermit {
    shared: Arc<Shared>,
}

impl Limiter {
    pub(crate) fn new(limits: Limits) -> Limiter {
        let state = LimiterState {
            limit: limits.concurrent as f64,
            max: limits.concurrent as f64,
            interval: limits.interval,
            next_start: Instant::now(),
            running: 0,
            suspended_until: None,
            pause: FIRST_PAUSE,
        };
        Limiter {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    pub(crate) async fn acquire(&self) -> LimiterPermit {
        loop {
            let changed = self.shared.changed.notified();
            let wait = {
                let mut state = self.shared.state.lock();
                let now = Instant::now();
                let until = state
                    .suspended_until
                    .map_or(state.next_start, |until| until.max(state.next_start));
                match Some(until).filter(|until| *until > now) {
                    Some(until) => Some(until),
                    None if (state.running as f64) < state.limit.max(1.0).floor() => {
                        state.running += 1;
                        if !state.interval.is_zero() {
                            state.next_start =
                                state.next_start.max(now - MAX_CATCH_UP) + state.interval;
                        }
                        return LimiterPermit {
                            shared: self.shared.clone(),
                        };
                    }
                    None => None,
                }
            };
            match wait {
                Some(until) => tokio::time::sleep_until(until).await,
                None => changed.await,
            }
        }
    }

    pub(crate) fn on_success(&self) {
        let mut state = self.shared.state.lock();
        state.pause = FIRST_PAUSE;
        if state.limit < state.max {
            state.limit = (state.limit + 1.0 / state.limit).min(state.max);
            self.shared.changed.notify_one();
        }
    }

    pub(crate) fn on_overload(&self, retry_after: Option<Duration>) {
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        let is_new = state.suspended_until.is_none_or(|until| until <= now);
        let until = now + retry_after.unwrap_or(state.pause);
        state.suspended_until = Some(state.suspended_until.map_or(until, |was| was.max(until)));
        // Calls that ran together are rejected together, which counts as one overload.
        if is_new {
            state.limit = (state.limit / 2.0).max(1.0);
            state.pause = (state.pause * 2).min(MAX_PAUSE);
        }
    }
}

impl Drop for LimiterPermit {
    fn drop(&mut self) {
        self.shared.state.lock().running -= 1;
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_overload_suspends_all_calls_and_halves_the_limit() {
        let limiter = Limiter::new(Limits {
            concurrent: 4,
            interval: Duration::ZERO,
        });
        let passes = [
            limiter.acquire().await,
            limiter.acquire().await,
            limiter.acquire().await,
        ];
        limiter.on_overload(Some(Duration::from_secs(3)));
        limiter.on_overload(Some(Duration::from_secs(3)));
        drop(passes);
        let began = Instant::now();
        let _first = limiter.acquire().await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let _second = limiter.acquire().await;
        let third = tokio::time::timeout(Duration::from_secs(60), limiter.acquire()).await;
        assert!(third.is_err(), "two concurrent calls, not four and not one");
        for _ in 0..9 {
            limiter.on_success();
        }
        let _third = limiter.acquire().await;
    }

    #[tokio::test(start_paused = true)]
    async fn calls_keep_their_interval() {
        let limiter = Limiter::new(Limits {
            concurrent: 64,
            interval: Duration::from_millis(20),
        });
        let began = Instant::now();
        let calls = (0..200).map(|_| async { drop(limiter.acquire().await) });
        futures_util::future::join_all(calls).await;
        let took = began.elapsed();
        let wanted = Duration::from_millis(20 * 199);
        assert!(
            took + MAX_CATCH_UP >= wanted && took <= wanted + MAX_CATCH_UP,
            "{took:?}"
        );
    }
}
