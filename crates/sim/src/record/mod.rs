//! Counters of a run.
//!
//! The simulation writes them from its own calls and the results of the core; the report reads them
//! after the run. Their size depends on the number of classes, flows and targets, never on the
//! number of jobs.

mod histogram;
mod series;

pub(crate) use histogram::Histogram;
pub(crate) use series::{DROPS, EXPIRED, FAILED, Gauges, SHED, Series, drop_name};

use headworks_core::{Reason, TargetState, Time};
use serde::Serialize;
use std::ops::AddAssign;
use std::time::Duration;

/// Counts of a class, or of all: arrivals, grants and ends.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) shed: u64,
    pub(crate) expired: u64,
    pub(crate) failed: u64,
    pub(crate) done: u64,
    pub(crate) granted: u64,
    pub(crate) aged: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.requests += more.requests;
        self.offered += more.offered;
        self.admitted += more.admitted;
        self.shed += more.shed;
        self.expired += more.expired;
        self.failed += more.failed;
        self.done += more.done;
        self.granted += more.granted;
        self.aged += more.aged;
    }
}

/// Counters of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassTally {
    pub(crate) counts: Counts,
    pub(crate) refused: [u64; Reason::ALL.len()],
    pub(crate) retried: u64,
    /// The charged cost, corrected by the actual cost.
    pub(crate) cost: u64,
    pub(crate) waits: Histogram,
    /// The number of samples in which something waited.
    pub(crate) backlogged: u64,
}

/// Counters of a flow.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct FlowTally {
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) shed: u64,
    pub(crate) granted: u64,
    pub(crate) done: u64,
    pub(crate) cost: u64,
    /// The number of samples in which something waited.
    #[serde(skip)]
    pub(crate) backlogged: u64,
}

/// Counters of a load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct LoadTally {
    pub(crate) requests: u64,
    pub(crate) done: u64,
    /// Visits of clients that came back at the time they were told.
    pub(crate) returned: u64,
    pub(crate) readmitted: u64,
    pub(crate) given_up: u64,
}

impl AddAssign for LoadTally {
    fn add_assign(&mut self, more: LoadTally) {
        self.requests += more.requests;
        self.done += more.done;
        self.returned += more.returned;
        self.readmitted += more.readmitted;
        self.given_up += more.given_up;
    }
}

/// Counters of a target, and its states.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetTally {
    pub(crate) granted: u64,
    pub(crate) failures: u64,
    pub(crate) overloads: u64,
    pub(crate) suspensions: u64,
    pub(crate) changes: u64,
    pub(crate) held: Duration,
    held_since: Option<Time>,
    /// The state changes with their times; the first [`Self::MOST`] of them.
    pub(crate) states: Vec<(Time, &'static str)>,
}

impl TargetTally {
    const MOST: usize = 4096;

    pub(crate) fn change(&mut self, now: Time, state: TargetState) {
        self.changes += 1;
        self.suspensions += u64::from(matches!(state, TargetState::Suspended { .. }));
        if state == TargetState::Active {
            self.end(now);
        } else {
            self.held_since.get_or_insert(now);
        }
        if self.states.len() < Self::MOST {
            self.states.push((now, state.name()));
        }
    }

    /// Adds the time up to now.
    pub(crate) fn end(&mut self, now: Time) {
        if let Some(since) = self.held_since.take() {
            self.held += now.since(since);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) classes: Vec<ClassTally>,
    pub(crate) flows: Vec<FlowTally>,
    pub(crate) loads: Vec<LoadTally>,
    pub(crate) targets: Vec<TargetTally>,
    pub(crate) series: Series,
    /// The number of samples taken.
    pub(crate) samples: u64,
}

impl Record {
    pub(crate) fn new(
        classes: usize,
        flows: usize,
        loads: usize,
        targets: usize,
        length: Option<Duration>,
    ) -> Self {
        Record {
            classes: vec![ClassTally::default(); classes],
            flows: vec![FlowTally::default(); flows],
            loads: vec![LoadTally::default(); loads],
            targets: vec![TargetTally::default(); targets],
            series: Series::new(classes, length),
            samples: 0,
        }
    }

    pub(crate) fn flow(&mut self, flow: u64) -> &mut FlowTally {
        let flow = flow as usize;
        if flow >= self.flows.len() {
            self.flows.resize(flow + 1, FlowTally::default());
        }
        &mut self.flows[flow]
    }

    /// Whether something waited in nearly all samples. Only then can a share be compared with a
    /// weight.
    pub(crate) fn is_backlogged(&self, often: u64) -> bool {
        self.samples > 0 && often * 10 >= self.samples * 9
    }

    pub(crate) fn drop(&mut self, why: usize) {
        self.series.slot().drops[why] += 1;
    }
}
