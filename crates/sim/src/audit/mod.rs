//! A core whose every answer is checked.
//!
//! [`Audited`] passes calls on to a [`Core`] and keeps books of its own, from the calls and the
//! answers alone: it never asks the core what it thinks. An answer that breaks a promise of the
//! design is a [`Violation`].

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

/// A promise that was broken, in words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("at {at}: {what}")]
pub struct Violation {
    /// When.
    pub at: Time,
    /// What.
    pub what: String,
}

/// The payload of audited jobs: a number that the caller gives to one job only.
pub type Number = u64;

/// What became of a submitted job, and the sizes that the books know.
type Submitted = Result<Ticket, Box<Refused<Number>>>;

/// The audited core.
#[derive(Debug)]
pub struct Audited {
    core: Core<Number>,
    books: Books,
    /// Events for the caller, already entered in the books.
    events: Vec<Event<Number>>,
    /// Tells every call and answer on stderr.
    tells: bool,
}

impl Audited {
    /// An audited core.
    ///
    /// # Errors
    /// What the core says of its configuration.
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

    /// Tells every call and answer on stderr from now on, for whoever replays a walk.
    pub fn tell(&mut self) {
        self.tells = true;
    }

    fn say(&self, now: Time, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{now}  {}", what());
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.books.coverage
    }

    /// Events since the last call of this.
    pub fn take_events(&mut self) -> Vec<Event<Number>> {
        std::mem::take(&mut self.events)
    }

    /// Jobs that ended since the last call of this, and how.
    pub fn take_ended(&mut self) -> Vec<(Number, &'static str)> {
        std::mem::take(&mut self.books.just_ended)
    }

    /// Counts something that happened beside the core.
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
    /// What the core says.
    pub fn targets(&mut self, targets: &[TargetId]) -> Result<TargetSet, ConfigError> {
        let set = self.core.targets(targets)?;
        self.books.name_set(set, targets);
        Ok(set)
    }

    /// [`Core::submit`], checked.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn submit(&mut self, now: Time, job: Job<Number>) -> Result<Submitted, Violation> {
        self.admit(now, job, true)
    }

    /// [`Core::submit_without_shedding`], checked.
    ///
    /// # Errors
    /// The promise that was broken.
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
            "a job was shed for a caller who takes nobody's place".into()
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
    /// The promise that was broken.
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
    /// The promise that was broken.
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
    /// The promise that was broken.
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
    /// The promise that was broken.
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
    /// The promise that was broken.
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
    /// The promise that was broken.
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

    /// [`Core::drain`], checked: everything that does not run is handed back.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn drain(&mut self, now: Time) -> Result<(), Violation> {
        self.books.begin(now);
        self.core.drain(now);
        self.books.draining = true;
        self.collect(None)?;
        self.books.only_running_left()?;
        self.close(now)
    }

    /// Checks that nothing is left, and that the core's statistics say what the books say.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn audit_end(&mut self) -> Result<(), Violation> {
        self.books.nothing_left()?;
        self.books.compare(&self.core.inspect())
    }

    /// Enters the events in the books. Says which job was shed, if any.
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

    /// What must hold after every call: among others that a driver that sleeps until `wake_at`
    /// never spins.
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
                    format!("wants to be woken at {wake}, but nothing happens then")
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
