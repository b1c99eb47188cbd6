//! Checks of grants: order, target, and the reason if nothing is granted.

use super::meter::{Block, Meter};
use super::model::{JobRecord, JobState, Model};
use super::{JobNumber, Violation};
use headworks_core::{Class, Lease, Policy, TargetId, TargetState, Ticket, Time};
use std::time::Duration;

/// Times closer than this may differ by rounding alone.
const ROUNDING: Duration = Duration::from_micros(1);

/// The reason why a job cannot go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    Everything(Block),
    Flow(Block),
    Targets(Option<Block>),
}

impl Model {
    pub(super) fn is_current(
        &self,
        number: JobNumber,
        ticket: Ticket,
        attempt: u32,
        target: TargetId,
    ) -> bool {
        self.jobs.get(&number).is_some_and(|record| {
            record.ticket == ticket
                && record.place == JobState::Running
                && record.used == attempt
                && record.target == target.index() as u32
        })
    }

    /// Checks that a lease violates no limit, order or state.
    pub(super) fn granted(&mut self, lease: &Lease<JobNumber>) -> Result<(), Violation> {
        self.process_due(self.now);
        let number = lease.payload;
        self.require(!self.paused, || "granted while paused".into())?;
        let Some(record) = self.jobs.get(&number).cloned() else {
            return self.require(false, || {
                format!("job {number} was leased, but does not live")
            });
        };
        self.require(record.place == JobState::Waiting, || {
            format!("job {number} was leased while {:?}", record.place)
        })?;
        let same = record.ticket == lease.ticket
            && record.class == lease.class
            && record.flow == lease.flow
            && record.cost == lease.cost;
        self.require(same, || {
            format!("the lease of job {number} does not match the job")
        })?;
        self.require(lease.attempt == record.used + 1, || {
            format!(
                "job {number}: attempt {} after {}",
                lease.attempt, record.used
            )
        })?;
        self.check_target(&record, lease.target)?;
        self.check_order(number, &record, lease.aged)?;
        if lease.aged {
            self.coverage.note("aged");
        }
        self.apply_grant(number, lease.target);
        let meters = [
            &self.gate,
            &self.flows[&record.flow],
            &self.targets[lease.target.index()].meter,
        ];
        let exceeded = meters.into_iter().find_map(Meter::exceeded);
        self.require(exceeded.is_none(), || {
            format!("job {number}: {}", exceeded.unwrap_or_default())
        })
    }

    fn check_target(&mut self, record: &JobRecord, target: TargetId) -> Result<(), Violation> {
        self.require(record.allowed.contains(&(target.index() as u32)), || {
            format!("sent to target {}, which may not serve it", target.index())
        })?;
        let now = self.now;
        let book = &self.targets[target.index()];
        let open = match book.state {
            TargetState::Active => true,
            TargetState::Probation => !book.probe,
            _ => false,
        };
        self.require(open, || {
            format!(
                "sent to target {}, which is {:?}",
                target.index(),
                book.state
            )
        })?;
        let block = book.meter.block(now, record.cost);
        self.require(block.is_none(), || {
            format!("target {} is shut: {block:?}", target.index())
        })?;
        let block = self.gate.block(now, record.cost);
        self.require(block.is_none(), || {
            format!("the global gate is shut: {block:?}")
        })?;
        let block = self.flow_meter(record.flow).block(now, record.cost);
        self.require(block.is_none(), || format!("its flow is shut: {block:?}"))
    }

    fn apply_grant(&mut self, number: JobNumber, target: TargetId) {
        let now = self.now;
        let record = self.jobs.get_mut(&number).expect("a leased job lives");
        record.place = JobState::Running;
        record.used += 1;
        record.grants += 1;
        record.target = target.index() as u32;
        let (cost, flow) = (record.cost, record.flow);
        let book = &mut self.targets[target.index()];
        book.meter.enter(now, cost);
        if book.state == TargetState::Probation {
            book.probe = true;
            self.jobs
                .get_mut(&number)
                .expect("a leased job lives")
                .probing = true;
        }
        self.gate.enter(now, cost);
        self.flow_meter(flow).enter(now, cost);
        let class = self.jobs[&number].class;
        *self.granted_cost.entry(class).or_default() += cost.0;
        let section = self.section_of(&self.jobs[&number]);
        self.charged_flows.insert((section, flow));
    }

    /// Checks that the lease respects the order of its lane, its flow and the policy.
    fn check_order(
        &self,
        number: JobNumber,
        record: &JobRecord,
        aged: bool,
    ) -> Result<(), Violation> {
        for (other, waiting) in self.waiting().filter(|(other, _)| **other != number) {
            let older = waiting.joined < record.joined;
            let same_section = self.section_of(waiting) == self.section_of(record);
            let same_queue = same_section && waiting.flow == record.flow;
            if same_queue && older && waiting.allowed == record.allowed {
                return self.require(false, || {
                    format!("job {number} overtook job {other} of its lane")
                });
            }
            // An aged job may pass anybody; a blocked one or one that a reservation keeps away is
            // passed by right.
            if aged || self.obstacle(waiting).is_some() || self.is_reserved_from(*other, waiting) {
                continue;
            }
            if same_queue && older {
                return self.require(false, || {
                    format!("job {number} overtook job {other} of its flow, whose gates are open")
                });
            }
            let inverted = match self.config.policy {
                Policy::Strict => waiting.class < record.class,
                // Only class 0 is strict; among the others the order of two grants says nothing.
                Policy::Hybrid => waiting.class == Class(0) && record.class != Class(0),
                Policy::Fifo => older,
                // Shares are checked over time, not grant by grant.
                Policy::Wfq => false,
            };
            if inverted {
                return self.require(false, || {
                    format!(
                        "job {number} ({}) went before job {other} ({})",
                        record.class, waiting.class
                    )
                });
            }
        }
        Ok(())
    }

    /// Whether a cost bucket that a job draws on may be reserved for another job, one that the
    /// policy does not put after it and that waits for cost alone.
    fn is_reserved_from(&self, number: JobNumber, record: &JobRecord) -> bool {
        self.is_reserved_within(self.targets.len(), number, record)
    }

    /// The same for a chain of at most `chain` reservations. A job may be short of one target's
    /// bucket while that of another target, which has enough for it, is reserved for a third job.
    fn is_reserved_within(&self, chain: usize, number: JobNumber, record: &JobRecord) -> bool {
        self.waiting().any(|(other, waiting)| {
            let reserved = || {
                // The chain ends: each reservation belongs to another target.
                chain > 1
                    && self.obstacle(waiting).is_none()
                    && self.is_reserved_within(chain - 1, *other, waiting)
            };
            *other != number
                && !self.comes_after(waiting, record)
                && self.competes_for_bucket(waiting, record)
                && (self.only_cost_is_missing(waiting) || reserved())
        })
    }

    /// Whether the policy puts one job after another regardless of virtual time.
    fn comes_after(&self, one: &JobRecord, other: &JobRecord) -> bool {
        match self.config.policy {
            Policy::Strict => one.class > other.class,
            Policy::Hybrid => other.class == Class(0) && one.class != Class(0),
            Policy::Fifo => one.joined > other.joined,
            Policy::Wfq => false,
        }
    }

    fn only_cost_is_missing(&self, record: &JobRecord) -> bool {
        // Within rounding the core may see the bucket on either side of enough; both are right.
        let times = [self.now - ROUNDING, self.now, self.now + ROUNDING];
        times.into_iter().any(|now| {
            matches!(
                self.obstacle_at(record, now),
                Some(
                    Obstacle::Everything(Block::Cost)
                        | Obstacle::Flow(Block::Cost)
                        | Obstacle::Targets(Some(Block::Cost))
                )
            )
        })
    }

    fn obstacle(&self, record: &JobRecord) -> Option<Obstacle> {
        // A gate that opened less than a microsecond ago may still be shut for the core, by
        // rounding.
        self.obstacle_at(record, self.now - ROUNDING)
    }

    fn obstacle_at(&self, record: &JobRecord, now: Time) -> Option<Obstacle> {
        if let Some(block) = self.gate.block(now, record.cost) {
            return Some(Obstacle::Everything(block));
        }
        if let Some(block) = self
            .flows
            .get(&record.flow)
            .and_then(|meter| meter.block(now, record.cost))
        {
            return Some(Obstacle::Flow(block));
        }
        let mut found = None;
        for target in &record.allowed {
            let book = &self.targets[*target as usize];
            match book.state {
                TargetState::Active => {}
                TargetState::Probation if !book.probe => {}
                // A target that is suspended or disabled does not count as blocked by its limits.
                _ => continue,
            }
            match book.meter.block(now, record.cost) {
                None => return None,
                // `Cost` is the greatest `Block`: if only cost is missing at any target, the job
                // waits for cost.
                some => found = found.max(some),
            }
        }
        Some(Obstacle::Targets(found))
    }

    /// Checks that nothing could have been granted, and that a wake-up is set if time would change
    /// that.
    pub(super) fn check_no_grant(&mut self, wake: Option<Time>) -> Result<(), Violation> {
        self.process_due(self.now);
        if self.paused {
            self.coverage.note("paused");
            return Ok(());
        }
        let mut notes = Vec::new();
        for (number, record) in self.waiting() {
            match self.obstacle(record) {
                Some(obstacle) => notes.push(format!("shut {obstacle:?}")),
                None => {
                    let reserved = self.is_reserved_from(*number, record);
                    self.require(reserved, || {
                        format!("job {number} waits although nothing blocks it or is reserved")
                    })?;
                    notes.push("reserved".into());
                }
            }
        }
        // Without a wake-up a driver would sleep for ever, so no length of time may change the
        // answer.
        if wake.is_none() {
            let mut later = self.after_idle_time();
            later.now += Duration::from_secs(100 * 365 * 86_400);
            for (number, record) in later.waiting() {
                let stuck = later.obstacle(record).is_some();
                self.require(stuck, || {
                    format!("job {number} could go later, but no wake-up is set")
                })?;
            }
        }
        for note in notes {
            self.coverage.note(note);
        }
        Ok(())
    }

    /// Whether `waiting` is short of a bucket that `record` draws on.
    fn competes_for_bucket(&self, waiting: &JobRecord, record: &JobRecord) -> bool {
        let short = |meter: &Meter| meter.is_short(self.now - ROUNDING, waiting.cost);
        short(&self.gate)
            || (waiting.flow == record.flow && self.flows.get(&record.flow).is_some_and(short))
            || record.allowed.iter().any(|target| {
                waiting.allowed.contains(target) && short(&self.targets[*target as usize].meter)
            })
    }

    /// The model as it would be if only time passed: suspensions over, nothing finished.
    fn after_idle_time(&self) -> Model {
        let mut later = Model::new(self.config.clone(), self.now);
        later.jobs = self.jobs.clone();
        later.gate = self.gate.clone();
        later.flows = self.flows.clone();
        later.targets = self.targets.clone();
        for target in &mut later.targets {
            if matches!(target.state, TargetState::Suspended { .. }) {
                target.state = TargetState::Probation;
            }
        }
        later
    }
}
