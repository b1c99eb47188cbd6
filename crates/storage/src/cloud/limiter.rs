//! A concurrency limit that adapts to the responses of a service.

use headworks_core::{AdaptiveLimit, Cost, Rate, Time, TokenBucket};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay after an overload without `Retry-After`; later ones double.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Limits concurrent calls: an overload halves the limit and suspends all calls for a while; a
/// round of successes raises it by one. Calls keep the configured rate.
#[derive(Clone)]
pub(crate) struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    start: Instant,
    state: Mutex<LimiterState>,
    changed: Notify,
}

struct LimiterState {
    limit: AdaptiveLimit,
    running: usize,
    suspended_until: Time,
    pause: Duration,
    /// Without it, calls have no rate.
    rate: Option<TokenBucket>,
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
        let rate = Some(limits.interval).filter(|interval| !interval.is_zero());
        let rate = rate.map(|interval| {
            let burst = MAX_CATCH_UP.as_nanos() / interval.as_nanos();
            let burst = Cost(u64::try_from(burst).unwrap_or(u64::MAX));
            TokenBucket::new(Rate::every(interval).with_burst(burst), Time::ZERO)
        });
        let state = LimiterState {
            limit: AdaptiveLimit::new(1.0, limits.concurrent as f64),
            rate,
            running: 0,
            suspended_until: Time::ZERO,
            pause: FIRST_PAUSE,
        };
        Limiter {
            shared: Arc::new(Shared {
                start: Instant::now(),
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.shared.start.elapsed()
    }

    pub(crate) async fn acquire(&self) -> LimiterPermit {
        loop {
            let changed = self.shared.changed.notified();
            let attempt = self.shared.state.lock().try_acquire(self.now());
            match attempt {
                Attempt::Acquired => {
                    return LimiterPermit {
                        shared: self.shared.clone(),
                    };
                }
                Attempt::Until(at) => {
                    let at = self.shared.start + at.since(Time::ZERO);
                    tokio::time::sleep_until(at).await;
                }
                Attempt::Full => changed.await,
            }
        }
    }

    pub(crate) fn on_success(&self) {
        let mut state = self.shared.state.lock();
        state.pause = FIRST_PAUSE;
        if !state.limit.is_at_most() {
            let limit = state.limit.get();
            state.limit.raise_to(limit + 1.0 / limit);
            self.shared.changed.notify_one();
        }
    }

    pub(crate) fn on_overload(&self, retry_after: Option<Duration>) {
        let mut state = self.shared.state.lock();
        let now = self.now();
        let until = now + retry_after.unwrap_or(state.pause);
        let until = state.suspended_until.max(until);
        state.suspended_until = until;
        if state.limit.cut(now, until, 0.5) {
            state.pause = (state.pause * 2).min(MAX_PAUSE);
        }
    }
}

/// The result of an attempt to start a call.
enum Attempt {
    Acquired,
    /// Not before this time.
    Until(Time),
    /// Not before a call ends or the limit rises.
    Full,
}

impl LimiterState {
    fn try_acquire(&mut self, now: Time) -> Attempt {
        if self.suspended_until > now {
            return Attempt::Until(self.suspended_until);
        }
        if self.running as f64 >= self.limit.get().floor() {
            return Attempt::Full;
        }
        if let Some(rate) = &mut self.rate
            && let Err(at) = rate.try_take(now, Cost(1))
        {
            return Attempt::Until(at);
        }
        self.running += 1;
        Attempt::Acquired
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
