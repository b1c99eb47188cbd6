//! Checks of finished leases and ended jobs.

use super::model::{JobRecord, JobState, Model};
use super::{JobNumber, Violation};
use headworks_core::{
    Fault, OnSuspend, Outcome, Settled, TargetId, TargetState, Ticket, Time, Verdict, View,
};

impl Model {
    /// Records that a lease was returned: its job leaves the gates.
    pub(super) fn return_lease(&mut self, number: JobNumber, outcome: &Outcome) {
        let now = self.now;
        let JobRecord {
            flow,
            cost,
            target,
            probing,
            ..
        } = self.jobs[&number].clone();
        // The probe is over with the lease, however it ended.
        if probing {
            self.targets[target as usize].probe = false;
        }
        if let Some(record) = self.jobs.get_mut(&number) {
            record.probing = false;
        }
        self.gate.running -= 1;
        self.flow_meter(flow).running -= 1;
        self.targets[target as usize].meter.running -= 1;
        let target = target as usize;
        // Work that the target did not do is refunded in full, including the request.
        let (requests, surplus) = match outcome {
            Outcome::Done { cost: Some(actual) } => (0.0, cost.0 as f64 - actual.0 as f64),
            Outcome::Unused | Outcome::Elsewhere => (1.0, cost.0 as f64),
            _ => (0.0, 0.0),
        };
        self.flow_meter(flow);
        for meter in [
            &mut self.gate,
            self.flows.get_mut(&flow).expect("just made"),
            &mut self.targets[target].meter,
        ] {
            meter.refund(now, requests, surplus);
        }
    }

    pub(super) fn settled(
        &mut self,
        number: JobNumber,
        target: TargetId,
        current: bool,
        outcome: &Outcome,
        verdict: Verdict,
        settled: &Settled<JobNumber>,
    ) -> Result<(), Violation> {
        if let Settled::Stale(_) = settled {
            self.coverage.note("stale lease");
            return self.require(!current, || {
                format!("the lease of job {number} was called stale")
            });
        }
        self.require(current, || {
            format!("a stale lease of job {number} settled as {settled:?}")
        })?;
        if verdict == Verdict::Gone {
            let state = self.target_state(target);
            self.require(matches!(state, TargetState::Disabled { .. }), || {
                format!("a target that is gone is {state:?}")
            })?;
        }
        let record = self.jobs[&number].clone();
        let name = match (outcome, settled) {
            (
                Outcome::Retry { fault, .. } | Outcome::RetryAt { fault, .. },
                Settled::Delayed(at),
            ) => return self.tried_again(number, *fault, *at),
            (Outcome::Elsewhere, Settled::Elsewhere) => return self.sent_elsewhere(number, target),
            (Outcome::Elsewhere, Settled::Failed(_)) => {
                self.nowhere_else(number, &record, target)?;
                Some("failed")
            }
            (Outcome::Retry { .. } | Outcome::RetryAt { .. }, Settled::Merged(_)) => {
                self.merged(number, &record)?;
                Some("merged")
            }
            _ => self.end_of(&record, outcome, settled),
        };
        match name {
            Some(name) => self.ended(record.ticket, name),
            None => self.require(false, || {
                format!("job {number}: {outcome:?} settled as {settled:?}")
            }),
        }
    }

    /// The end that the outcome of a lease brings its job to, if that end is permitted.
    fn end_of(
        &mut self,
        record: &JobRecord,
        outcome: &Outcome,
        settled: &Settled<JobNumber>,
    ) -> Option<&'static str> {
        let spent = record.used >= record.attempts;
        let unfit = self.fitting(record.named, record.cost).is_empty()
            || !self.gate.fits(record.cost)
            || !self.flow_meter(record.flow).fits(record.cost);
        let temporary = matches!(
            outcome,
            Outcome::Retry {
                fault: Fault::Temporary,
                ..
            } | Outcome::RetryAt {
                fault: Fault::Temporary,
                ..
            }
        );
        let done = matches!(outcome, Outcome::Done { .. });
        Some(match (outcome, settled) {
            (Outcome::Done { .. }, Settled::Done(_)) => "done",
            (Outcome::Failed | Outcome::Dropped, Settled::Failed(_)) if !record.cancelled => {
                "failed"
            }
            (Outcome::Unused, Settled::Cancelled(_)) if !self.draining => "cancelled",
            (_, Settled::Cancelled(_)) if record.cancelled && !done => "cancelled",
            (_, Settled::Returned(_)) if self.draining && !record.cancelled => "returned",
            (_, Settled::Failed(_)) if temporary && spent => "failed",
            (Outcome::Retry { .. } | Outcome::RetryAt { .. }, Settled::Failed(_)) if unfit => {
                "failed"
            }
            _ => return None,
        })
    }

    fn merged(&self, number: JobNumber, record: &JobRecord) -> Result<(), Violation> {
        let taken = self.jobs.values().any(|other| {
            other.place == JobState::Delayed
                && record.delay_key.is_some()
                && other.delay_key == record.delay_key
        });
        self.require(taken, || format!("job {number} merged with nobody"))
    }

    fn tried_again(&mut self, number: JobNumber, fault: Fault, at: Time) -> Result<(), Violation> {
        self.coverage.note(format!("retried {fault:?}"));
        let JobRecord {
            named,
            cost,
            used,
            attempts,
            ..
        } = self.jobs[&number];
        self.require(fault == Fault::Overload || used < attempts, || {
            format!("job {number} was tried too often")
        })?;
        let allowed = self.fitting(named, cost);
        let moved = self.calls;
        let record = self.leased(number);
        record.place = JobState::Delayed;
        record.moved = moved;
        record.due = at;
        record.used -= u32::from(fault == Fault::Overload);
        record.sent_elsewhere = false;
        record.suspended = false;
        record.allowed = allowed;
        Ok(())
    }

    fn sent_elsewhere(&mut self, number: JobNumber, target: TargetId) -> Result<(), Violation> {
        self.coverage.note("elsewhere");
        let rest = self.others(&self.jobs[&number], target);
        let moved = self.calls;
        let record = self.leased(number);
        record.place = JobState::Waiting;
        record.moved = moved;
        record.used -= 1;
        record.sent_elsewhere = true;
        record.allowed.clone_from(&rest);
        self.require(!rest.is_empty(), || {
            format!("job {number} was sent elsewhere, but there is nowhere else")
        })
    }

    fn nowhere_else(
        &self,
        number: JobNumber,
        record: &JobRecord,
        target: TargetId,
    ) -> Result<(), Violation> {
        let rest = self.others(record, target);
        let ends = |at: Time| at == Time::MAX || self.config.on_suspend == OnSuspend::End;
        let nowhere = rest.is_empty() || self.usable_at(&rest).is_some_and(ends);
        self.require(nowhere, || {
            format!("job {number} failed, but could have gone elsewhere")
        })
    }

    /// The targets other than `target` that a job may go to.
    fn others(&self, record: &JobRecord, target: TargetId) -> Vec<u32> {
        let fits = |other: &u32| self.targets[*other as usize].meter.fits(record.cost);
        let others = record.allowed.iter().copied();
        others
            .filter(|other| *other != target.index() as u32)
            .filter(fits)
            .collect()
    }

    fn leased(&mut self, number: JobNumber) -> &mut JobRecord {
        self.jobs
            .get_mut(&number)
            .expect("a current lease has a job")
    }

    pub(super) fn ended(&mut self, ticket: Ticket, how: &'static str) -> Result<(), Violation> {
        let Some(number) = self.number(ticket) else {
            return self.require(false, || format!("a job that does not live ended as {how}"));
        };
        self.jobs.remove(&number);
        self.coverage.note(format!("ended {how}"));
        *self.ended.entry(how).or_default() += 1;
        self.just_ended.push((number, how));
        Ok(())
    }

    pub(super) fn nothing_left(&self) -> Result<(), Violation> {
        self.require(self.jobs.is_empty(), || {
            format!("{} jobs never ended", self.jobs.len())
        })?;
        let running = self.gate.running
            + self
                .flows
                .values()
                .chain(self.targets.iter().map(|target| &target.meter))
                .map(|meter| meter.running)
                .sum::<u32>();
        self.require(running == 0, || format!("{running} gates were not left"))?;
        let ended: u64 = self.ended.values().sum();
        self.require(ended == self.admitted, || {
            format!("{} admitted, {ended} ended", self.admitted)
        })
    }

    /// Compares the statistics of the core with the model.
    pub(super) fn compare(&self, view: &View) -> Result<(), Violation> {
        let sum = |of: fn(&headworks_core::Ended) -> u64| {
            view.classes
                .iter()
                .map(|class| of(&class.stats.ended))
                .sum::<u64>()
        };
        let said = [
            ("done", sum(|ended| ended.done)),
            ("failed", sum(|ended| ended.failed)),
            ("merged", sum(|ended| ended.merged)),
            ("expired", sum(|ended| ended.expired)),
            ("cancelled", sum(|ended| ended.cancelled)),
            ("shed", sum(|ended| ended.shed)),
            ("returned", sum(|ended| ended.returned)),
        ];
        for (name, count) in said {
            let known = self.ended.get(name).copied().unwrap_or(0);
            self.require(count == known, || {
                format!("the core counts {count} {name}, there were {known}")
            })?;
        }
        let admitted: u64 = view.classes.iter().map(|class| class.stats.admitted).sum();
        self.require(admitted == self.admitted, || {
            format!(
                "the core counts {admitted} admitted, there were {}",
                self.admitted
            )
        })
    }
}
