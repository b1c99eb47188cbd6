//! The clock by which keys expire, and the age of what is known about them.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use headworks_fleet::BootInstant;
use jiff::{SignedDuration, Timestamp};

/// The clock by which keys expire and quotas begin anew.
///
/// In a fleet it is the database's, so that all nodes agree, whatever their own clocks say. It goes
/// on by CLOCK_BOOTTIME between two looks at the database.
#[derive(Clone)]
pub(crate) enum KeyClock {
    /// This machine's clock. The keys are in a file.
    Local,
    /// The clock of the fleet's database.
    Fleet {
        reading: Arc<ArcSwapOption<Reading>>,
        /// Age of the last look at the stored keys beyond which they are refused.
        max_age: Duration,
    },
}

/// One look at the database.
pub(crate) struct Reading {
    /// When the question was sent. The answer is at least as new.
    sent: BootInstant,
    time: Timestamp,
}

impl KeyClock {
    pub(crate) fn fleet(max_age: Duration) -> KeyClock {
        KeyClock::Fleet {
            reading: Arc::new(ArcSwapOption::empty()),
            max_age,
        }
    }

    /// Records a look at the stored keys, which are in force by now.
    pub(crate) fn set(&self, sent: BootInstant, time: Timestamp) {
        if let KeyClock::Fleet { reading, .. } = self {
            reading.store(Some(Reading { sent, time }.into()));
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        let KeyClock::Fleet { reading, .. } = self else {
            return Timestamp::now();
        };
        let Some(reading) = &*reading.load() else {
            return Timestamp::now();
        };
        let passed = BootInstant::now().since(reading.sent);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        reading
            .time
            .saturating_add(passed)
            .unwrap_or(Timestamp::MAX)
    }

    /// Whether the stored keys may be trusted.
    pub(crate) fn is_fresh(&self) -> bool {
        self.age().is_none_or(|(age, most)| age < most)
    }

    /// Time since the last look and its limit; `None` without a fleet.
    pub(crate) fn age(&self) -> Option<(Duration, Duration)> {
        let KeyClock::Fleet { reading, max_age } = self else {
            return None;
        };
        let age = reading.load().as_ref().map_or(Duration::MAX, |reading| {
            BootInstant::now().since(reading.sent)
        });
        Some((age, *max_age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_stale_before_the_first_look_and_after_max_age() {
        let clock = KeyClock::fleet(Duration::from_secs(3600));
        assert!(!clock.is_fresh());
        clock.set(BootInstant::now(), Timestamp::now());
        assert!(clock.is_fresh());
        let clock = KeyClock::fleet(Duration::ZERO);
        clock.set(BootInstant::now(), Timestamp::now());
        assert!(!clock.is_fresh());
        assert!(KeyClock::Local.is_fresh());
    }

    #[test]
    fn the_time_is_that_of_the_database() {
        let clock = KeyClock::fleet(Duration::from_secs(30));
        let database: Timestamp = "2031-01-01T00:00:00Z".parse().unwrap();
        clock.set(BootInstant::now(), database);
        let passed = clock.now().duration_since(database);
        assert!(!passed.is_negative() && passed < SignedDuration::from_hours(1));
    }
}
