//! Recognises that somebody else's counter stands still.

use std::time::Duration;

use crate::clock::BootInstant;

/// How long a counter has not moved, on the observer's own clock.
///
/// Only time during which the observer looked counts: a gap between two looks adds at most
/// `longest_gap`. An observer that was cut off or stopped itself would otherwise declare everybody
/// else lost at its first look.
#[derive(Clone, Debug)]
pub(crate) struct Silence<C> {
    counter: C,
    silent: Duration,
    looked: BootInstant,
}

impl<C: PartialEq> Silence<C> {
    pub(crate) fn new(counter: C, now: BootInstant) -> Silence<C> {
        Silence {
            counter,
            silent: Duration::ZERO,
            looked: now,
        }
    }

    /// Records a look at the counter and returns how long it has been silent.
    pub(crate) fn observe(
        &mut self,
        counter: C,
        now: BootInstant,
        longest_gap: Duration,
    ) -> Duration {
        if counter == self.counter {
            self.silent += now.since(self.looked).min(longest_gap);
        } else {
            self.counter = counter;
            self.silent = Duration::ZERO;
        }
        self.looked = now;
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GAP: Duration = Duration::from_secs(10);

    #[test]
    fn a_counter_that_moves_is_not_silent() {
        let start = BootInstant::now();
        let mut silence = Silence::new(1, start);
        assert_eq!(silence.observe(1, start + 5 * SECOND, GAP), 5 * SECOND);
        assert_eq!(silence.observe(2, start + 10 * SECOND, GAP), Duration::ZERO);
        assert_eq!(silence.observe(2, start + 15 * SECOND, GAP), 5 * SECOND);
    }

    #[test]
    fn an_observer_that_did_not_look_counts_little() {
        let start = BootInstant::now();
        let mut silence = Silence::new(1, start);
        // The observer was cut off for an hour.
        assert_eq!(silence.observe(1, start + 3600 * SECOND, GAP), GAP);
    }

    #[test]
    fn a_counter_that_moves_back_is_a_change() {
        let start = BootInstant::now();
        let mut silence = Silence::new(7, start);
        silence.observe(7, start + 5 * SECOND, GAP);
        assert_eq!(silence.observe(3, start + 6 * SECOND, GAP), Duration::ZERO);
    }
}
