//! When the next place becomes free, and for which refused job.
//!
//! A [`Forecast`] learns the interval between grants. A refused job is told when the next
//! unpromised place will be free, and holds a booking for it. Jobs without a booking do not take
//! the place of a booking that is due, until that is overdue by a quarter of the wait it was given.
//!
//! A wait is computed from what is promised and free at that moment, not from the last promise, so
//! that errors do not add up. The less even the intervals, the longer it is, so that the place is
//! there before its holder. Not every holder returns: the part that does is learned as well, and at
//! most half of all places are ever kept, so that nothing idles for those that do not.

use crate::id::Booking;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// The longest wait that is named.
pub const LONGEST: Duration = Duration::from_secs(120);

/// The wait that is named before any interval has been measured.
const UNKNOWN: Duration = Duration::from_secs(1);

/// A booking is not overdue sooner than this after its time: answers take time to travel.
const GRACE: Duration = Duration::from_millis(250);

/// The number of intervals that the mean is taken over, once there were as many.
const REMEMBERED: u32 = 128;

/// The mean deviation of the intervals between random times, as a part of their mean.
const RANDOM: f64 = 0.736;

/// The weight of one holder in the part that returns.
const SMOOTHING: f64 = 1.0 / 128.0;

/// The forecast for one bound.
#[derive(Clone, Debug)]
pub struct Forecast {
    drain: DrainRate,
    bookings: VecDeque<Promise>,
    first: u64,
    live: usize,
    /// The number of the first booking that is not due yet, or nearly.
    cursor: u64,
    /// Those before it that are open.
    due: usize,
    /// The part of the holders that comes in time.
    turnout: f64,
    most: usize,
}

/// How fast places are freed by grants.
///
/// Only grants count. A job that expires, is cancelled, shed or delayed frees a place as well, but
/// says nothing about how fast the targets serve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainRate {
    /// Mean time between two grants, in nanoseconds.
    interval: Option<f64>,
    /// How far an interval is from the mean, on average.
    deviation: f64,
    /// The number of intervals that the mean is taken over.
    seen: u32,
    /// When the last grant was, if jobs were left waiting.
    last: Option<Time>,
}

impl DrainRate {
    /// A job was granted; `still` jobs wait. A queue that is empty says nothing about its speed.
    pub(crate) fn grant(&mut self, now: Time, still: u64) {
        if let Some(before) = self.last {
            let took = now.as_nanos().saturating_sub(before.as_nanos()) as f64;
            self.seen = REMEMBERED.min(self.seen + 1);
            let part = 1.0 / f64::from(self.seen);
            let mean = self.interval.get_or_insert(took);
            *mean += (took - *mean) * part;
            self.deviation += ((took - *mean).abs() - self.deviation) * part;
        }
        self.last = (still > 0).then_some(now);
    }

    /// Nothing waits any more: the time until the next grant is not an interval.
    pub(crate) fn emptied(&mut self) {
        self.last = None;
    }

    /// The mean time between two grants, if that is known.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.interval
            .map(|nanos| Duration::from_nanos(nanos as u64))
    }

    /// When the next grant is to be expected.
    pub(crate) fn next_grant(&self, now: Time) -> Duration {
        let Some(interval) = self.interval() else {
            return UNKNOWN;
        };
        let since = self.last.map_or(Duration::ZERO, |last| now.since(last));
        interval.saturating_sub(since).max(interval / 2)
    }

    /// How uneven intervals are: 0 if they are all alike, 1 if they are as uneven as those of
    /// random times. Little is known from few intervals.
    fn unevenness(&self) -> f64 {
        let seen = self.deviation / self.interval.unwrap_or(1.0).max(1.0) / RANDOM;
        let unknown = 1.0 / f64::from(self.seen.max(1)).sqrt();
        seen.max(unknown).min(1.0)
    }
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
            drain: DrainRate::default(),
            bookings: VecDeque::new(),
            first: 0,
            live: 0,
            cursor: 0,
            due: 0,
            turnout: 1.0,
            most,
        }
    }

    /// Sets the number of bookings that are kept at most.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// A job was granted and freed its place; `still` says how many wait yet.
    pub fn freed(&mut self, now: Time, still: usize) {
        self.drain.grant(now, still as u64);
    }

    /// Nothing waits any more.
    pub fn emptied(&mut self) {
        self.drain.emptied();
    }

    /// The mean time between two places being freed, if that is known.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.drain.interval()
    }

    /// The jobs that were promised a place and are expected to come for it.
    #[must_use]
    pub fn expected_claims(&self) -> u64 {
        self.expected(self.live).ceil() as u64
    }

    /// How long somebody with `ahead` jobs in front of them will wait.
    #[must_use]
    pub fn wait(&self, ahead: usize) -> Option<Duration> {
        self.interval()
            .map(|interval| interval.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)))
    }

    /// How many of `places` are to be kept now for those who are due, or nearly.
    pub fn kept(&mut self, now: Time, places: usize) -> usize {
        if self.bookings.is_empty() {
            return 0;
        }
        self.kept_of_booked(now, places)
    }

    fn kept_of_booked(&mut self, now: Time, places: usize) -> usize {
        self.lapse(now);
        let early = self
            .spare(self.expected(self.live), places)
            .unwrap_or(Duration::ZERO);
        let from = (self.cursor - self.first) as usize;
        let near = self.bookings.iter().skip(from);
        for promise in near.take_while(|promise| promise.due <= now + early) {
            self.due += usize::from(promise.open);
            self.cursor += 1;
        }
        let expected = self.expected(self.due).ceil() as usize;
        expected.min(places / 2)
    }

    /// Drops the bookings whose holders are overdue.
    fn lapse(&mut self, now: Time) {
        while let Some(front) = self.bookings.front() {
            if front.open && front.until > now {
                break;
            }
            if front.open {
                self.turnout -= self.turnout * SMOOTHING;
                self.close(self.first);
            }
            self.bookings.pop_front();
            self.first += 1;
            self.cursor = self.cursor.max(self.first);
        }
    }

    /// Counts an open booking as closed.
    fn close(&mut self, number: u64) {
        self.live -= 1;
        self.due -= usize::from(number < self.cursor);
    }

    /// How many of `count` who hold a booking will come. Those who did not come so far are believed
    /// half: a promise that is broken is worse than a place that somebody gets a little later.
    fn expected(&self, count: usize) -> f64 {
        count as f64 * (1.0 + self.turnout) / 2.0
    }

    /// The time beyond the mean until `missing` places are freed: at random times
    /// that is rarely more than twice the root of their number, at even ones nothing; and the mean
    /// is a guess, too.
    fn spare(&self, missing: f64, places: usize) -> Option<Duration> {
        let random = 2.0 * missing.sqrt() * self.drain.unevenness();
        let spare = (random + missing / 16.0).min(places as f64 / 4.0);
        Duration::try_from_secs_f64(spare * self.drain.interval? / 1e9).ok()
    }

    /// How long until the next place that nobody was promised, when `free` of all `places` are free
    /// now.
    #[must_use]
    pub fn next_free(&self, now: Time, free: usize, places: usize) -> Duration {
        let Some(interval) = self.drain.interval else {
            return UNKNOWN;
        };
        // Every client that returns for a promised place takes one, so these must be freed first.
        let missing = (self.expected(self.live) + 1.0 - free as f64).max(0.0);
        let mean = Duration::try_from_secs_f64(missing * interval / 1e9).unwrap_or(LONGEST);
        let wait = mean.saturating_add(self.spare(missing, places).unwrap_or(LONGEST));
        let last = self
            .bookings
            .back()
            .map_or(Duration::ZERO, |promise| promise.due.since(now));
        wait.max(last).min(LONGEST)
    }

    /// Books the next place that nobody was promised. Says how long to wait for it, and the
    /// booking, unless there are too many or it is too far away.
    pub fn book(&mut self, now: Time, free: usize, places: usize) -> (Duration, Option<Booking>) {
        self.book_after(now, Duration::ZERO, free, places)
    }

    /// The same for a caller that knows a wait before which no place can be free.
    pub fn book_after(
        &mut self,
        now: Time,
        least: Duration,
        free: usize,
        places: usize,
    ) -> (Duration, Option<Booking>) {
        self.lapse(now);
        let wait = self.next_free(now, free, places).max(least).min(LONGEST);
        if wait >= LONGEST || self.bookings.len() >= self.most || self.drain.interval.is_none() {
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

    /// The holder of a booking came: how many were promised a place before it. `None` if the
    /// booking has lapsed or never was.
    pub fn ahead_of(&mut self, now: Time, booking: Booking) -> Option<usize> {
        self.lapse(now);
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

    /// The holder of a booking has its place: the booking is used up.
    pub fn release(&mut self, booking: Booking) {
        let Some(index) = booking.0.checked_sub(self.first) else {
            return;
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let promise = self.bookings.get_mut(index).filter(|promise| promise.open);
        if let Some(promise) = promise {
            promise.open = false;
            self.turnout += (1.0 - self.turnout) * SMOOTHING;
            self.close(booking.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 100;

    fn steady() -> (Forecast, Time) {
        let mut forecast = Forecast::new(10);
        for i in 0..100 {
            forecast.freed(Time::from_millis(100 * i), 50);
        }
        (forecast, Time::from_millis(9_900))
    }

    /// How much later than on average a place is named to each of three.
    fn late(forecast: &mut Forecast, now: Time) -> [f64; 3] {
        [1.0, 2.0, 3.0].map(|place| {
            let (wait, booking) = forecast.book(now, 0, PLACES);
            assert!(booking.is_some());
            (wait.as_secs_f64() - place * 0.1) / f64::sqrt(place)
        })
    }

    #[test]
    fn names_a_time_to_each_that_is_hardly_late_when_all_is_even() {
        let (mut forecast, now) = steady();
        for late in late(&mut forecast, now) {
            assert!((0.0..0.04).contains(&late), "{late}");
        }
    }

    #[test]
    fn names_a_time_to_each_that_is_a_little_late_when_nothing_is() {
        let mut forecast = Forecast::new(10);
        // Four at a time.
        for i in 0..400 {
            forecast.freed(Time::from_millis(400 * (i / 4)), 50);
        }
        for late in late(&mut forecast, Time::from_millis(39_600)) {
            assert!((0.2..0.25).contains(&late), "{late}");
        }
    }

    #[test]
    fn the_first_intervals_count_alike() {
        let mut forecast = Forecast::new(10);
        // Two slots that are freed together, every second.
        for freed in 0..6 {
            forecast.freed(Time::from_secs(freed / 2), 5);
        }
        assert_eq!(forecast.interval(), Some(Duration::from_millis(400)));
    }

    #[test]
    fn free_places_and_those_that_are_kept_are_counted() {
        let (mut forecast, now) = steady();
        assert_eq!(forecast.next_free(now, 1, PLACES), Duration::ZERO);
        assert_eq!(forecast.kept(now, PLACES), 0);
        let waits: Vec<_> = (0..10).map(|_| forecast.book(now, 0, PLACES).0).collect();
        assert!(
            forecast.kept(now, PLACES) < 10,
            "the last is not due for long"
        );
        let last = now + waits[9];
        assert_eq!(forecast.kept(last, 4), 2, "never more than half");
        assert!(forecast.kept(last, PLACES) > 0);
    }

    #[test]
    fn places_are_not_kept_for_ever_for_those_who_do_not_come() {
        let (mut forecast, mut now) = steady();
        for _ in 0..2000 {
            let (wait, _) = forecast.book(now, 0, PLACES);
            now += wait + Duration::from_secs(1);
            assert_eq!(forecast.kept(now, PLACES), 0, "it has lapsed");
        }
        for _ in 0..10 {
            forecast.book(now, 0, PLACES);
        }
        let (wait, _) = forecast.book(now, 0, PLACES);
        assert!(forecast.kept(now + wait, PLACES) <= 5);
    }

    #[test]
    fn a_holder_who_comes_in_time_has_nobody_ahead() {
        let (mut forecast, now) = steady();
        let (_, first) = forecast.book(now, 0, PLACES);
        let (wait, second) = forecast.book(now, 0, PLACES);
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
        assert_eq!(forecast.kept(now + wait, PLACES), 1);
        assert!(first.is_some());
    }

    #[test]
    fn bookings_lapse_and_are_bounded() {
        let (mut forecast, now) = steady();
        let booked = (0..20)
            .filter(|_| forecast.book(now, 0, PLACES).1.is_some())
            .count();
        assert_eq!(booked, 10);
        assert_eq!(forecast.kept(now + Duration::from_secs(10), PLACES), 0);
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
            .map(|_| forecast.book(Time::from_secs(100), 0, 1))
            .collect();
        assert_eq!(waits[0].0, LONGEST);
        assert_eq!(waits[1], (LONGEST, None));
    }
}
