//! Changes that no call asks for: timers, target states and settings.

use super::meter::Meter;
use super::model::{JobRecord, JobState, Model, TargetModel};
use super::{JobNumber, Violation};
use headworks_core::{Config, Event, OnSuspend, TargetId, TargetState, Time};

impl Model {
    pub(super) fn event(&mut self, event: &Event<JobNumber>) -> Result<(), Violation> {
        match event {
            Event::Expired { ticket, job } => {
                self.require(job.expire_at.is_some_and(|at| at <= self.now), || {
                    format!("job {} expired too early", job.payload)
                })?;
                self.ended(*ticket, "expired")
            }
            Event::Shed {
                ticket,
                job,
                retry_after,
                booking,
            } => {
                if let Some(booking) = booking {
                    let section = self.section_of(&self.jobs[&job.payload]);
                    self.book(section, job.flow, *booking, *retry_after);
                }
                self.ended(*ticket, "shed")
            }
            Event::Merged { ticket, .. } => self.ended(*ticket, "merged"),
            Event::Failed { ticket, reason, .. } => {
                self.coverage.note(format!("unservable {reason:?}"));
                self.ended(*ticket, "failed")
            }
            Event::Returned { ticket, .. } => {
                self.require(self.draining, || "handed back without a drain".into())?;
                self.ended(*ticket, "returned")
            }
            Event::Postponed { ticket, until } => {
                self.coverage.note("postponed");
                let number = self.number(*ticket);
                let reloaded = self.reloaded_in == self.calls;
                let suspended = number.is_some_and(|number| {
                    let record = &self.jobs[&number];
                    let usable = match reloaded {
                        true => self.usable_at(&self.still_allowed(record)),
                        false => self.usable_at(&record.allowed),
                    };
                    usable.is_some() && self.config.on_suspend == OnSuspend::Delay
                });
                let record = number.and_then(|number| self.jobs.get_mut(&number));
                // A reload may release a job that was delayed until a suspension ends.
                let Some(record) = record.filter(|record| {
                    let due = record.due <= self.now || (reloaded && record.suspended);
                    record.place == JobState::Delayed && due
                }) else {
                    return self.require(false, || "a job was postponed that was not due".into());
                };
                record.due = *until;
                record.suspended = suspended;
                Ok(())
            }
            Event::TargetChanged { target, state } => self.target_changed(*target, *state),
            _ => self.require(false, || format!("unknown event {event:?}")),
        }
    }

    fn target_changed(&mut self, target: TargetId, state: TargetState) -> Result<(), Violation> {
        self.coverage.note(format!("target {state}"));
        while self.targets.len() <= target.index() {
            let limits = self.target_limits(self.targets.len());
            self.targets.push(TargetModel {
                state: TargetState::Active,
                meter: Meter::new(limits, self.now),
                probe: false,
            });
        }
        if !state.is_usable() {
            // No timer causes this change, so everything due has already been processed.
            self.process_due(self.now);
        }
        let before = std::mem::replace(&mut self.targets[target.index()].state, state);
        // Jobs that wait only for suspended targets are delayed without an event of their own.
        if self.config.on_suspend == OnSuspend::Delay && !state.is_usable() {
            let moved: Vec<(JobNumber, Time)> = self
                .waiting()
                .filter(|(_, record)| record.allowed.contains(&(target.index() as u32)))
                .filter_map(|(number, record)| {
                    self.usable_at(&record.allowed)
                        .filter(|at| *at < Time::MAX)
                        .map(|at| (*number, at))
                })
                .collect();
            for (number, due) in moved {
                let record = self.jobs.get_mut(&number).expect("just seen");
                record.place = JobState::Delayed;
                record.moved = self.calls;
                record.due = due;
                record.suspended = true;
            }
        }
        if state.is_usable() && !before.is_usable() {
            self.released(target);
        }
        Ok(())
    }

    /// Releases the jobs that were delayed until this target is usable, unless they start later.
    fn released(&mut self, target: TargetId) {
        let now = self.now;
        for record in self.jobs.values_mut() {
            let waits = record.place == JobState::Delayed && record.suspended;
            if waits && record.allowed.contains(&(target.index() as u32)) {
                self.coverage.note("released");
                record.suspended = false;
                record.moved = self.calls - 1;
                record.due = record.start_at.map_or(now, |at| at.max(now));
            }
        }
    }

    /// Moves delayed jobs that are due to the queue, unless an event said otherwise.
    pub(super) fn process_due(&mut self, now: Time) {
        let (now, calls) = (self.now.max(now), self.calls);
        for record in self.jobs.values_mut() {
            // A job that moved in this call is due in the next at the earliest: the core acts once
            // per call on each timer.
            if record.place == JobState::Delayed && record.due <= now && record.moved < calls {
                record.place = JobState::Waiting;
                record.joined = 2 * calls;
                record.moved = calls;
            }
        }
    }

    pub(super) fn reconfigured(&mut self, config: Config) {
        self.coverage.note("reconfigured");
        self.reloaded_in = self.calls;
        let now = self.now;
        self.config = config;
        self.limits_changed();
        for index in self.targets.len()..self.config.targets.len() {
            let limits = self.target_limits(index);
            self.targets.push(TargetModel {
                state: TargetState::Active,
                meter: Meter::new(limits, now),
                probe: false,
            });
        }
    }

    /// Recomputes where jobs may go, after the targets have their new settings.
    pub(super) fn refitted(&mut self) {
        // Jobs that the new settings released join the queue before they are moved.
        self.process_due(self.now);
        let fitting: Vec<(JobNumber, Vec<u32>)> = self
            .jobs
            .iter()
            .filter(|(_, record)| record.place != JobState::Running)
            .map(|(number, record)| (*number, self.still_allowed(record)))
            .collect();
        for (number, allowed) in fitting {
            let usable = self.usable_at(&allowed);
            let until = usable.filter(|at| *at < Time::MAX);
            let (now, calls) = (self.now, self.calls);
            let record = self.jobs.get_mut(&number).expect("just seen");
            let delayed = record.place == JobState::Delayed && record.suspended;
            if delayed && record.allowed != allowed && usable.is_none() {
                self.coverage.note("released by a reload");
                record.suspended = false;
                record.moved = calls - 1;
                record.due = record.start_at.map_or(now, |at| at.max(now));
            }
            let moved = record.place == JobState::Waiting && record.allowed != allowed;
            record.allowed = allowed;
            if let Some(until) =
                until.filter(|_| moved && self.config.on_suspend == OnSuspend::Delay)
            {
                record.place = JobState::Delayed;
                record.suspended = true;
                record.due = until;
                record.moved = calls;
            }
        }
    }

    /// The targets a job may go to under new limits. A target that refused the job is not added
    /// back.
    fn still_allowed(&self, record: &JobRecord) -> Vec<u32> {
        let mut allowed = self.fitting(record.named, record.cost);
        // Settings that let more targets serve it do not undo a refusal.
        if record.sent_elsewhere {
            allowed.retain(|target| record.allowed.contains(target));
        }
        allowed
    }
}
