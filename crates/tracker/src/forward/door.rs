//! Who is turned away at the door: first announces beyond a rate, and whoever just found the queue
//! full.

use crate::config::TrackerConfig;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Who found the queue full finds it full for so long.
const MOMENT: Duration = Duration::from_millis(100);

/// A token bucket over first announces. It starts full.
#[derive(Default)]
pub(super) struct Limiter(Mutex<Option<(f64, Instant)>>);

impl Limiter {
    /// Takes a token, if there is one.
    pub(super) fn admits(&self, now: Instant, config: &TrackerConfig) -> bool {
        let burst = f64::from(config.rate_limit_initial_burst.max(1));
        let rate = config.rate_limit_initial_per_sec.max(0.0);
        let mut state = self.0.lock();
        let level = state.map_or(burst, |(level, at)| {
            let elapsed = now.saturating_duration_since(at).as_secs_f64();
            (level + elapsed * rate).min(burst)
        });
        let admits = level >= 1.0;
        *state = Some((level - f64::from(u8::from(admits)), now));
        admits
    }
}

/// The last client that found the queue full. One that announces a thousand torrents at once need
/// not be told by the pool a thousand times: others wait for their answers meanwhile.
#[derive(Default)]
pub(super) struct TurnedAway(Mutex<Option<(IpAddr, Instant)>>);

impl TurnedAway {
    pub(super) fn note(&self, client: IpAddr, now: Instant) {
        *self.0.lock() = Some((client, now));
    }

    /// Whether it was this one, a moment ago.
    pub(super) fn was(&self, client: IpAddr, now: Instant) -> bool {
        let last = *self.0.lock();
        last.is_some_and(|(who, at)| who == client && now.saturating_duration_since(at) < MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_turned_away_is_for_a_moment() {
        let (away, start) = (TurnedAway::default(), Instant::now());
        let [one, other] = [1, 2].map(|last| IpAddr::from([127, 0, 0, last]));
        assert!(!away.was(one, start));
        away.note(one, start);
        assert!(away.was(one, start + MOMENT / 2) && !away.was(other, start));
        assert!(!away.was(one, start + MOMENT));
    }

    #[test]
    fn a_burst_and_then_a_rate() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let mut config = TrackerConfig::default();
        (
            config.rate_limit_initial_per_sec,
            config.rate_limit_initial_burst,
        ) = (10.0, 3);
        let admitted = |after: u64, tries: usize| {
            let now = start + Duration::from_millis(after);
            (0..tries).filter(|_| limiter.admits(now, &config)).count()
        };
        assert_eq!(admitted(0, 10), 3);
        assert_eq!(admitted(250, 10), 2);
        assert_eq!(admitted(60_000, 10), 3, "no more than the burst");
    }
}
