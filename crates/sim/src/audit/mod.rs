//! A core whose every result is checked.
//!
//! [`Audited`] forwards calls to a [`Core`] and maintains a model of its own from the calls and
//! results alone; it never queries the core's internal state. A result that contradicts the
//! specification is a [`Violation`].

mod admission;
mod booked_places;
mod changes;
mod coverage;
mod ends;
mod grants;
mod invariants;
mod local;
mod memory;
mod meter;
mod model;
mod window;

pub use coverage::Coverage;

use headworks_core::{
    Cancelled, Config, ConfigError, Core, Event, Job, Lease, LocalLimits, Outcome, Refused,
    Settled, TargetId, TargetSet, TargetState, Ticket, Time, Verdict,
};
use model::{JobState, Model};
use thiserror::Error;

/// A violated guarantee, in words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("at {at}: {what}")]
pub struct Violation {
    /// The time of the violation.
    pub at: Time,
    /// The guarantee that was violated.
    pub what: String,
}

/// The payload of audited jobs: a number that the caller uses for one job only.
pub type JobNumber = u64;

/// The result of a submission.
type Submitted = Result<Ticket, Box<Refused<JobNumber>>>;

/// The audited core.
#[derive(Debug)]
pub struct Audited {
    core: Core<JobNumber>,
    model: Model,
    /// Events for the caller, already applied to the model.
    events: Vec<Event<JobNumber>>,
    /// Whether to print every call and result to stderr.
    traces: bool,
}

impl Audited {
    /// An audited core.
    ///
    /// # Errors
    /// When the core rejects the configuration.
    pub fn new(config: Config, now: Time) -> Result<Self, ConfigError> {
        let core = Core::new(config, now)?;
        let model = Model::new(core.config().clone(), now);
        Ok(Audited {
            core,
            model,
            events: Vec::new(),
            traces: false,
        })
    }

    /// Prints every call and result to stderr from now on, to debug a walk.
    pub fn enable_trace(&mut self) {
        self.traces = true;
    }

    fn trace(&self, now: Time, what: impl FnOnce() -> String) {
        if self.traces {
            eprintln!("{now}  {}", what());
        }
    }

    /// The situations that occurred so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.model.coverage
    }

    /// Returns the events since the previous call.
    pub fn take_events(&mut self) -> Vec<Event<JobNumber>> {
        std::mem::take(&mut self.events)
    }

    /// Returns the jobs that ended since the previous call, and how.
    pub fn take_ended(&mut self) -> Vec<(JobNumber, &'static str)> {
        std::mem::take(&mut self.model.just_ended)
    }

    /// Counts a situation outside the core.
    pub fn note(&mut self, what: &str) {
        self.model.coverage.note(what);
    }

    /// [`Core::wake_at`].
    #[must_use]
    pub fn wake_at(&self) -> Option<Time> {
        self.core.wake_at()
    }

    /// [`Core::targets`].
    ///
    /// # Errors
    /// When the core rejects the set.
    pub fn targets(&mut self, targets: &[TargetId]) -> Result<TargetSet, ConfigError> {
        let set = self.core.targets(targets)?;
        self.model.name_set(set, targets);
        Ok(set)
    }

    /// [`Core::submit`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn submit(&mut self, now: Time, job: Job<JobNumber>) -> Result<Submitted, Violation> {
        self.admit(now, job, true)
    }

    /// [`Core::submit_without_shedding`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn submit_without_shedding(
        &mut self,
        now: Time,
        job: Job<JobNumber>,
    ) -> Result<Submitted, Violation> {
        self.admit(now, job, false)
    }

    fn admit(
        &mut self,
        now: Time,
        job: Job<JobNumber>,
        sheds: bool,
    ) -> Result<Submitted, Violation> {
        let before = self.model.begin(now);
        let facts = job.clone();
        let answer = match sheds {
            true => self.core.submit(now, job),
            false => self.core.submit_without_shedding(now, job),
        };
        self.trace(now, || {
            format!(
                "submit {facts:?} -> {:?}",
                answer.as_ref().map_err(|refused| (
                    refused.reason,
                    refused.retry_after,
                    refused.booking
                ))
            )
        });
        let shed = self.apply_events(Some(&facts))?;
        self.model.require(sheds || shed.is_none(), || {
            "a job was shed for a caller that must not shed".into()
        })?;
        match answer {
            Ok(ticket) => {
                self.model.admitted(ticket, &facts, shed, before)?;
                self.check_invariants(now)?;
                Ok(Ok(ticket))
            }
            Err(refused) => {
                self.model.refused(&facts, &refused, shed, sheds)?;
                self.check_invariants(now)?;
                Ok(Err(Box::new(refused)))
            }
        }
    }

    /// [`Core::next`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn next(&mut self, now: Time) -> Result<Option<Lease<JobNumber>>, Violation> {
        self.model.begin(now);
        let answer = self.core.next(now);
        self.trace(now, || {
            format!("next -> {answer:?}, wake at {:?}", self.core.wake_at())
        });
        self.apply_events(None)?;
        match &answer {
            Some(lease) => self.model.granted(lease)?,
            None => self.model.check_no_grant(self.core.wake_at())?,
        }
        self.check_invariants(now)?;
        Ok(answer)
    }

    /// [`Core::finish`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn finish(
        &mut self,
        now: Time,
        lease: Lease<JobNumber>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Result<Settled<JobNumber>, Violation> {
        self.model.begin(now);
        let (number, target, attempt) = (lease.payload, lease.target, lease.attempt);
        let current = self.model.is_current(number, lease.ticket, attempt, target);
        if current {
            self.model.return_lease(number, &outcome);
        }
        let settled = self.core.finish(now, lease, outcome, verdict);
        self.trace(now, || {
            format!(
                "finish {number} on {}: {outcome:?} {verdict:?} -> {settled:?}",
                target.index()
            )
        });
        self.apply_events(None)?;
        self.model
            .settled(number, target, current, &outcome, verdict, &settled)?;
        self.check_invariants(now)?;
        Ok(settled)
    }

    /// [`Core::reclaim`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn reclaim(&mut self, now: Time, ticket: Ticket) -> Result<bool, Violation> {
        self.model.begin(now);
        let was_running = self.model.place(ticket) == Some(JobState::Running);
        if let Some(number) = self.model.number(ticket).filter(|_| was_running) {
            self.model.return_lease(number, &Outcome::Dropped);
        }
        let answer = self.core.reclaim(now, ticket, Verdict::Unknown);
        self.trace(now, || {
            format!("reclaim {:?} -> {answer}", self.model.number(ticket))
        });
        self.apply_events(None)?;
        self.model.require(answer == was_running, || {
            format!("reclaim said {answer}, the job ran: {was_running}")
        })?;
        if answer {
            self.model.ended(ticket, "failed")?;
            self.model.coverage.note("lease reclaimed");
        }
        self.check_invariants(now)?;
        Ok(answer)
    }

    /// [`Core::cancel`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) -> Result<(), Violation> {
        self.model.begin(now);
        let answer = self.core.cancel(now, ticket);
        self.trace(now, || {
            format!("cancel {:?} -> {answer:?}", self.model.number(ticket))
        });
        self.apply_events(None)?;
        self.model.cancelled(ticket, &answer)?;
        if let Cancelled::Removed(_) = answer {
            self.model.ended(ticket, "cancelled")?;
        }
        self.check_invariants(now)
    }

    /// [`Core::set_target`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn set_target(
        &mut self,
        now: Time,
        target: TargetId,
        state: TargetState,
    ) -> Result<(), Violation> {
        self.model.begin(now);
        self.trace(now, || format!("set target {}: {state:?}", target.index()));
        self.core.set_target(now, target, state);
        self.apply_events(None)?;
        let state = match state {
            TargetState::Suspended { until } if until <= self.model.now => TargetState::Probation,
            state => state,
        };
        let known = self.model.target_state(target);
        self.model.require(known == state, || {
            format!("target set to {state:?} is {known:?}")
        })?;
        self.check_invariants(now)
    }

    /// [`Core::pause`].
    pub fn pause(&mut self) {
        self.core.pause();
        self.model.paused = true;
    }

    /// [`Core::resume`].
    pub fn resume(&mut self) {
        self.core.resume();
        self.model.paused = false;
    }

    /// [`Core::reconfigure`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn reconfigure(
        &mut self,
        now: Time,
        config: Config,
    ) -> Result<Result<(), ConfigError>, Violation> {
        self.model.begin(now);
        let answer = self.core.reconfigure(now, config);
        self.trace(now, || {
            format!("reconfigure {:?} -> {answer:?}", self.core.config())
        });
        if answer.is_ok() {
            self.model.reconfigured(self.core.config().clone());
        }
        self.apply_events(None)?;
        if answer.is_ok() {
            self.model.refitted();
        }
        self.check_invariants(now)?;
        Ok(answer)
    }

    /// [`Core::set_limits`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn set_limits(&mut self, now: Time, local: LocalLimits) -> Result<(), Violation> {
        self.model.begin(now);
        self.trace(now, || format!("set limits {local:?}"));
        self.model.set_limits(local.clone());
        self.core.set_limits(now, local);
        self.apply_events(None)?;
        self.check_invariants(now)
    }

    /// [`Core::drain`], checked: every job that does not run is returned.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn drain(&mut self, now: Time) -> Result<(), Violation> {
        self.model.begin(now);
        self.core.drain(now);
        self.model.draining = true;
        self.apply_events(None)?;
        self.model.only_running_left()?;
        self.check_invariants(now)
    }

    /// Checks that nothing is left and that the statistics of the core agree with the model.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn audit_end(&mut self) -> Result<(), Violation> {
        self.model.nothing_left()?;
        self.model.compare(&self.core.inspect())
    }

    /// Applies the events to the model. Returns the job that was shed, if any.
    fn apply_events(
        &mut self,
        arrival: Option<&Job<JobNumber>>,
    ) -> Result<Option<JobNumber>, Violation> {
        let mut shed = None;
        while let Some(event) = self.core.poll_event() {
            if let Event::Shed { job, .. } = &event {
                self.model.shed(job, arrival)?;
                shed = Some(job.payload);
            }
            self.trace(self.model.now, || format!("  event {event:?}"));
            self.model.event(&event)?;
            self.events.push(event);
        }
        Ok(shed)
    }

    /// Checks the invariants that hold after every call, among them that a driver that sleeps until
    /// `wake_at` never spins.
    fn check_invariants(&mut self, now: Time) -> Result<(), Violation> {
        self.model.process_due(now);
        let now = self.model.now;
        if let Some(wake) = self.core.wake_at().filter(|wake| *wake <= now) {
            self.model.begin(now);
            self.core.advance(now);
            let events = self.events.len();
            self.apply_events(None)?;
            self.model.process_due(now);
            let later = self.core.wake_at().is_none_or(|wake| wake > now);
            self.model
                .require(later || self.events.len() > events, || {
                    format!("wake-up set at {wake}, but nothing happens then")
                })?;
        }
        self.model.nothing_overdue()?;
        self.model.compare_demand(self.core.demand())?;
        self.model.compare_memory(&self.core)?;
        self.model.compare_sizes(
            self.core.waiting(),
            self.core.delayed(),
            self.core.running(),
        )
    }
}
