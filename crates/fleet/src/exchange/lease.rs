//! The state that an implementation keeps between two ticks.

use std::collections::HashMap;
use std::time::Duration;

use super::types::NodeReport;
use crate::clock::BootInstant;
use crate::node::NodeToken;
use crate::silence::Silence;

/// How long a lease may stand still before others take it over.
pub(super) const LEASE: Duration = Duration::from_secs(3);

/// The allocator lease, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    /// `None` after the holder left.
    pub(super) holder: Option<NodeToken>,
    pub(super) beat: i64,
}

/// The next step with the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// Another node holds it.
    Follow,
    /// This node holds it.
    Renew,
    /// Nobody holds it, or the holder is silent: take it over if it still is as it was found.
    TakeOver,
}

/// A node's view of the lease and of the other nodes, on its own clock.
#[derive(Debug)]
pub(super) struct Watch {
    lease_time: Duration,
    lease: Option<Silence<Lease>>,
    /// How long the lease stood still at the last look.
    silence: Duration,
    reports: HashMap<NodeToken, Silence<i64>>,
    /// When this node last renewed its lease, and the epoch of that lease.
    renewed: Option<(BootInstant, u64)>,
}

impl Watch {
    pub(super) fn new(lease_time: Duration) -> Watch {
        Watch {
            lease_time,
            lease: None,
            silence: Duration::ZERO,
            reports: HashMap::new(),
            renewed: None,
        }
    }

    /// Decides about a lease that was found; `None` if it is missing.
    pub(super) fn step(
        &mut self,
        me: NodeToken,
        found: Option<Lease>,
        now: BootInstant,
    ) -> LeaseStep {
        let Some(lease) = found else {
            self.lease = None;
            self.silence = Duration::ZERO;
            return LeaseStep::TakeOver;
        };
        let gap = self.lease_time / 3;
        self.silence = self
            .lease
            .get_or_insert_with(|| Silence::new(lease, now))
            .observe(lease, now, gap);
        match lease.holder {
            None => LeaseStep::TakeOver,
            Some(holder) if holder == me => LeaseStep::Renew,
            Some(_) if self.silence >= self.lease_time => LeaseStep::TakeOver,
            Some(_) => LeaseStep::Follow,
        }
    }

    /// The time to add to the fleet clock: since the last renewal, or the silence of the last
    /// holder at a takeover.
    pub(super) fn elapsed(&self, step: LeaseStep, sent: BootInstant) -> Duration {
        match (step, self.renewed) {
            (LeaseStep::Renew, Some((last, _))) => sent.since(last),
            (LeaseStep::TakeOver, _) => self.silence,
            _ => Duration::ZERO,
        }
    }

    /// Returns whether this node has not yet seen a view of its lease in this epoch.
    pub(super) fn is_new(&self, epoch: u64) -> bool {
        self.renewed.is_none_or(|(_, known)| known != epoch)
    }

    /// The epoch of the lease that this node held last.
    pub(super) fn known_epoch(&self) -> Option<u64> {
        self.renewed.map(|(_, epoch)| epoch)
    }

    /// Notes that the lease was renewed or taken over.
    pub(super) fn held(&mut self, sent: BootInstant, epoch: u64) {
        self.renewed = Some((sent, epoch));
    }

    /// Notes that another node holds the lease.
    pub(super) fn not_held(&mut self) {
        self.renewed = None;
        self.reports.clear();
    }

    /// Fills in how long each node has been silent. `reports` has the counters.
    pub(super) fn observe_reports(&mut self, reports: &mut [(NodeReport, i64)], now: BootInstant) {
        let mut seen = HashMap::with_capacity(reports.len());
        for (report, counter) in reports {
            let mut silence = self
                .reports
                .remove(&report.node)
                .unwrap_or_else(|| Silence::new(*counter, now));
            report.silent = silence.observe(*counter, now, self.lease_time / 3);
            seen.insert(report.node, silence);
        }
        self.reports = seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(holder: NodeToken, beat: i64) -> Option<Lease> {
        Some(Lease {
            holder: Some(holder),
            beat,
        })
    }

    #[test]
    fn a_silent_holder_is_replaced_after_three_seconds_of_looking() {
        let [me, other] = [NodeToken::random(), NodeToken::random()];
        let start = BootInstant::now();
        let mut watch = Watch::new(LEASE);
        let mut at =
            |tick: u32, beat| watch.step(me, lease(other, beat), start + tick * SECOND / 4);
        for tick in 0..12 {
            assert_eq!(at(tick, 1), LeaseStep::Follow);
        }
        assert_eq!(at(12, 1), LeaseStep::TakeOver);
        assert_eq!(at(13, 2), LeaseStep::Follow);
    }

    #[test]
    fn a_candidate_that_was_cut_off_does_not_take_over_at_once() {
        let [me, other] = [NodeToken::random(), NodeToken::random()];
        let start = BootInstant::now();
        let mut watch = Watch::new(LEASE);
        watch.step(me, lease(other, 1), start);
        let later = start + 3600 * SECOND;
        assert_eq!(watch.step(me, lease(other, 1), later), LeaseStep::Follow);
    }

    #[test]
    fn a_free_or_missing_lease_is_taken_at_once() {
        let me = NodeToken::random();
        let mut watch = Watch::new(LEASE);
        let now = BootInstant::now();
        assert_eq!(watch.step(me, None, now), LeaseStep::TakeOver);
        let free = Lease {
            holder: None,
            beat: 7,
        };
        assert_eq!(watch.step(me, Some(free), now), LeaseStep::TakeOver);
        assert_eq!(watch.step(me, lease(me, 8), now), LeaseStep::Renew);
    }

    #[test]
    fn the_fleet_clock_follows_the_holder() {
        let me = NodeToken::random();
        let mut watch = Watch::new(LEASE);
        let start = BootInstant::now();
        watch.step(me, lease(me, 1), start);
        assert!(watch.is_new(5));
        watch.held(start, 5);
        assert!(!watch.is_new(5));
        watch.held(start + SECOND, 5);
        let elapsed = watch.elapsed(LeaseStep::Renew, start + 3 * SECOND);
        assert_eq!(elapsed, 2 * SECOND);
        assert!(watch.is_new(6), "another epoch is new");
        watch.not_held();
        assert!(watch.is_new(5));
    }
}
