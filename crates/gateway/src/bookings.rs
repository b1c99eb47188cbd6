//! Bookings: queue places promised to rejected clients, found again when they retry.
//!
//! Few clients mark a retry as one. A request is one if its tenant was promised a place for the
//! same request, and the time has come.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headworks_core::{Booking, Key};
use parking_lot::Mutex;

/// Most bookings of one tenant that are remembered.
const CAPACITY: usize = 10_000;
/// How long a booking is remembered beyond the promised time.
const GRACE: Duration = Duration::from_secs(120);
/// How much earlier than promised a client may come. A request before that is a new one with the
/// same body.
const EARLY: Duration = Duration::from_millis(100);

/// Bookings by tenant and by the fingerprint of the request.
#[derive(Debug, Default)]
pub(crate) struct Bookings {
    tenants: Mutex<HashMap<Arc<str>, TenantBookings>>,
    /// Number of tenants that have bookings. Mostly none has, and then no lock is taken.
    count: AtomicUsize,
}

/// Bookings of one tenant. However many it has, those of others are kept.
#[derive(Debug, Default)]
struct TenantBookings {
    /// By number, oldest first.
    promised: BTreeMap<u64, Promise>,
    /// Numbers by fingerprint, oldest first.
    numbers: HashMap<Key, VecDeque<u64>>,
    next: u64,
}

#[derive(Debug)]
struct Promise {
    fingerprint: Key,
    booking: Booking,
    due: Instant,
}

impl Bookings {
    pub(crate) fn remember(
        &self,
        tenant: &Arc<str>,
        fingerprint: Key,
        booking: Booking,
        (after, now): (Duration, Instant),
    ) {
        let promise = Promise {
            fingerprint,
            booking,
            due: now + after,
        };
        let mut tenants = self.tenants.lock();
        let bookings = tenants.entry(tenant.clone()).or_default();
        bookings.insert(promise);
        bookings.drop_oldest(now);
        self.count.store(tenants.len(), Ordering::Relaxed);
    }

    /// Whether a tenant has bookings. Only then is a request worth a fingerprint.
    pub(crate) fn has_any(&self, tenant: &str) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.tenants.lock().contains_key(tenant)
    }

    /// Takes a booking that is due. Each can be claimed once.
    pub(crate) fn claim(&self, tenant: &str, fingerprint: Key, now: Instant) -> Option<Booking> {
        let mut tenants = self.tenants.lock();
        let bookings = tenants.get_mut(tenant)?;
        bookings.drop_oldest(now);
        let claimed = bookings.claim(fingerprint, now);
        if bookings.promised.is_empty() {
            tenants.remove(tenant);
            self.count.store(tenants.len(), Ordering::Relaxed);
        }
        claimed
    }
}

impl TenantBookings {
    fn insert(&mut self, promise: Promise) {
        let number = self.next;
        self.next += 1;
        let numbers = self.numbers.entry(promise.fingerprint).or_default();
        numbers.push_back(number);
        self.promised.insert(number, promise);
    }

    fn claim(&mut self, fingerprint: Key, now: Instant) -> Option<Booking> {
        let oldest = *self.numbers.get(&fingerprint)?.front()?;
        let promise = self.promised.get(&oldest)?;
        let (booking, due) = (promise.booking, promise.due);
        (due <= now + EARLY).then(|| {
            self.remove_oldest_of(fingerprint);
            booking
        })
    }

    fn remove_oldest_of(&mut self, fingerprint: Key) {
        if let Some(numbers) = self.numbers.get_mut(&fingerprint) {
            if let Some(oldest) = numbers.pop_front() {
                self.promised.remove(&oldest);
            }
            if numbers.is_empty() {
                self.numbers.remove(&fingerprint);
            }
        }
    }

    /// Removes the oldest bookings, as far as they are over or too many.
    fn drop_oldest(&mut self, now: Instant) {
        while let Some((_, oldest)) = self.promised.first_key_value()
            && (oldest.due + GRACE <= now || self.promised.len() > CAPACITY)
        {
            // It is also the oldest of its fingerprint.
            self.remove_oldest_of(oldest.fingerprint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_promise_is_claimed_once_and_not_for_ever() {
        let (bookings, now) = (Bookings::default(), Instant::now());
        let (tenant, due): (Arc<str>, _) = ("a".into(), now + SECOND);
        bookings.remember(&tenant, Key(1), Booking(7), (SECOND, now));
        assert!(bookings.has_any("a") && !bookings.has_any("b"));
        assert_eq!(bookings.claim("a", Key(2), due), None);
        assert_eq!(bookings.claim("b", Key(1), due), None);
        assert_eq!(bookings.claim("a", Key(1), due), Some(Booking(7)));
        assert_eq!(bookings.claim("a", Key(1), due), None);
        assert!(!bookings.has_any("a"));
        bookings.remember(&tenant, Key(1), Booking(8), (SECOND, now));
        assert_eq!(bookings.claim("a", Key(1), due + GRACE), None);
        assert!(!bookings.has_any("a"));
    }

    #[test]
    fn a_new_request_with_the_same_body_takes_no_promise() {
        let (bookings, now) = (Bookings::default(), Instant::now());
        let tenant: Arc<str> = "a".into();
        for number in [1, 2] {
            let after = SECOND * number;
            let booking = Booking(number.into());
            bookings.remember(&tenant, Key(1), booking, (after, now));
        }
        assert_eq!(bookings.claim("a", Key(1), now), None, "not due");
        let due = now + SECOND;
        assert_eq!(bookings.claim("a", Key(1), due), Some(Booking(1)));
        assert_eq!(bookings.claim("a", Key(1), due), None, "not due");
        assert_eq!(bookings.claim("a", Key(1), due + SECOND), Some(Booking(2)));
    }

    #[test]
    fn a_tenant_with_many_promises_costs_others_none() {
        let (bookings, now) = (Bookings::default(), Instant::now());
        let [one, flood]: [Arc<str>; 2] = ["one".into(), "flood".into()];
        let (at, due) = ((SECOND, now), now + SECOND);
        bookings.remember(&one, Key(1), Booking(1), at);
        for number in 0..CAPACITY as u64 + 10 {
            bookings.remember(&flood, Key(number.into()), Booking(number), at);
        }
        assert_eq!(bookings.claim("one", Key(1), due), Some(Booking(1)));
        assert_eq!(bookings.claim("flood", Key(9), due), None, "the oldest go");
        assert_eq!(bookings.claim("flood", Key(10), due), Some(Booking(10)));
        let tenants = bookings.tenants.lock();
        assert_eq!(tenants["flood"].numbers.len(), CAPACITY - 1);
    }
}
