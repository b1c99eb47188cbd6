//! When the next place becomes free, and for which refused job.
//!
//! A [`Forecast`] learns the interval between grants. A refused job is told when the next place
//! that is its own will be free, and holds a booking for it. Jobs without a booking do not take the
//! place of a booking that is due, until that is overdue by a quarter of the wait it was given.
//!
//! A wait is computed from what is promised and free at that moment, not from the last promise, so
//! that errors do not add up. The less even the intervals, the longer it is, so that the place is
//! there before its holder. Bookings of other flows count up to their share. Not every holder
//! returns: the part that does is learned as well, and at most half of all places are ever kept,
//! so that nothing idles for those that do not.

use crate::bookings::Bookings;
pub use crate::bookings::Claimant;
use crate::drain_rate::{DrainRate, UNKNOWN};
use crate::id::{Booking, Flow};
use crate::time::Time;
use std::time::Duration;

/// The longest wait that is named.
pub const LONGEST: Duration = Duration::from_secs(120);

/// How much later than told a client may return, beside a quarter of its wait: many read whole
/// seconds, rounded up, and answers take time to travel.
const GRACE: Duration = Duration::from_millis(1250);

/// The forecast for one bound.
///
/// ```
/// use headworks_core::{Claimant, Flow, Forecast, Time};
/// use std::time::Duration;
///
/// let mut forecast = Forecast::new(10);
/// // One of two places is freed every second, and somebody always waits.
/// for second in 0..60 {
///     forecast.freed(Time::from_secs(second), 2);
/// }
/// let now = Time::from_secs(59);
/// assert_eq!(forecast.interval(), Some(Duration::from_secs(1)));
///
/// let who = Claimant { flow: Flow(7), weight: 1, held: 0 };
/// let wait = forecast.next_free(now, 0, 0, 2);
/// let (wait, booking) = forecast.book(now, &who, wait);
/// let booking = booking.expect("there is room for a booking");
/// // At its time, nobody was promised a place before its holder.
/// assert_eq!(forecast.ahead_of(now + wait, booking, Flow(7)), Some(0));
/// assert_eq!(forecast.ahead_of(now + wait, booking, Flow(8)), None, "another flow's");
/// ```
#[derive(Clone, Debug)]
pub struct Forecast {
    drain: DrainRate,
    bookings: Bookings,
    most: usize,
}

impl Forecast {
    /// A forecast that keeps at most `most` bookings.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Forecast {
            drain: DrainRate::default(),
            bookings: Bookings::default(),
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

    /// No place is free: the time until one is counts as an interval.
    pub fn blocked(&mut self, now: Time) {
        self.drain.blocked(now);
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

    /// How long somebody with `ahead` jobs in front of them will wait.
    #[must_use]
    pub fn wait(&self, ahead: usize) -> Option<Duration> {
        self.interval()
            .map(|interval| interval.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)))
    }

    /// Whether any place is booked.
    #[must_use]
    pub fn has_bookings(&self) -> bool {
        !self.bookings.is_empty()
    }

    /// Drops the bookings whose holders are overdue, and begins to keep places for those that are
    /// nearly due, of all `places`.
    pub fn advance(&mut self, now: Time, places: usize) {
        if !self.bookings.is_empty() {
            // Places are kept before they are due, because the one that is needed may be freed
            // earlier than on average.
            let lead = self.drain.lead(self.bookings.len() as f64, places);
            self.bookings.advance(now, now + lead.min(LONGEST));
        }
    }

    /// How many of `places` are to be kept from a claimant, for those who are due or nearly.
    #[must_use]
    pub fn kept(&self, who: &Claimant, places: usize) -> usize {
        let near = self.bookings.kept_from(who);
        // Never more than half: a promise must not leave the queue idle for those who are here.
        usize::try_from(near).unwrap_or(usize::MAX).min(places / 2)
    }

    /// How many jobs of a flow will probably return for a booking that is due, or nearly.
    #[must_use]
    pub fn promised(&self, flow: Flow) -> u64 {
        self.bookings.near_of(flow)
    }

    /// The same for all flows.
    #[must_use]
    pub fn promised_in_all(&self) -> u64 {
        self.bookings.near_of_all()
    }

    /// How many are expected to return for a booking and have a place before the claimant.
    /// `holders` are the weights of all flows that have jobs waiting, and `held` says how many a
    /// flow has.
    pub fn ahead(&self, who: &Claimant, holders: u64, held: impl Fn(Flow) -> u64) -> u64 {
        self.bookings.ahead(who, holders, held)
    }

    /// How long until a place is free for a job that has `ahead` bookings before it, when `free` of
    /// all `places` are free now.
    #[must_use]
    pub fn next_free(&self, now: Time, ahead: u64, free: usize, places: usize) -> Duration {
        // Every client that returns for a promised place takes one, so these must be freed first.
        let missing = ahead as f64 + 1.0 - free as f64;
        let time = self.drain.time_for(now, missing, places);
        time.unwrap_or(UNKNOWN).min(LONGEST)
    }

    /// Books a place for a claimant that has to wait that long, and not before its flow's earlier
    /// bookings. Says how long to wait for it, and the booking, unless there are too many or it is
    /// too far away.
    pub fn book(
        &mut self,
        now: Time,
        who: &Claimant,
        wait: Duration,
    ) -> (Duration, Option<Booking>) {
        let newest = self.bookings.newest_of(who.flow);
        let last = newest.map_or(Duration::ZERO, |due| due.since(now));
        let wait = wait.max(last).min(LONGEST);
        // A place that far away, or of which no time is known, cannot be promised.
        if wait >= LONGEST || self.most == 0 || self.interval().is_none() {
            return (wait, None);
        }
        if self.bookings.len() >= self.most && !self.bookings.make_room(who) {
            return (wait, None);
        }
        self.bookings.prune(self.most);
        let (due, until) = times(now, wait);
        (wait, Some(self.bookings.insert(who, due, until)))
    }

    /// The holder of a booking of that flow came: how many were promised a place before it. `None`
    /// if the booking has lapsed or never was.
    #[must_use]
    pub fn ahead_of(&self, now: Time, booking: Booking, flow: Flow) -> Option<usize> {
        let due = self.bookings.due(booking, flow)?;
        // At its time or after it, its place is its own.
        Some(match due <= now {
            true => 0,
            false => self.bookings.count_before(due),
        })
    }

    /// The holder of a booking came in its time, and found no place: it keeps its turn, and has to
    /// wait that long. `false` if its time has not come yet, or is over.
    pub fn renew(&mut self, now: Time, booking: Booking, flow: Flow, wait: Duration) -> bool {
        let is_due = self
            .bookings
            .due(booking, flow)
            .is_some_and(|due| due <= now);
        if is_due {
            let (due, until) = times(now, wait);
            self.bookings.postpone(booking, due, until);
        }
        is_due
    }

    /// The holder of a booking has its place: the booking is used up.
    pub fn release(&mut self, booking: Booking, flow: Flow) {
        if self.bookings.due(booking, flow).is_some() {
            self.bookings.release(booking);
        }
    }
}

/// When a booking is due after that wait, and when others may have its place.
fn times(now: Time, wait: Duration) -> (Time, Time) {
    let due = now + wait;
    (due, due + wait / 4 + GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 100;
    const ONE: Claimant = Claimant {
        flow: Flow(1),
        weight: 1,
        held: 0,
    };

    fn steady() -> (Forecast, Time) {
        let mut forecast = Forecast::new(10);
        for i in 0..100 {
            forecast.freed(Time::from_millis(100 * i), 50);
        }
        (forecast, Time::from_millis(9_900))
    }

    /// Books the next place of a queue in which none is free.
    fn book(forecast: &mut Forecast, now: Time) -> (Duration, Option<Booking>) {
        forecast.advance(now, PLACES);
        let ahead = forecast.ahead(&ONE, 0, |_| 0);
        let wait = forecast.next_free(now, ahead, 0, PLACES);
        forecast.book(now, &ONE, wait)
    }

    fn kept(forecast: &mut Forecast, now: Time, places: usize) -> usize {
        forecast.advance(now, places);
        forecast.kept(&ONE, places)
    }

    /// How much later than on average a place is named to each of three.
    fn late(forecast: &mut Forecast, now: Time) -> [f64; 3] {
        [1.0, 2.0, 3.0].map(|place| {
            let (wait, booking) = book(forecast, now);
            assert!(booking.is_some());
            wait.as_secs_f64() - place * 0.1
        })
    }

    #[test]
    fn names_a_time_to_each_that_is_hardly_late_when_all_is_even() {
        let (mut forecast, now) = steady();
        for late in late(&mut forecast, now) {
            assert!((0.0..0.07).contains(&late), "{late}");
        }
    }

    #[test]
    fn names_a_time_to_each_that_is_a_little_late_when_nothing_is() {
        let mut forecast = Forecast::new(10);
        // Four at a time: the next after 400 ms.
        for i in 0..400 {
            forecast.freed(Time::from_millis(400 * (i / 4)), 50);
        }
        for late in late(&mut forecast, Time::from_millis(39_600)) {
            assert!((0.29..0.38).contains(&late), "{late}");
        }
    }

    #[test]
    fn free_places_and_those_that_are_kept_are_counted() {
        let (mut forecast, now) = steady();
        assert_eq!(forecast.next_free(now, 0, 1, PLACES), Duration::ZERO);
        assert_eq!(kept(&mut forecast, now, PLACES), 0);
        let waits: Vec<_> = (0..10).map(|_| book(&mut forecast, now).0).collect();
        assert!(
            kept(&mut forecast, now, PLACES) < 10,
            "the last is not due for long"
        );
        let last = now + waits[9];
        assert_eq!(kept(&mut forecast, last, 4), 2, "never more than half");
        assert!(kept(&mut forecast, last, PLACES) > 0);
    }

    #[test]
    fn places_are_not_kept_for_ever_for_those_who_do_not_come() {
        let (mut forecast, mut now) = steady();
        forecast.emptied();
        for _ in 0..2000 {
            let (wait, _) = book(&mut forecast, now);
            now += wait + Duration::from_secs(2);
            assert_eq!(kept(&mut forecast, now, PLACES), 0, "it has lapsed");
        }
        for _ in 0..10 {
            book(&mut forecast, now);
        }
        let (wait, _) = book(&mut forecast, now);
        assert!(
            kept(&mut forecast, now + wait, PLACES) <= 6,
            "half, rounded up"
        );
    }

    #[test]
    fn a_holder_who_comes_in_time_has_nobody_ahead() {
        let (mut forecast, now) = steady();
        let (_, first) = book(&mut forecast, now);
        let (wait, second) = book(&mut forecast, now);
        let second = second.expect("booked");
        let ahead = |forecast: &Forecast, now| forecast.ahead_of(now, second, ONE.flow);
        assert_eq!(
            ahead(&forecast, now),
            Some(1),
            "too early: the first is ahead"
        );
        assert_eq!(ahead(&forecast, now + wait), Some(0));
        assert_eq!(forecast.ahead_of(now + wait, second, Flow(2)), None);
        forecast.release(second, Flow(2));
        assert_eq!(ahead(&forecast, now + wait), Some(0), "it is not theirs");
        forecast.release(second, ONE.flow);
        assert_eq!(ahead(&forecast, now + wait), None, "it is used once");
        assert_eq!(kept(&mut forecast, now + wait, PLACES), 1);
        assert!(first.is_some());
    }

    #[test]
    fn a_holder_who_finds_no_place_in_its_time_keeps_its_turn() {
        let (mut forecast, now) = steady();
        let (wait, first) = book(&mut forecast, now);
        let first = first.expect("booked");
        for _ in 0..5 {
            book(&mut forecast, now);
        }
        let more = Duration::from_millis(100);
        assert!(!forecast.renew(now, first, ONE.flow, more), "too early");
        let now = now + wait;
        assert!(!forecast.renew(now, first, Flow(2), more), "not its own");
        assert!(forecast.renew(now, first, ONE.flow, more));
        assert_eq!(forecast.ahead_of(now + more, first, ONE.flow), Some(0));
        assert!(kept(&mut forecast, now + more, PLACES) > 0);
    }

    #[test]
    fn bookings_lapse_and_are_bounded() {
        let (mut forecast, now) = steady();
        let booked = (0..20)
            .filter(|_| book(&mut forecast, now).1.is_some())
            .count();
        assert_eq!(booked, 10);
        let late = now + Duration::from_secs(10);
        assert_eq!(kept(&mut forecast, late, PLACES), 0);
        assert_eq!(forecast.ahead_of(late, Booking(3), ONE.flow), None);
        assert_eq!(forecast.ahead_of(now, Booking(u64::MAX), ONE.flow), None);
    }

    #[test]
    fn nobody_waits_longer_than_the_longest() {
        let mut forecast = Forecast::new(1000);
        forecast.freed(Time::ZERO, 5);
        forecast.freed(Time::from_secs(100), 5);
        let waits: Vec<_> = (0..3)
            .map(|_| book(&mut forecast, Time::from_secs(100)))
            .collect();
        assert_eq!(waits[0].0, LONGEST);
        assert_eq!(waits[1], (LONGEST, None));
    }
}
