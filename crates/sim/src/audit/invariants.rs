//! Invariants that hold after every call.

use super::model::{JobRecord, JobState, Model};
use super::{JobNumber, Violation};
use headworks_core::{Cancelled, OnSuspend, Ticket, Time};

impl Model {
    /// A delayed job joined the queue only if there was a place for it.
    fn due_within_the_bound(&self) -> Result<(), Violation> {
        let sent_back = |record: &JobRecord| record.sent_elsewhere && record.moved == self.calls;
        if self.reloaded_in == self.calls || self.jobs.values().any(sent_back) {
            // The bound of the time before the reload applied. A job that was sent elsewhere keeps
            // its place, even if another has taken it.
            return Ok(());
        }
        for (number, record) in self
            .waiting()
            .filter(|(_, record)| record.joined == 2 * self.calls)
        {
            let held = self.held(self.section_of(record)).count();
            self.require(held <= self.config.bound.places(), || {
                format!("job {number} was due and took a place that was not there")
            })?;
        }
        Ok(())
    }

    /// Everything due has happened: nothing waits past its expiry or is delayed past its due time.
    pub(super) fn nothing_overdue(&self) -> Result<(), Violation> {
        self.due_within_the_bound()?;
        let late = self.jobs.iter().find(|(_, record)| {
            record.place != JobState::Running
                && record.moved < self.calls
                && record.expire_at.is_some_and(|at| at <= self.now)
        });
        self.require(late.is_none(), || format!("{late:?} should have expired"))?;
        if self.config.on_suspend == OnSuspend::End {
            let dead = self.waiting().find(|(_, record)| {
                self.usable_at(&record.allowed).is_some() && !record.sent_elsewhere
            });
            self.require(dead.is_none(), || {
                format!("{dead:?} waits for suspended targets")
            })?;
        }
        let dead = self
            .waiting()
            .find(|(_, record)| self.usable_at(&record.allowed) == Some(Time::MAX));
        self.require(dead.is_none(), || {
            format!("{dead:?} waits for disabled targets")
        })
    }

    pub(super) fn compare_sizes(
        &self,
        waiting: u64,
        delayed: u64,
        running: u64,
    ) -> Result<(), Violation> {
        let count = |place: JobState| {
            self.jobs
                .values()
                .filter(|record| record.place == place)
                .count() as u64
        };
        let known = (
            count(JobState::Waiting),
            count(JobState::Delayed),
            count(JobState::Running),
        );
        self.require(known == (waiting, delayed, running), || {
            format!(
                "waiting, delayed, running: the core says {:?}, the audit {known:?}",
                (waiting, delayed, running)
            )
        })
    }

    pub(super) fn cancelled(
        &mut self,
        ticket: Ticket,
        answer: &Cancelled<JobNumber>,
    ) -> Result<(), Violation> {
        self.process_due(self.now);
        let place = self.place(ticket);
        let right = match answer {
            Cancelled::Removed(job) => {
                matches!(place, Some(JobState::Waiting | JobState::Delayed))
                    && self.number(ticket) == Some(job.payload)
            }
            Cancelled::Running => place == Some(JobState::Running),
            Cancelled::Ended => place.is_none(),
        };
        self.require(right, || {
            format!("cancel said {answer:?} of a job that is {place:?}")
        })?;
        if let (Cancelled::Running, Some(number)) = (answer, self.number(ticket)) {
            self.coverage.note("cancelled while running");
            self.jobs.get_mut(&number).expect("just found").cancelled = true;
        }
        Ok(())
    }

    pub(super) fn only_running_left(&self) -> Result<(), Violation> {
        let kept = self
            .jobs
            .iter()
            .find(|(_, record)| record.place != JobState::Running);
        self.require(kept.is_none(), || format!("{kept:?} was kept by a drain"))
    }
}
