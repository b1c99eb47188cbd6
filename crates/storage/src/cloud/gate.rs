//! How many calls at once a far side takes, found out from its answers.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A first pause when the far side names none; later ones double.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Lets calls through: fewer after an answer of overload, and none until it is over; one more after
/// a round of good answers.
#[derive(Clone)]
pub(crate) struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    limit: f64,
    most: f64,
    running: usize,
    until: Option<Instant>,
    pause: Duration,
    /// From call to call, and when the next may begin.
    every: Duration,
    next: Instant,
}

/// What whoever runs it allows of a far side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Calls at once.
    pub(crate) most: usize,
    /// From call to call.
    pub(crate) every: Duration,
}

/// How far calls that were held up may catch up: timers are not exact.
const BEHIND: Duration = Duration::from_millis(100);

/// A call's place; dropping it frees it.
pub(crate) struct Pass {
    shared: Arc<Shared>,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Gate {
        let state = State {
            limit: limits.most as f64,
            most: limits.most as f64,
            every: limits.every,
            next: Instant::now(),
            running: 0,
            until: None,
            pause: PAUSE,
        };
        Gate {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    pub(crate) async fn enter(&self) -> Pass {
        loop {
            let changed = self.shared.changed.notified();
            let wait = {
                let mut state = self.shared.state.lock();
                let now = Instant::now();
                let until = state
                    .until
                    .map_or(state.next, |until| until.max(state.next));
                match Some(until).filter(|until| *until > now) {
                    Some(until) => Some(until),
                    None if (state.running as f64) < state.limit.max(1.0).floor() => {
                        state.running += 1;
                        if !state.every.is_zero() {
                            state.next = state.next.max(now - BEHIND) + state.every;
                        }
                        return Pass {
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

    pub(crate) fn fine(&self) {
        let mut state = self.shared.state.lock();
        state.pause = PAUSE;
        if state.limit < state.most {
            state.limit = (state.limit + 1.0 / state.limit).min(state.most);
            self.shared.changed.notify_one();
        }
    }

    pub(crate) fn overloaded(&self, after: Option<Duration>) {
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        let is_new = state.until.is_none_or(|until| until <= now);
        let until = now + after.unwrap_or(state.pause);
        state.until = Some(state.until.map_or(until, |was| was.max(until)));
        // Calls that were under way together are refused together: that is one refusal.
        if is_new {
            state.limit = (state.limit / 2.0).max(1.0);
            state.pause = (state.pause * 2).min(LONGEST);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.shared.state.lock().running -= 1;
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_overload_holds_everybody_back_and_halves_the_width() {
        let gate = Gate::new(Limits {
            most: 4,
            every: Duration::ZERO,
        });
        let passes = [gate.enter().await, gate.enter().await, gate.enter().await];
        gate.overloaded(Some(Duration::from_secs(3)));
        gate.overloaded(Some(Duration::from_secs(3)));
        drop(passes);
        let began = Instant::now();
        let _first = gate.enter().await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let _second = gate.enter().await;
        let third = tokio::time::timeout(Duration::from_secs(60), gate.enter()).await;
        assert!(third.is_err(), "two at once, not four and not one");
        for _ in 0..9 {
            gate.fine();
        }
        let _third = gate.enter().await;
    }

    #[tokio::test(start_paused = true)]
    async fn calls_keep_their_distance_however_many_come() {
        let gate = Gate::new(Limits {
            most: 64,
            every: Duration::from_millis(20),
        });
        let began = Instant::now();
        let calls = (0..200).map(|_| async { drop(gate.enter().await) });
        futures_util::future::join_all(calls).await;
        let took = began.elapsed();
        let wanted = Duration::from_millis(20 * 199);
        assert!(
            took + BEHIND >= wanted && took <= wanted + BEHIND,
            "{took:?}"
        );
    }
}
