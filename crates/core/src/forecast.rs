//! When will there be a place again, and for whom.
//!
//! A [`Forecast`] watches places being freed and learns how far apart they are. Whoever is refused is told
//! when the next place that nobody was promised will be free, and holds a booking for it. Who comes without a
//! booking does not take a booked place until its holder is overdue by a quarter of the time it was told to wait.

use crate::id::Booking;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Nobody is sent away for longer than this.
pub const LONGEST: Duration = Duration::from_secs(120);

/// What somebody is told of whom nothing is known yet.
const UNKNOWN: Duration = Duration::from_secs(1);

/// Nobody is overdue sooner than this after the time they were told: answers take time to travel.
const GRACE: Duration = Duration::from_millis(250);

/// How much one interval counts towards the mean.
const SMOOTHING: f64 = 1.0 / 32.0;

/// The forecast for one bound.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Mean time between two places being freed, in nanoseconds.
    interval: Option<f64>,
    freed_at: Option<Time>,
    bookings: VecDeque<Promise>,
    first: u64,
    live: usize,
    most: usize,
}

/// A booked place: its time, and when others may have it.
#[derive(Clone, Copy, Debug)]
struct Promise {
    due: Time,
    until: Time,
    open: bool,
}

impl Forecast {
    /// A forecast that keeps at most `most` bookings.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Forecast {
            interval: None,
            freed_at: None,
            bookings: VecDeque::with_capacity(most.min(4096)),
            first: 0,
            live: 0,
            most,
        }
    }

    /// Keeps at most so many bookings from now on.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// A place was freed; `still` says how many are taken yet. An empty queue tells nothing about its speed.
    pub fn freed(&mut self, now: Time, still: usize) {
        if let Some(before) = self.freed_at {
            let took = now.since(before).as_nanos() as f64;
            let mean = self.interval.get_or_insert(took);
            *mean += (took - *mean) * SMOOTHING;
        }
        self.freed_at = (still > 0).then_some(now);
    }

    /// The mean time between two places being freed, if that is known.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.interval
            .map(|nanos| Duration::from_nanos(nanos as u64))
    }

    /// How long somebody with `ahead` jobs in front of them will wait.
    #[must_use]
    pub fn wait(&self, ahead: usize) -> Option<Duration> {
        self.interval()
            .map(|interval| interval.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)))
    }

    /// How many places are promised now.
    pub fn promised(&mut self, now: Time) -> usize {
        while let Some(front) = self.bookings.front() {
            if front.open && front.until > now {
                break;
            }
            self.live -= usize::from(front.open);
            self.bookings.pop_front();
            self.first += 1;
        }
        self.live
    }

    /// How long until the next place that nobody was promised.
    #[must_use]
    pub fn next_free(&self, now: Time) -> Duration {
        let Some(interval) = self.interval() else {
            return UNKNOWN;
        };
        let last = self
            .bookings
            .back()
            .map_or(Time::ZERO, |promise| promise.due);
        let freed = self.freed_at.unwrap_or(now);
        let due = (last + interval).max(freed + interval).max(now);
        due.since(now).min(LONGEST)
    }

    /// Books the next place that nobody was promised. Says how long to wait for it, and the booking, unless
    /// there are too many or it is too far away.
    pub fn book(&mut self, now: Time) -> (Duration, Option<Booking>) {
        self.promised(now);
        let wait = self.next_free(now);
        if wait >= LONGEST || self.bookings.len() >= self.most || self.interval.is_none() {
            return (wait, None);
        }
        let due = now + wait;
        let until = due + (wait / 4).max(GRACE);
        let until = self
            .bookings
            .back()
            .map_or(until, |promise| promise.until.max(until));
        self.bookings.push_back(Promise {
            due,
            until,
            open: true,
        });
        self.live += 1;
        (
            wait,
            Some(Booking(self.first + self.bookings.len() as u64 - 1)),
        )
    }

    /// The holder of a booking came: how many were promised a place before it. `None` if the booking has
    /// lapsed or never was.
    pub fn ahead_of(&mut self, now: Time, booking: Booking) -> Option<usize> {
        self.promised(now);
        let index = usize::try_from(booking.0.checked_sub(self.first)?).ok()?;
        let promise = *self.bookings.get(index)?;
        if !promise.open {
            return None;
        }
        // At its time or after it, its place is its own.
        if promise.due <= now {
            return Some(0);
        }
        Some(
            self.bookings
                .iter()
                .take(index)
                .filter(|promise| promise.open)
                .count(),
        )
    }

    /// The holder of a booking came, but its place was not free yet: it keeps its turn, for the next place that is.
    pub fn renew(&mut self, now: Time, booking: Booking) -> Option<Duration> {
        let index = usize::try_from(booking.0.checked_sub(self.first)?).ok()?;
        let interval = self.interval()?;
        let freed = self.freed_at.unwrap_or(now);
        let promise = self
            .bookings
            .get_mut(index)
            .filter(|promise| promise.open)?;
        let wait = (freed + interval)
            .max(promise.due)
            .since(now)
            .max(interval / 2)
            .min(LONGEST);
        promise.due = now + wait;
        promise.until = promise.until.max(promise.due + (wait / 4).max(GRACE));
        Some(wait)
    }

    /// The holder of a booking has its place: the booking is used up.
    pub fn release(&mut self, booking: Booking) {
        let Some(index) = booking.0.checked_sub(self.first) else {
            return;
        };
        if let Some(promise) = usize::try_from(index)
            .ok()
            .and_then(|index| self.bookings.get_mut(index))
            && promise.open
        {
            promise.open = false;
            self.live -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady() -> (Forecast, Time) {
        let mut forecast = Forecast::new(10);
        for i in 0..100 {
            forecast.freed(Time::from_millis(100 * i), 50);
        }
        (forecast, Time::from_millis(9_900))
    }

    #[test]
    fn names_the_next_free_place_to_each() {
        let (mut forecast, now) = steady();
        let waits: Vec<u128> = (0..3).map(|_| forecast.book(now).0.as_millis()).collect();
        assert_eq!(waits, [100, 200, 300]);
        assert_eq!(forecast.promised(now), 3);
    }

    #[test]
    fn a_holder_who_comes_in_time_has_nobody_ahead() {
        let (mut forecast, now) = steady();
        let (_, first) = forecast.book(now);
        let (wait, second) = forecast.book(now);
        let second = second.expect("booked");
        assert_eq!(
            forecast.ahead_of(now, second),
            Some(1),
            "too early: the first is ahead"
        );
        assert_eq!(forecast.ahead_of(now + wait, second), Some(0));
        forecast.release(second);
        assert_eq!(
            forecast.ahead_of(now + wait, second),
            None,
            "a booking is used once"
        );
        assert_eq!(forecast.promised(now + wait), 1);
        assert!(first.is_some());
    }

    #[test]
    fn a_holder_whose_place_is_late_keeps_its_turn() {
        let (mut forecast, now) = steady();
        let (wait, first) = forecast.book(now);
        let (_, second) = forecast.book(now);
        let (first, second) = (first.expect("booked"), second.expect("booked"));
        let back = now + wait;
        let again = forecast.renew(back, first).expect("its turn is kept");
        assert!(again <= Duration::from_millis(100), "{again:?}");
        assert_eq!(forecast.ahead_of(back + again, first), Some(0));
        assert_eq!(forecast.ahead_of(back, second), Some(1));
    }

    #[test]
    fn bookings_lapse_and_are_bounded() {
        let (mut forecast, now) = steady();
        let booked = (0..20).filter(|_| forecast.book(now).1.is_some()).count();
        assert_eq!(booked, 10);
        assert_eq!(forecast.promised(now + Duration::from_secs(10)), 0);
        assert_eq!(
            forecast.ahead_of(now + Duration::from_secs(10), Booking(3)),
            None
        );
        assert_eq!(forecast.ahead_of(now, Booking(u64::MAX)), None);
    }

    #[test]
    fn nobody_waits_longer_than_the_longest() {
        let mut forecast = Forecast::new(1000);
        forecast.freed(Time::ZERO, 5);
        forecast.freed(Time::from_secs(100), 5);
        let waits: Vec<_> = (0..3)
            .map(|_| forecast.book(Time::from_secs(100)))
            .collect();
        assert_eq!(waits[0].0, Duration::from_secs(100));
        assert_eq!(waits[1], (LONGEST, None));
    }
}
