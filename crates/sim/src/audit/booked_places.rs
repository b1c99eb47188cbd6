//! The auditor's model of bookings: how many places may be kept from a flow, and for whom.

use super::model::{Model, Section};
use super::{JobNumber, Violation};
use headworks_core::{Booking, Bound, Flow, Job, Refused, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// A client returns at most this much later than told, beside a quarter of its wait.
const GRACE: Duration = Duration::from_millis(1250);

/// A booking that may be open.
#[derive(Clone, Copy, Debug)]
pub(super) struct BookedPlace {
    section: Option<Section>,
    booking: Booking,
    flow: Flow,
    weight: u64,
    due: Time,
    /// When it has lapsed at the latest.
    until: Time,
    /// Whether it may have been given up for a flow with fewer bookings.
    certain: bool,
}

impl Model {
    /// The bound that bookings of a section belong to.
    fn booked_in(&self, section: Section) -> Option<Section> {
        matches!(self.config.bound, Bound::PerClass(_)).then_some(section)
    }

    /// Records a booking that a refused or shed job was given.
    pub(super) fn book(
        &mut self,
        section: Section,
        flow: Flow,
        booking: Booking,
        told: Option<Duration>,
    ) {
        let section = self.booked_in(section);
        self.remove_booking(section, booking);
        self.booked.retain(|booked| booked.until > self.now);
        let told = told.unwrap_or_default();
        let open = self.booked.iter().filter(|other| other.section == section);
        // One of them made room for this one, and the answers do not tell which.
        if open.count() >= self.config.bookings {
            self.booked
                .iter_mut()
                .for_each(|other| other.certain = false);
        }
        let due = self.now + told;
        self.booked.push(BookedPlace {
            section,
            booking,
            flow,
            weight: self.flow_weight(flow),
            due,
            until: due + told / 4 + GRACE,
            certain: true,
        });
    }

    fn remove_booking(&mut self, section: Option<Section>, booking: Booking) {
        let is_it = |other: &BookedPlace| (other.section, other.booking) == (section, booking);
        self.booked.retain(|other| !is_it(other));
    }

    /// A job with a booking was admitted.
    pub(super) fn used_booking(&mut self, section: Section, booking: Booking) {
        let section = self.booked_in(section);
        self.remove_booking(section, booking);
        self.coverage.note("admitted with a booking");
    }

    /// The most places that may be kept from a flow: for its own bookings, and for as many of every
    /// other flow as that gets while this one gets its share.
    pub(super) fn most_kept(&self, section: Section, flow: Flow) -> u64 {
        let bound = self.booked_in(section);
        let mut flows: BTreeMap<Flow, (u64, u64)> = BTreeMap::new();
        let open = self.booked.iter().filter(|booked| booked.until > self.now);
        for booked in open.filter(|booked| booked.section == bound) {
            let (count, weight) = flows.entry(booked.flow).or_default();
            *count += 1;
            *weight = booked.weight.max(*weight);
        }
        let own = flows.get(&flow).map_or(0, |(count, _)| *count);
        let others = flows.iter().filter(|(other, _)| **other != flow);
        let others = others
            .map(|(_, (count, weight))| (*count).min((own + 1) * weight / self.flow_weight(flow)));
        let kept = own + others.sum::<u64>();
        // Never more than half is kept for those who are not here.
        kept.min(self.config.bound.places() as u64 / 2)
    }

    /// Whether a job may have to wait for bookings of its own flow, which use the flow's share up.
    pub(super) fn waits_for_bookings(&self, section: Section, job: &Job<JobNumber>) -> bool {
        let bound = self.booked_in(section);
        let open = self.booked.iter().filter(|booked| booked.until > self.now);
        let mut own = open.filter(|booked| (booked.section, booked.flow) == (bound, job.flow));
        own.next().is_some() && !self.is_in_time(section, job)
    }

    /// Whether a job certainly comes in the time of its booking.
    fn is_in_time(&self, section: Section, job: &Job<JobNumber>) -> bool {
        let place = (self.booked_in(section), job.booking, job.flow);
        self.booked.iter().any(|booked| {
            let is_it = (booked.section, Some(booked.booking), booked.flow) == place;
            // A hint is never shorter than a millisecond, a booking's own time may be.
            let lapsed = booked.due + GRACE - Duration::from_millis(2);
            is_it && booked.certain && booked.due <= self.now && self.now < lapsed
        })
    }

    /// Checks that a job that comes in the time of its booking is refused only if no place is free,
    /// and keeps its turn.
    pub(super) fn check_booking(
        &self,
        job: &Job<JobNumber>,
        section: Section,
        refused: &Refused<JobNumber>,
    ) -> Result<(), Violation> {
        if !self.is_in_time(section, job) {
            return Ok(());
        }
        let full = self.held(section).count() >= self.config.bound.places();
        self.require(full, || {
            format!(
                "refused though a place was free in the time of {:?}",
                job.booking
            )
        })?;
        self.require(refused.booking == job.booking, || {
            format!(
                "refused in the time of {:?}, and lost its turn",
                job.booking
            )
        })
    }
}
