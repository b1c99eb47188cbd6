//! How many workers there should be, and when to ask the scaler.
//!
//! The scaler decides, the timer task carries it out; this part sees that the timer is woken when
//! the scaler would answer something other than "hold", and only then. `timer_notified` says
//! that it was, so that a queue that stays full wakes the timer once and not with every submit.

use super::state::State;
use headworks_core::{Scale, Scaler, Thresholds, Time};

/// How many workers there should be.
///
/// ```
/// use headworks_pool::{Thresholds, Workers};
///
/// let mut thresholds = Thresholds::default();
/// thresholds.scale = 30; // add workers from 30 % of the queue on
/// let workers = Workers { thresholds, ..Workers::new(2, 16) };
/// assert_eq!((workers.base, workers.max), (2, 16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// The number that is always there, at least one.
    pub base: usize,
    /// The most there may be.
    pub max: usize,
    /// How full the queue must be for more.
    pub thresholds: Thresholds,
}

impl Workers {
    /// For pools whose callers run the work.
    pub(crate) fn none() -> Self {
        Workers::new(0, 0)
    }

    /// At least one: without a worker no job would ever end.
    pub(crate) fn at_least_one(self) -> Self {
        let base = self.base.max(1);
        Workers {
            base,
            max: self.max.max(base),
            ..self
        }
    }

    /// Between `base` and `max`, by the default thresholds.
    #[must_use]
    pub fn new(base: usize, max: usize) -> Self {
        Workers {
            base,
            max: max.max(base),
            thresholds: Thresholds::default(),
        }
    }
}

/// The scaler, and what it decides by.
#[derive(Debug)]
pub(super) struct Scaling {
    scaler: Scaler,
    base: usize,
    max: usize,
    pub(super) thresholds: Thresholds,
    /// The timer knows that the scaler wants a change.
    timer_notified: bool,
}

impl Scaling {
    pub(super) fn reconfigure(&mut self, workers: Workers) {
        let Workers {
            base,
            max,
            thresholds,
        } = workers;
        self.scaler.reconfigure(base, max, thresholds);
        (self.base, self.max, self.thresholds) = (base, max, thresholds);
    }

    pub(super) fn new(workers: Workers) -> Self {
        let Workers {
            base,
            max,
            thresholds,
        } = workers;
        let mut scaler = Scaler::new(base, max);
        scaler.reconfigure(base, max, thresholds);
        Scaling {
            scaler,
            base,
            max,
            thresholds,
            timer_notified: false,
        }
    }
}

impl<P> State<P> {
    /// Whether the scaler should be asked, and has not been told yet.
    #[inline]
    pub(super) fn wants_scaling(&mut self) -> bool {
        let Scaling {
            base,
            max,
            timer_notified,
            ..
        } = self.scaling;
        if timer_notified || max == 0 || (base == max && self.workers == max) {
            return false;
        }
        // Asked of the scaler itself: what it would answer with "hold" must not wake anybody.
        let (fill, idle) = (self.fill(), self.idle.len());
        let wants = self.scaling.scaler.wants_change(fill, self.workers, idle);
        self.scaling.timer_notified = wants;
        wants
    }

    /// Asks the scaler for a decision, and when to ask again.
    pub(super) fn scale(&mut self, now: Time) -> (Scale, Option<Time>) {
        if self.scaling.max == 0 {
            return (Scale::Hold, None);
        }
        let fill = self.fill();
        let scaler = &mut self.scaling.scaler;
        let scale = scaler.decide(now, fill, self.workers, self.idle.len());
        let again = scaler.wake_at();
        self.scaling.timer_notified = again.is_some();
        (scale, again)
    }

    fn fill(&self) -> u32 {
        let (waiting, capacity) = (self.core.waiting(), self.core.capacity());
        let pressure = self
            .scaling
            .thresholds
            .at(waiting as usize, capacity as usize);
        pressure.fill()
    }
}
