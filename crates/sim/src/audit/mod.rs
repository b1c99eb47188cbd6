//! A core whose every result is checked.
//!
//! [`Audited`] forwards calls to a [`Core`] and maintains a model of its own from the calls and
//! results alone; it never queries the core's internal state. A result that contradicts the
//! specification is a [`Violation`].

mod admission;
mod books;
mod changes;
mod coverage;
mod ends;
mod grants;
mod meter;
mod rules;

pub use coverage::Coverage;

use books::{Books, Place};
use headworks_core::{
    Cancelled, Config, ConfigError, Core, Event, Job, Lease, Outcome, Refused, Settled, TargetId,
    TargetSet, TargetState, Ticket, Time, Verdict,
};
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
pub type Number = u64;

/// The result of a submission.
type Submitted = Result<Ticket, Box<Refused<Number>>>;

/// The audited core.
#[derive(Debug)]
pub struct Audited {
    core: Core<Number>,
    books: Books,
    /// Events for the caller, already applied to the model.
    events: Vec<Event<Number>>,
    /// Whether to print every call and result to stderr.
    tells: bool,
}

impl Audited {
    /// An audited core.
    ///
    /// # Errors
    /// When the core rejects the configuration.
    pub fn new(config: Config, now: Time) -> Result<Self, ConfigError> {
        let core = Core::new(config, now)?;
        let books = Books::new(core.config().clone(), now);
        Ok(Audited {
            core,
            books,
            events: Vec::new(),
            tells: false,
        })
    }

    /// Prints every call and result to stderr from now on, to debug a walk.
    pub fn tell(&mut self) {
        self.tells = true;
    }

    fn say(&self, now: Time, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{now}  {}", what());
        }
    }

    /// The situations that occurred so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.books.coverage
    }

    /// Returns the events since the previous call.
    pub fn take_events(&mut self) -> Vec<Event<Number>> {
        std::mem::take(&mut self.events)
    }

    /// Returns the jobs that ended since the previous call, and how.
    pub fn take_ended(&mut self) -> Vec<(Number, &'static str)> {
        std::mem::take(&mut self.books.just_ended)
    }

    /// Counts a situation outside the core.
    pub fn note(&mut self, what: &str) {
        self.books.coverage.note(what);
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
        self.books.name_set(set, targets);
        Ok(set)
    }

    /// [`Core::submit`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn submit(&mut self, now: Time, job: Job<Number>) -> Result<Submitted, Violation> {
        self.admit(now, job, true)
    }

    /// [`Core::submit_without_shedding`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn submit_without_shedding(
        &mut self,
        now: Time,
        job: Job<Number>,
    ) -> Result<Submitted, Violation> {
        self.admit(now, job, false)
    }

    fn admit(&mut self, now: Time, job: Job<Number>, sheds: bool) -> Result<Submitted, Violation> {
        let before = self.books.begin(now);
        let facts = job.clone();
        let answer = match sheds {
            true => self.core.submit(now, job),
            false => self.core.submit_without_shedding(now, job),
        };
        self.say(now, || {
            format!(
                "submit {facts:?} -> {:?}",
                answer.as_ref().map_err(|refused| (
                    refused.reason,
                    refused.retry_after,
                    refused.booking
                ))
            )
        });
        let shed = self.collect(Some(&facts))?;
        self.books.require(sheds || shed.is_none(), || {
            "a job was shed for a caller that must not shed".into()
        })?;
        match answer {
            Ok(ticket) => {
                self.books.admitted(ticket, &facts, shed, before)?;
                self.close(now)?;
                Ok(Ok(ticket))
            }
            Err(refused) => {
                self.books.refused(&facts, &refused, shed, sheds)?;
                self.close(now)?;
                Ok(Err(Box::new(refused)))
            }
        }
    }

    /// [`Core::next`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn next(&mut self, now: Time) -> Result<Option<Lease<Number>>, Violation> {
        self.books.begin(now);
        let answer = self.core.next(now);
        self.say(now, || {
            format!("next -> {answer:?}, wake at {:?}", self.core.wake_at())
        });
        self.collect(None)?;
        match &answer {
            Some(lease) => self.books.granted(lease)?,
            None => self.books.nothing_granted(self.core.wake_at())?,
        }
        self.close(now)?;
        Ok(answer)
    }

    /// [`Core::finish`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn finish(
        &mut self,
        now: Time,
        lease: Lease<Number>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Result<Settled<Number>, Violation> {
        self.books.begin(now);
        let (number, target, attempt) = (lease.payload, lease.target, lease.attempt);
        let current = self.books.is_current(number, lease.ticket, attempt, target);
        if current {
            self.books.left(number, &outcome);
        }
        let settled = self.core.finish(now, lease, outcome, verdict);
        self.say(now, || {
            format!(
                "finish {number} on {}: {outcome:?} {verdict:?} -> {settled:?}",
                target.index()
            )
        });
        self.collect(None)?;
        self.books
            .settled(number, target, current, &outcome, verdict, &settled)?;
        self.close(now)?;
        Ok(settled)
    }

    /// [`Core::reclaim`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn reclaim(&mut self, now: Time, ticket: Ticket) -> Result<bool, Violation> {
        self.books.begin(now);
        let was_running = self.books.place(ticket) == Some(Place::Running);
        if let Some(number) = self.books.number(ticket).filter(|_| was_running) {
            self.books.left(number, &Outcome::Dropped);
        }
        let answer = self.core.reclaim(now, ticket, Verdict::Unknown);
        self.say(now, || {
            format!("reclaim {:?} -> {answer}", self.books.number(ticket))
        });
        self.collect(None)?;
        self.books.require(answer == was_running, || {
            format!("reclaim said {answer}, the job ran: {was_running}")
        })?;
        if answer {
            self.books.ended(ticket, "failed")?;
            self.books.coverage.note("lease reclaimed");
        }
        self.close(now)?;
        Ok(answer)
    }

    /// [`Core::cancel`], checked.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) -> Result<(), Violation> {
        self.books.begin(now);
        let answer = self.core.cancel(now, ticket);
        self.say(now, || {
            format!("cancel {:?} -> {answer:?}", self.books.number(ticket))
        });
        self.collect(None)?;
        self.books.cancelled(ticket, &answer)?;
        if let Cancelled::Removed(_) = answer {
            self.books.ended(ticket, "cancelled")?;
        }
        self.close(now)
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
        self.books.begin(now);
        self.say(now, || format!("set target {}: {state:?}", target.index()));
        self.core.set_target(now, target, state);
        self.collect(None)?;
        let state = match state {
            TargetState::Suspended { until } if until <= self.books.now => TargetState::Probation,
            state => state,
        };
        let known = self.books.target_state(target);
        self.books.require(known == state, || {
            format!("target set to {state:?} is {known:?}")
        })?;
        self.close(now)
    }

    /// [`Core::pause`].
    pub fn pause(&mut self) {
        self.core.pause();
        self.books.paused = true;
    }

    /// [`Core::resume`].
    pub fn resume(&mut self) {
        self.core.resume();
        self.books.paused = false;
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
        self.books.begin(now);
        let answer = self.core.reconfigure(now, config);
        self.say(now, || {
            format!("reconfigure {:?} -> {answer:?}", self.core.config())
        });
        if answer.is_ok() {
            self.books.reconfigured(self.core.config().clone());
        }
        self.collect(None)?;
        if answer.is_ok() {
            self.books.refitted();
        }
        self.close(now)?;
        Ok(answer)
    }

    /// [`Core::drain`], checked: every job that does not run is returned.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn drain(&mut self, now: Time) -> Result<(), Violation> {
        self.books.begin(now);
        self.core.drain(now);
        self.books.draining = true;
        self.collect(None)?;
        self.books.only_running_left()?;
        self.close(now)
    }

    /// Checks that nothing is left and that the statistics of the core agree with the model.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn audit_end(&mut self) -> Result<(), Violation> {
        self.books.nothing_left()?;
        self.books.compare(&self.core.inspect())
    }

    /// Applies the events to the model. Returns the job that was shed, if any.
    fn collect(&mut self, arrival: Option<&Job<Number>>) -> Result<Option<Number>, Violation> {
        let mut shed = None;
        while let Some(event) = self.core.poll_event() {
            if let Event::Shed { job, .. } = &event {
                self.books.shed(job, arrival)?;
                shed = Some(job.payload);
            }
            self.say(self.books.now, || format!("  event {event:?}"));
            self.books.event(&event)?;
            self.events.push(event);
        }
        Ok(shed)
    }

    /// Checks the invariants that hold after every call, among them that a driver that sleeps until
    /// `wake_at` never spins.
    fn close(&mut self, now: Time) -> Result<(), Violation> {
        self.books.due(now);
        let now = self.books.now;
        if let Some(wake) = self.core.wake_at().filter(|wake| *wake <= now) {
            self.books.begin(now);
            self.core.advance(now);
            let events = self.events.len();
            self.collect(None)?;
            self.books.due(now);
            let later = self.core.wake_at().is_none_or(|wake| wake > now);
            self.books
                .require(later || self.events.len() > events, || {
                    format!("wake-up set at {wake}, but nothing happens then")
                })?;
        }
        self.books.nothing_overdue()?;
        self.books.compare_sizes(
            self.core.waiting(),
            self.core.delayed(),
            self.core.running(),
        )
    }
}
