//! Bookings: queue places promised to rejected clients, found again when they retry.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use headworks_core::{Booking, Key};
use parking_lot::Mutex;

/// Most bookings that are remembered.
const CAPACITY: usize = 10_000;
/// How long a booking is remembered beyond the promised time.
const GRACE: Duration = Duration::from_secs(120);

/// Bookings by the fingerprint of the request: the same tenant, class and body.
#[derive(Debug, Default)]
pub(crate) struct Bookings {
    promised: Mutex<HashMap<Key, (Booking, Instant)>>,
}

impl Bookings {
    pub(crate) fn remember(
        &self,
        fingerprint: Key,
        booking: Booking,
        after: Duration,
        now: Instant,
    ) {
        let mut promised = self.promised.lock();
        // Expired bookings are removed only when the table is full. If it is still full then, the
        // client is treated like any other when it retries.
        if promised.len() >= CAPACITY {
            promised.retain(|_, (_, until)| *until > now);
        }
        if promised.len() < CAPACITY {
            promised.insert(fingerprint, (booking, now + after + GRACE));
        }
    }

    /// Takes a booking. Each can be claimed once.
    pub(crate) fn claim(&self, fingerprint: Key, now: Instant) -> Option<Booking> {
        let (booking, until) = self.promised.lock().remove(&fingerprint)?;
        (until > now).then_some(booking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_claimed_once_and_not_for_ever() {
        let (bookings, now) = (Bookings::default(), Instant::now());
        bookings.remember(Key(1), Booking(7), Duration::from_secs(1), now);
        assert_eq!(bookings.claim(Key(2), now), None);
        assert_eq!(bookings.claim(Key(1), now), Some(Booking(7)));
        assert_eq!(bookings.claim(Key(1), now), None);
        bookings.remember(Key(1), Booking(8), Duration::from_secs(1), now);
        assert_eq!(bookings.claim(Key(1), now + GRACE * 2), None);
    }
}
