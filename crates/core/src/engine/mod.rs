//! The engine: a state machine that composes the parts.
//!
//! [`Core`] owns every job from `submit` to its end. It is driven by calls that carry the time,
//! answers each with a decision, and never blocks, reads a clock or draws a random number. Each
//! part owns its state and knows nothing of the others; what they have to do together is here, one
//! file per kind of call:
//!
//! | file | question |
//! |---|---|
//! | `admit` | may this job wait? |
//! | `places` | how many places are taken, and by which flows? |
//! | `shed` | which job gives its place up for an arrival? |
//! | `predict` | how long would it wait, and when should it try again? |
//! | `idle_flows` | when is a flow made, and when forgotten? |
//! | `select` | which job goes next, and to which target? |
//! | `gates` | what happens when a gate shuts or opens? |
//! | `queueing` | how does a job enter and leave its lane? |
//! | `settle` | what becomes of a job whose lease is given back? |
//! | `health` | what does a target's new state mean for the jobs that wait for it? |
//! | `timers` | what happens because time has passed? |
//! | `control` | pause, drain, new settings |
//! | `local` | limits and weights that replace the configured ones |

mod admit;
mod control;
mod gates;
mod health;
mod idle_flows;
mod inspect;
mod local;
mod places;
mod predict;
mod queueing;
mod select;
mod settle;
mod shed;
mod timers;

pub use inspect::{ClassView, DemandView, FlowView, TargetView, View};

use crate::blocked::Blocked;
use crate::classes::Classes;
use crate::config::{Bound, Config, ConfigError, TargetConfig};
use crate::delayed::Delayed;
use crate::event::{Event, Refused};
use crate::flows::Flows;
use crate::forecast::Forecast;
use crate::gate::Gate;
use crate::id::{FlowId, Key, Ticket};
use crate::job::{Cancelled, Job, Lease};
use crate::jobs::{JobState, Jobs};
use crate::lanes::Lanes;
use crate::local_limits::LocalLimits;
use crate::occupancy::Occupancy;
use crate::targets::Targets;
use crate::time::Time;
use crate::wheel::Wheel;
use admit::Shedding;
use foldhash::fast::FixedState;
use std::collections::VecDeque;
use timers::Timer;

/// The scheduling core. `P` is the payload of its jobs.
///
/// ```
/// use headworks_core::{Class, Config, Core, Job, Outcome, Settled, Time, Verdict};
///
/// let mut core = Core::new(Config::default(), Time::ZERO)?;
/// core.submit(Time::ZERO, Job::new("bulk").class(Class(8))).expect("there is room");
/// core.submit(Time::ZERO, Job::new("chat").class(Class(0))).expect("there is room");
///
/// let lease = core.next(Time::from_millis(1)).expect("nothing is limited");
/// assert_eq!(lease.payload, "chat");
/// let settled = core.finish(Time::from_millis(2), lease, Outcome::DONE, Verdict::Fine);
/// assert_eq!(settled, Settled::Done("chat"));
/// # Ok::<(), headworks_core::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Core<P> {
    config: Config,
    now: Time,
    jobs: Jobs<P>,
    lanes: Lanes,
    classes: Classes,
    flows: Flows,
    targets: Targets,
    blocked: Blocked,
    delayed: Delayed,
    /// The places of a bound over all classes, by flow; counted with a bound per class as well.
    occupancy: Occupancy<FlowId>,
    /// For a bound over all classes.
    forecast: Forecast,
    /// Limits and weights that replace the configured ones.
    local: LocalLimits,
    /// The limits over everything.
    gate: Gate,
    /// When the gate over everything admits the job that the last selection stopped at.
    gate_opens_at: Option<Time>,
    running: u64,
    /// Targets whose cost bucket is reserved.
    reservations: usize,
    /// Grants since the last aged one.
    since_aged: u32,
    paused: bool,
    draining: bool,
    timers: Wheel<Timer>,
    due: Vec<(Time, Timer)>,
    events: VecDeque<Event<P>>,
}

impl<P> Core<P> {
    /// A core without jobs.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(mut config: Config, now: Time) -> Result<Self, ConfigError> {
        config.check()?;
        if config.targets.is_empty() {
            config.targets.push(TargetConfig::default());
        }
        let hasher = FixedState::with_seed(config.seed);
        let mut core = Core {
            now,
            jobs: Jobs::new(hasher.clone()),
            lanes: Lanes::new(hasher.clone()),
            classes: Classes::new(config.policy, hasher.clone()),
            flows: Flows::new(hasher.clone()),
            targets: Targets::new(hasher.clone()),
            blocked: Blocked::default(),
            delayed: Delayed::new(hasher),
            occupancy: Occupancy::default(),
            forecast: Forecast::new(config.bookings),
            local: LocalLimits::default(),
            gate: Gate::new(config.limits, now),
            gate_opens_at: None,
            running: 0,
            reservations: 0,
            since_aged: 0,
            paused: false,
            draining: false,
            timers: Wheel::new(),
            due: Vec::new(),
            events: VecDeque::new(),
            config,
        };
        core.apply_classes();
        for index in 0..core.config.targets.len() {
            core.targets.add(core.config.targets[index], now);
        }
        Ok(core)
    }

    /// Submits a job. It is admitted, to be leased in its turn; or it is refused and handed back,
    /// with the reason and, where trying again helps, when.
    ///
    /// # Errors
    /// The refusal.
    pub fn submit(&mut self, now: Time, job: Job<P>) -> Result<Ticket, Refused<P>> {
        self.admit(now, job, Shedding::Allowed)
    }

    /// Submits a job that takes nobody's place: where another job would have to be shed for it, it
    /// is refused. A refusal books nothing.
    ///
    /// # Errors
    /// The refusal.
    pub fn submit_without_shedding(
        &mut self,
        now: Time,
        job: Job<P>,
    ) -> Result<Ticket, Refused<P>> {
        self.admit(now, job, Shedding::Never)
    }

    /// The one job that should run now, and where; `None` when none may.
    ///
    /// Call it until it answers `None`, and again after every other call and at
    /// [`wake_at`](Self::wake_at).
    pub fn next(&mut self, now: Time) -> Option<Lease<P>> {
        let now = self.tick(now);
        let selected = self.select(now)?;
        Some(self.grant(now, selected))
    }

    /// Moves time on without asking for a job: what is due happens, and events tell of it.
    pub fn advance(&mut self, now: Time) {
        self.tick(now);
    }

    /// Takes a job back if it has not begun; one that runs is left alone.
    pub fn withdraw(&mut self, now: Time, ticket: Ticket) -> Cancelled<P> {
        match self.jobs.get(ticket).map(|entry| entry.state) {
            Some(JobState::Running(_)) => Cancelled::Running,
            _ => self.cancel(now, ticket),
        }
    }

    /// Takes a job back. One that runs goes on until its lease is finished; its handler is for the
    /// driver to signal.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) -> Cancelled<P> {
        let now = self.tick(now);
        match self.jobs.get(ticket).map(|entry| entry.state) {
            None => Cancelled::Ended,
            // Its slot is in use until the work has stopped, so it keeps its lease.
            Some(JobState::Running(_)) => {
                self.jobs[ticket.job].cancel_running();
                Cancelled::Running
            }
            Some(_) => {
                let job = self.end_unleased(now, ticket.job);
                self.classes.stats_mut(job.class).ended.cancelled += 1;
                Cancelled::Removed(job)
            }
        }
    }

    /// The next thing that happened to a job or target outside the caller's own calls.
    pub fn poll_event(&mut self) -> Option<Event<P>> {
        self.events.pop_front()
    }

    /// When time alone will change the answer of [`next`](Self::next) or bring an event.
    ///
    /// Later than the time of the last call, or the next call of `next` or
    /// [`advance`](Self::advance) at that time changes something: a driver that sleeps until then
    /// never spins. After cancellations it may be early.
    #[must_use]
    pub fn wake_at(&self) -> Option<Time> {
        let timer = self.timers.next_at();
        let waits = !self.paused && !self.limits_have_ended() && self.waiting() > 0;
        let gate = self.gate_opens_at.filter(|_| waits);
        [timer, gate].into_iter().flatten().min()
    }

    /// The live job with that key.
    #[must_use]
    pub fn find(&self, key: Key) -> Option<Ticket> {
        self.jobs.find(key).map(|job| self.jobs.ticket(job))
    }

    fn shares_bound(&self) -> bool {
        matches!(self.config.bound, Bound::Shared(_))
    }
}
