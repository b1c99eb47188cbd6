//! How many workers there should be.
//!
//! [`Scaler`] owns the pace of change and nothing else: the pool owns the workers, starts and stops
//! them, and asks again whenever the queue's fill or the number of idle workers changes. A decision
//! counts as carried out, so a caller must not ask for one that it will not follow;
//! [`wants_change`](Scaler::wants_change) asks without deciding.

use crate::{Thresholds, Time};
use std::time::Duration;

/// A decision of the [`Scaler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Start one worker.
    Up,
    /// Let one idle worker go.
    Down,
    /// Leave them as they are.
    Hold,
}

/// Adds a worker a second while the queue is full enough, and lets an idle one go a second when it
/// is not.
///
/// ```
/// use headworks_core::{Scale, Scaler, Time};
///
/// let mut scaler = Scaler::new(2, 8);
/// let now = Time::ZERO;
/// assert_eq!(scaler.decide(now, 75, 2, 0), Scale::Up);
/// assert_eq!(scaler.decide(now, 75, 3, 0), Scale::Hold); // one a second
/// assert_eq!(scaler.wake_at(), Some(Time::from_secs(1)));
/// assert_eq!(scaler.decide(Time::from_secs(1), 75, 3, 0), Scale::Up);
/// assert_eq!(scaler.decide(Time::from_secs(5), 50, 4, 4), Scale::Hold); // between the marks
/// assert_eq!(scaler.wake_at(), None);
/// assert_eq!(scaler.decide(Time::from_secs(6), 0, 4, 4), Scale::Down);
/// ```
#[derive(Clone, Debug)]
pub struct Scaler {
    base: usize,
    max: usize,
    up_from: u32,
    down_below: u32,
    pace: Duration,
    now: Time,
    changed: Option<Time>,
    wake: Option<Time>,
}

impl Scaler {
    /// Between `base` and `max` workers, with the default threshold. A `base` of 0 counts as 1,
    /// for with no worker nothing would ever end; a `max` below `base` counts as `base`.
    #[must_use]
    pub fn new(base: usize, max: usize) -> Self {
        let mut scaler = Scaler {
            base: 0,
            max: 0,
            up_from: 0,
            down_below: 0,
            pace: Duration::from_secs(1),
            now: Time::ZERO,
            changed: None,
            wake: None,
        };
        scaler.reconfigure(base, max, Thresholds::default());
        scaler
    }

    /// Applies new settings at once. The time of the last change is kept, so that the next one does
    /// not come sooner.
    pub fn reconfigure(&mut self, base: usize, max: usize, thresholds: Thresholds) {
        self.base = base.max(1);
        self.max = max.max(self.base);
        self.up_from = u32::from(thresholds.scale);
        self.down_below = self.up_from.saturating_sub(20).min(40);
    }

    /// Decides what to do now, at `fill` percent with `workers` workers of which `idle` have
    /// nothing to do.
    ///
    /// The caller does it: an answer other than `Hold` counts as done. Time that goes back counts
    /// as the last `now`.
    pub fn decide(&mut self, now: Time, fill: u32, workers: usize, idle: usize) -> Scale {
        self.now = self.now.max(now);
        self.wake = None;
        let wish = self.wish(fill, workers, idle);
        if wish == Scale::Hold {
            return Scale::Hold;
        }
        // Workers missing below base are not growth: they start without waiting for the pace.
        let owed = workers < self.base;
        let due = self.changed.map_or(self.now, |at| at + self.pace);
        if !owed && due > self.now {
            self.wake = Some(due);
            return Scale::Hold;
        }
        // Counted from the decision, not from when the worker runs: a slow start must not bring a
        // second one.
        self.changed = Some(self.now);
        let (workers, idle) = match wish {
            Scale::Up => (workers.saturating_add(1), idle),
            _ => (workers - 1, idle - 1),
        };
        if self.wish(fill, workers, idle) != Scale::Hold {
            let pace = if workers < self.base {
                Duration::ZERO
            } else {
                self.pace
            };
            self.wake = Some(self.now + pace);
        }
        wish
    }

    /// When `decide` may answer something else by time alone, if nothing but time changes after
    /// the last call; `None` when it will hold.
    #[must_use]
    pub fn wake_at(&self) -> Option<Time> {
        self.wake
    }

    /// Whether [`decide`](Self::decide) would change something, now or when its pace allows. A
    /// driver that is not asked to call anyway need not call while this is `false`.
    #[must_use]
    pub fn wants_change(&self, fill: u32, workers: usize, idle: usize) -> bool {
        self.wish(fill, workers, idle) != Scale::Hold
    }

    fn wish(&self, fill: u32, workers: usize, idle: usize) -> Scale {
        if workers < self.base {
            return Scale::Up;
        }
        if workers > self.max {
            return if idle > 0 { Scale::Down } else { Scale::Hold };
        }
        if fill >= self.up_from && workers < self.max {
            return Scale::Up;
        }
        if fill < self.down_below && workers > self.base && idle > 0 {
            return Scale::Down;
        }
        Scale::Hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thresholds(scale: u8) -> Thresholds {
        Thresholds {
            scale,
            ..Thresholds::default()
        }
    }

    /// Lets time alone pass, from wake to wake; answers the workers and the number of changes.
    fn settle(s: &mut Scaler, mut now: Time, fill: u32, mut workers: usize) -> (usize, usize) {
        let mut changes = 0;
        loop {
            match s.decide(now, fill, workers, workers) {
                Scale::Up => workers += 1,
                Scale::Down => workers -= 1,
                Scale::Hold => {}
            }
            changes += 1;
            match s.wake_at() {
                Some(at) => now = at,
                None => return (workers, changes),
            }
        }
    }

    #[test]
    fn grows_one_a_second_to_max_and_then_sleeps() {
        let mut s = Scaler::new(2, 5);
        assert_eq!(settle(&mut s, Time::ZERO, 60, 2), (5, 3));
    }

    #[test]
    fn shrinks_to_base_and_then_sleeps() {
        let mut s = Scaler::new(2, 5);
        assert_eq!(settle(&mut s, Time::ZERO, 39, 5), (2, 3));
    }

    #[test]
    fn the_lower_mark_follows_a_low_scale() {
        let mut s = Scaler::new(1, 5);
        s.reconfigure(1, 5, thresholds(30));
        assert_eq!(s.decide(Time::ZERO, 10, 3, 3), Scale::Hold);
        assert_eq!(s.decide(Time::ZERO, 9, 3, 3), Scale::Down);
        s.reconfigure(1, 5, thresholds(10));
        assert_eq!(s.decide(Time::from_secs(9), 0, 3, 3), Scale::Hold);
    }

    #[test]
    fn a_busy_worker_is_never_let_go() {
        let mut s = Scaler::new(1, 5);
        assert_eq!(s.decide(Time::ZERO, 0, 5, 0), Scale::Hold);
        assert_eq!(s.wake_at(), None);
        s.reconfigure(1, 2, Thresholds::default());
        assert_eq!(s.decide(Time::ZERO, 90, 5, 0), Scale::Hold);
        assert_eq!(s.decide(Time::ZERO, 90, 5, 1), Scale::Down);
    }

    #[test]
    fn a_clock_that_goes_back_stands_still() {
        let mut s = Scaler::new(1, 5);
        assert_eq!(s.decide(Time::from_secs(10), 90, 1, 0), Scale::Up);
        assert_eq!(s.decide(Time::from_secs(2), 90, 2, 0), Scale::Hold);
        assert_eq!(s.wake_at(), Some(Time::from_secs(11)));
    }

    #[test]
    fn missing_base_workers_start_at_once() {
        let mut s = Scaler::new(4, 4);
        for workers in 0..4 {
            assert_eq!(s.decide(Time::ZERO, 0, workers, 0), Scale::Up);
        }
        assert_eq!(s.decide(Time::ZERO, 100, 4, 0), Scale::Hold);
        assert_eq!(s.wake_at(), None);
    }

    proptest! {
        #[test]
        fn keeps_the_pace_and_the_bounds(
            base in 0..6usize, max in 0..12usize, scale in 0..=100u8,
            steps in prop::collection::vec((0..3000u64, 0..130u32, 0..16usize), 1..200),
        ) {
            let mut s = Scaler::new(base, max);
            s.reconfigure(base, max, thresholds(scale));
            let (base, max) = (base.max(1), max.max(base.max(1)));
            let (mut now, mut workers, mut last) = (Time::ZERO, base, None::<Time>);
            for (step, fill, idle) in steps {
                now += Duration::from_millis(step);
                let before = workers;
                match s.decide(now, fill, workers, idle.min(workers)) {
                    Scale::Up => { workers += 1; prop_assert!(fill >= u32::from(scale)); }
                    Scale::Down => { workers -= 1; prop_assert!(fill < 40 && idle > 0); }
                    Scale::Hold => {}
                }
                if workers != before {
                    prop_assert!(last.is_none_or(|at| now.since(at) >= Duration::from_secs(1)));
                    last = Some(now);
                }
                prop_assert!((base..=max).contains(&workers));
                prop_assert!(s.wake_at().is_none_or(|at| at > now));
            }
        }
    }
}
