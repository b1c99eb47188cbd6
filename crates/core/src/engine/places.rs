//! Places: how many jobs may wait, and which flow holds how many of them.
//!
//! The bound is one number for all classes or one for each; every question about it is answered
//! here, so that admission and hints need not know which. A flow *holds* a place with each job that
//! waits, and *claims* one with each booking that is due or nearly.

use super::Core;
use crate::config::Bound;
use crate::forecast::{Claimant, Forecast};
use crate::id::{Flow, GroupId, Section};

/// The places of a bound that a flow has: by jobs that wait, and by bookings that are due or
/// nearly, beside those of all flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) held: u64,
    pub(super) own: u64,
    pub(super) all: u64,
}

/// The places that an arrival found taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scarce {
    Bound,
    Target,
}

impl<P> Core<P> {
    /// Whether one more job may wait for a target that alone can serve it.
    #[inline(always)]
    pub(super) fn has_room_at_target(&self, group: GroupId) -> bool {
        let target = self.targets.group(group).sole_target();
        target.is_none_or(|target| {
            self.targets[target].waiting() < self.config.max_waiting_at_target() as u64
        })
    }

    pub(super) fn places_taken(&self, section: Section) -> u64 {
        match self.config.bound {
            Bound::Shared(_) => self.occupancy.taken(),
            Bound::PerClass(_) => self.classes[section].waiting(),
        }
    }

    /// Places that no job has; booked ones count as free.
    pub(super) fn places_free(&self, section: Section) -> u64 {
        // After a reload to a smaller bound more may be taken than there are.
        (self.config.bound.places() as u64).saturating_sub(self.places_taken(section))
    }

    /// More wait than may, after a reload to a smaller bound: nobody is admitted, not even for
    /// another.
    pub(super) fn is_over_bound(&self, section: Section) -> bool {
        self.places_taken(section) > self.config.bound.places() as u64
    }

    pub(super) fn forecast(&self, section: Section) -> &Forecast {
        match self.config.bound {
            Bound::Shared(_) => &self.forecast,
            Bound::PerClass(_) => &self.classes[section].forecast,
        }
    }

    pub(super) fn forecast_mut(&mut self, section: Section) -> &mut Forecast {
        match self.config.bound {
            Bound::Shared(_) => &mut self.forecast,
            Bound::PerClass(_) => &mut self.classes[section].forecast,
        }
    }

    /// The places that a flow holds of the bound that applies to a section.
    pub(super) fn held_by(&self, section: Section, flow: Flow) -> u64 {
        let Some(flow) = self.flows.find(flow).map(|flow| &self.flows[flow]) else {
            return 0;
        };
        match self.config.bound {
            Bound::Shared(_) => flow.holder.held(),
            Bound::PerClass(_) => flow
                .queue(section)
                .map_or(0, |queue| self.classes[section].waiting_in(queue)),
        }
    }

    /// Returns a flow's part of the places of a section's bound. A job that comes in the time of
    /// its booking has nothing promised before it.
    pub(super) fn claim(&self, section: Section, flow: Flow, is_due: bool) -> Claim {
        let forecast = self.forecast(section);
        let (own, all) = match is_due || !forecast.has_bookings() {
            true => (0, 0),
            false => (forecast.promised(flow), forecast.promised_in_all()),
        };
        let held = self.held_by(section, flow);
        Claim { held, own, all }
    }

    /// A flow as one that wants a place in a section.
    pub(super) fn claimant(&self, section: Section, flow: Flow) -> Claimant {
        let known = self.flows.find(flow);
        let weight = match known.map(|flow| &self.flows[flow]) {
            Some(flow) => flow.weight(),
            None => self.config.flow(flow).weight,
        };
        Claimant {
            flow,
            weight,
            held: self.held_by(section, flow),
        }
    }

    /// The free places that are kept for bookings and that a flow may not have.
    pub(super) fn kept_from(&self, section: Section, flow: Flow) -> usize {
        let forecast = self.forecast(section);
        // The usual case, and the only one that costs nothing to answer.
        if !forecast.has_bookings() {
            return 0;
        }
        let places = self.config.bound.places();
        forecast.kept(&self.claimant(section, flow), places)
    }
}
