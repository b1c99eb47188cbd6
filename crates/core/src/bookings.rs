//! The places that refused jobs were promised, by flow.
//!
//! Flows share the places that become free by their weights, however many each has booked: while a
//! flow gets one place, a flow of the same weight gets one as well. So a flow that books many
//! delays itself.
//!
//! A [`Forecast`](crate::Forecast) owns the bookings of its bound. A booking is in exactly one of
//! two orders: `later` until it is nearly due, then `near` until it is used or lapses. A look-up
//! names the flow as well: a number guessed by another flow finds nothing.

use crate::fair_queue::fair_part;
use crate::id::{Booking, Flow};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// The weight of one holder in the part that returns.
const SMOOTHING: f64 = 1.0 / 32.0;

/// A flow that wants a place: its weight, and the places that it has.
///
/// ```
/// use headworks_core::{Claimant, Flow, Forecast, Time};
///
/// let forecast = Forecast::new(10);
/// let who = Claimant { flow: Flow(3), weight: 2, held: 5 };
/// // Nobody booked, so nothing is kept from it and nobody is ahead of it.
/// assert_eq!(forecast.kept(&who, 100), 0);
/// assert_eq!(forecast.ahead(&who, 2, |_| 5), 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Claimant {
    /// The flow.
    pub flow: Flow,
    /// Its weight.
    pub weight: u32,
    /// The jobs of the flow that wait under this bound.
    pub held: u64,
}

/// The open bookings of one bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bookings {
    open: BTreeMap<Booking, Promise>,
    next: u64,
    /// Bookings that are neither due nor nearly due, by their due time.
    later: BTreeSet<(Time, Booking)>,
    /// The other bookings, by the time from which others may have their places.
    near: BTreeSet<(Time, Booking)>,
    flows: BTreeMap<Flow, FlowBookings>,
}

/// A booked place: its time, and when others may have it.
#[derive(Clone, Copy, Debug)]
struct Promise {
    flow: Flow,
    due: Time,
    until: Time,
    is_near: bool,
}

#[derive(Clone, Debug)]
struct FlowBookings {
    weight: u32,
    open: BTreeSet<Booking>,
    /// Those that are due, or nearly.
    near: usize,
    /// The part of the holders that comes in time, which is believed until it is known.
    turnout: f64,
    /// The same, but not believed before holders came.
    proven: f64,
}

impl FlowBookings {
    /// How many of `count` who hold a booking will come. Those who did not come so far are believed
    /// half: a promise that is broken is worse than a place that somebody gets a little later.
    fn expected(&self, count: usize) -> u64 {
        (count as f64 * (1.0 + self.turnout) / 2.0).ceil() as u64
    }

    /// How many of those who are due, or nearly, will come if they come as often as before. A flow
    /// whose holders never come does not lose its share to them.
    fn promised(&self) -> u64 {
        (self.near as f64 * self.proven) as u64
    }

    /// Whether the flow has more bookings for its weight than another.
    fn has_more_than(&self, count: usize, weight: u32) -> bool {
        let scaled = |count: usize, weight: u32| count as u128 * u128::from(weight.max(1));
        scaled(self.open.len(), weight) > scaled(count, self.weight)
    }
}

impl Bookings {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Enters a booking for that time, which others may have from `until` on.
    pub(crate) fn insert(&mut self, who: &Claimant, due: Time, until: Time) -> Booking {
        let booking = Booking(self.next);
        self.next += 1;
        let flow = self.flows.entry(who.flow).or_insert_with(|| FlowBookings {
            weight: who.weight,
            open: BTreeSet::new(),
            near: 0,
            turnout: 1.0,
            proven: 0.0,
        });
        flow.weight = who.weight;
        flow.open.insert(booking);
        let promise = Promise {
            flow: who.flow,
            due,
            until,
            is_near: false,
        };
        self.open.insert(booking, promise);
        self.later.insert((due, booking));
        booking
    }

    /// Moves the time of a booking.
    pub(crate) fn postpone(&mut self, booking: Booking, due: Time, until: Time) {
        if let Some(promise) = self.remove(booking) {
            let moved = Promise {
                due,
                until,
                is_near: false,
                ..promise
            };
            self.open.insert(booking, moved);
            self.later.insert((due, booking));
            if let Some(flow) = self.flows.get_mut(&promise.flow) {
                flow.open.insert(booking);
            }
        }
    }

    /// Removes the bookings whose holders are overdue, and marks those due until `horizon` as
    /// near.
    pub(crate) fn advance(&mut self, now: Time, horizon: Time) {
        while let Some((due, booking)) = self.later.first().copied() {
            if due > horizon {
                break;
            }
            self.later.pop_first();
            let promise = self.open.get_mut(&booking).expect("an open booking");
            promise.is_near = true;
            self.near.insert((promise.until, booking));
            self.flows
                .entry(promise.flow)
                .and_modify(|flow| flow.near += 1);
        }
        while let Some((until, booking)) = self.near.first().copied() {
            if until > now {
                break;
            }
            let flow = self.remove(booking).map(|promise| promise.flow);
            if let Some(flow) = flow.and_then(|flow| self.flows.get_mut(&flow)) {
                // The holder did not come: fewer of the next promises are counted on.
                flow.turnout -= flow.turnout * SMOOTHING;
                flow.proven -= flow.proven * SMOOTHING;
            }
        }
    }

    /// The holder of a booking has its place.
    pub(crate) fn release(&mut self, booking: Booking) {
        let flow = self.remove(booking).map(|promise| promise.flow);
        if let Some(flow) = flow.and_then(|flow| self.flows.get_mut(&flow)) {
            flow.turnout += (1.0 - flow.turnout) * SMOOTHING;
            flow.proven += (1.0 - flow.proven) * SMOOTHING;
        }
    }

    fn remove(&mut self, booking: Booking) -> Option<Promise> {
        let promise = self.open.remove(&booking)?;
        match promise.is_near {
            true => self.near.remove(&(promise.until, booking)),
            false => self.later.remove(&(promise.due, booking)),
        };
        let flow = self.flows.get_mut(&promise.flow)?;
        flow.open.remove(&booking);
        flow.near -= usize::from(promise.is_near);
        Some(promise)
    }

    /// Makes room for a booking of a flow: the flow that has most for its weight loses its newest,
    /// if it has more than this one will have. `false` if it has not.
    pub(crate) fn make_room(&mut self, who: &Claimant) -> bool {
        let own = self.flows.get(&who.flow).map_or(0, |flow| flow.open.len());
        let most = self.flows.values().reduce(|most, flow| {
            match flow.has_more_than(most.open.len(), most.weight) {
                true => flow,
                false => most,
            }
        });
        // Counted with the new booking, so that two flows do not take the last one from each other
        // in turn.
        let most = most.filter(|most| most.has_more_than(own + 1, who.weight));
        let newest = most.and_then(|most| most.open.last().copied());
        newest.and_then(|newest| self.remove(newest)).is_some()
    }

    /// Forgets the flows without bookings, if there are more than `most`.
    pub(crate) fn prune(&mut self, most: usize) {
        // Kept for a while without bookings: how reliably a flow came is worth remembering.
        if self.flows.len() > most {
            self.flows.retain(|_, flow| !flow.open.is_empty());
        }
    }

    /// The time of the newest booking of a flow.
    pub(crate) fn newest_of(&self, flow: Flow) -> Option<Time> {
        let newest = self.flows.get(&flow)?.open.last()?;
        self.open.get(newest).map(|promise| promise.due)
    }

    /// How many bookings of a flow are due, or nearly, and will be used if its holders come as
    /// often as before.
    pub(crate) fn near_of(&self, flow: Flow) -> u64 {
        self.flows.get(&flow).map_or(0, FlowBookings::promised)
    }

    /// The same for all flows.
    pub(crate) fn near_of_all(&self) -> u64 {
        self.flows.values().map(FlowBookings::promised).sum()
    }

    /// The time of a flow's open booking.
    pub(crate) fn due(&self, booking: Booking, flow: Flow) -> Option<Time> {
        let promise = self.open.get(&booking)?;
        (promise.flow == flow).then_some(promise.due)
    }

    /// How many were promised a place before that time.
    pub(crate) fn count_before(&self, due: Time) -> usize {
        let before = |promise: &&Promise| promise.due < due;
        self.open.values().filter(before).count()
    }

    /// How many bookings that are expected to be used have a place before the next job of a flow:
    /// all of them, but not more than the flows that want places get while this one gets its share.
    /// `holders` are the weights of all flows that have jobs waiting, and `held` says how many a
    /// flow has.
    pub(crate) fn ahead(&self, who: &Claimant, holders: u64, held: impl Fn(Flow) -> u64) -> u64 {
        let (mut own, mut all) = (0, 0);
        let mut weights = holders;
        if who.held == 0 {
            weights += u64::from(who.weight);
        }
        for (flow, bookings) in &self.flows {
            let expected = bookings.expected(bookings.open.len());
            all += expected;
            if *flow == who.flow {
                own = expected;
            } else if expected > 0 && held(*flow) == 0 {
                weights += u64::from(bookings.weight);
            }
        }
        // While the flow gets its own booked places and this one, the others get as many as their
        // weights say.
        let turns = fair_part(own + 1, weights, u64::from(who.weight));
        all.min(turns.saturating_sub(1)).max(own)
    }

    /// How many bookings that are due, or nearly, keep their places from the next job of a flow:
    /// those of its own, and of another as many as that flow gets while this one gets its share.
    /// Never more than [`ahead`](Self::ahead), so a refused job has to wait.
    pub(crate) fn kept_from(&self, who: &Claimant) -> u64 {
        let (mut own, mut turns) = (0, 1);
        if let Some(flow) = self.flows.get(&who.flow) {
            own = flow.expected(flow.near);
            turns += flow.expected(flow.open.len());
        }
        let others = self.flows.iter().filter(|(flow, _)| **flow != who.flow);
        let others = others.map(|(_, flow)| {
            // A flow that booked more than its share keeps only its share of places free.
            let entitled = fair_part(turns, u64::from(flow.weight), u64::from(who.weight));
            flow.expected(flow.near).min(entitled)
        });
        own + others.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(flow: u64, weight: u32, held: u64) -> Claimant {
        Claimant {
            flow: Flow(flow),
            weight,
            held,
        }
    }

    fn booked(flow: u64, weight: u32, count: usize) -> Bookings {
        let mut bookings = Bookings::default();
        for second in 0..count as u64 {
            let due = Time::from_secs(second);
            bookings.insert(&claimant(flow, weight, 0), due, Time::from_secs(1000));
        }
        bookings
    }

    #[test]
    fn bookings_of_another_flow_are_ahead_up_to_its_share() {
        let bookings = booked(2, 1, 100);
        let ahead = |who| bookings.ahead(&who, 0, |_| 0);
        assert_eq!(ahead(claimant(1, 1, 0)), 1, "each is served in turn");
        assert_eq!(ahead(claimant(2, 1, 0)), 100, "its own");
        assert_eq!(ahead(claimant(1, 4, 0)), 0, "it has four turns for one");
        let waits = bookings.ahead(&claimant(1, 1, 10), 5, |_| 10);
        assert_eq!(waits, 4, "each of five flows is served in turn");
        let bookings = booked(2, 1, 3);
        let waits = bookings.ahead(&claimant(1, 1, 10), 50, |_| 10);
        assert_eq!(waits, 3, "there are not more");
    }

    #[test]
    fn bookings_of_another_flow_are_kept_up_to_its_share() {
        let mut bookings = booked(2, 1, 100);
        bookings.advance(Time::ZERO, Time::from_secs(1000));
        let kept = |bookings: &Bookings, weight| bookings.kept_from(&claimant(1, weight, 0));
        assert_eq!(kept(&bookings, 1), 1, "each is served in turn");
        assert_eq!(kept(&bookings, 4), 0, "it has four turns for one");
        for _ in 0..9 {
            bookings.insert(&claimant(1, 1, 0), Time::from_secs(2000), Time::MAX);
        }
        assert_eq!(kept(&bookings, 1), 10, "nine of its own are not due");
        assert_eq!(bookings.kept_from(&claimant(2, 1, 0)), 100, "its own");
    }

    #[test]
    fn a_flow_with_few_bookings_takes_one_from_a_flow_with_many() {
        let mut bookings = booked(2, 1, 10);
        assert!(bookings.make_room(&claimant(1, 1, 0)));
        assert_eq!(bookings.newest_of(Flow(2)), Some(Time::from_secs(8)));
        assert!(!bookings.make_room(&claimant(2, 1, 0)));
        assert!(!booked(2, 10, 10).make_room(&claimant(1, 1, 0)));
        assert!(!Bookings::default().make_room(&claimant(1, 1, 0)));
    }

    #[test]
    fn flows_that_do_not_come_are_believed_half() {
        let mut bookings = booked(2, 1, 2000);
        bookings.advance(Time::from_secs(1000), Time::from_secs(3000));
        assert!(bookings.is_empty());
        for second in 2000..2010 {
            let due = Time::from_secs(second);
            bookings.insert(&claimant(2, 1, 0), due, due);
            bookings.insert(&claimant(1, 1, 0), due, due);
        }
        let expected = |flow| bookings.flows[&Flow(flow)].expected(10);
        assert_eq!((expected(1), expected(2)), (10, 5));
        bookings.prune(1);
        assert_eq!(bookings.flows.len(), 2, "both have bookings");
    }
}
