//! The core itself.
//!
//! [`Core`] owns every job from `submit` to its end. It is driven by calls that carry the time, and it
//! answers each with a decision; it never blocks, reads a clock, draws a random number or allocates for a job
//! beyond the job itself once its tables have grown. The choice of the next job is in `choose`, what may wait in
//! `admit` and who gives way in `shed`, where lanes stand while their gates are shut in `park`, the targets' health in `health`.

mod admit;
mod choose;
mod control;
mod delay;
mod finish;
mod flows;
mod health;
mod inspect;
mod lanes;
mod locate;
mod park;
mod parts;
mod shed;
mod tags;
mod timers;

pub use inspect::{ClassView, FlowView, TargetView, View};

use crate::config::{Bound, ClassConfig, Config, ConfigError};
use crate::event::{Event, Refused};
use crate::forecast::Forecast;
use crate::gate::Gate;
use crate::id::{Key, Ticket};
use crate::index::Index;
use crate::job::{Cancelled, Job, Lease};
use crate::table::Table;
use crate::target::Target;
use crate::time::Time;
use crate::wheel::Wheel;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parts::{Bay, ClassState, Entry, FlowState, Holders, Lane, Later, Queue, Spot, State, Timer};
use std::collections::VecDeque;
use tags::{Resting, Tag};

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
/// assert_eq!(core.finish(Time::from_millis(2), lease, Outcome::DONE, Verdict::Fine), Settled::Done("chat"));
/// # Ok::<(), headworks_core::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Core<P> {
    config: Config,
    now: Time,
    serial: u64,
    jobs: Table<Entry<P>>,
    /// By job, as far as any was delayed or had a delay key.
    later: Vec<Later>,
    lanes: Table<Lane>,
    /// The position of each lane in the heap that it is in. Kept apart, as that of queues.
    lane_at: Vec<u32>,
    lane_spots: Vec<Spot>,
    queues: Table<Queue>,
    /// The position of each queue among its class's. Kept apart, because every change of order moves several.
    queue_at: Vec<u32>,
    flows: Table<FlowState>,
    /// The tags of flows in the classes in which they have no queue.
    resting: Resting,
    classes: Vec<ClassState>,
    /// The tags of the classes. Side by side, because a choice looks at all that are live.
    tags: Vec<Tag>,
    targets: Vec<Target>,
    bays: Vec<Bay>,
    /// The virtual time of the classes.
    clock: Tag,
    /// The classes that may have an open lane.
    live: u64,
    gate: Gate,
    /// When the gate over everything opens, if that is what stopped the last `next`.
    gate_at: Option<Time>,
    holders: Holders,
    forecast: Forecast,
    waiting: u64,
    delayed: u64,
    running: u64,
    since_aged: u32,
    /// The lanes that will probably be granted next in the class that was granted last, and in the one before it.
    expected: [u32; 2],
    /// The classes that have aging.
    aging: u64,
    /// Lanes parked in a bay, and targets whose bucket is saved for a lane.
    parked: u32,
    saved: u32,
    paused: bool,
    draining: bool,
    wheel: Wheel<Timer>,
    due: Vec<(Time, Timer)>,
    events: VecDeque<Event<P>>,
    /// The jobs that have a key, and the delayed ones that hold their delay key.
    keys: Index,
    delay_keys: Index,
    flow_ids: Index,
    hasher: FixedState,
    /// Lanes by queue and bay.
    lane_ids: Index,
    bay_ids: HashMap<Box<[u32]>, u32, FixedState>,
    /// How many jobs may wait for a target that alone can serve them.
    most_alone: usize,
    /// How many flows make it worth looking for idle ones.
    sweep_at: usize,
}

impl<P> Core<P> {
    /// A core without jobs.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(mut config: Config, now: Time) -> Result<Self, ConfigError> {
        config.check()?;
        if config.targets.is_empty() {
            config.targets.push(crate::config::TargetConfig::default());
        }
        let hasher = FixedState::with_seed(config.seed);
        let mut core = Core {
            now,
            serial: 0,
            jobs: Table::default(),
            later: Vec::new(),
            lanes: Table::default(),
            lane_at: Vec::new(),
            lane_spots: Vec::new(),
            queues: Table::default(),
            queue_at: Vec::new(),
            flows: Table::default(),
            resting: Resting::new(config.classes.len()),
            classes: config
                .classes
                .iter()
                .map(|class| ClassState::new(*class, config.bookings))
                .collect(),
            tags: vec![0; config.classes.len()],
            targets: Vec::new(),
            bays: Vec::new(),
            clock: 0,
            live: 0,
            gate: Gate::new(config.limits, now),
            gate_at: None,
            holders: Holders::default(),
            forecast: Forecast::new(config.bookings),
            waiting: 0,
            delayed: 0,
            running: 0,
            since_aged: 0,
            expected: [parts::NIL; 2],
            aging: aging(&config),
            parked: 0,
            saved: 0,
            paused: false,
            draining: false,
            wheel: Wheel::new(),
            due: Vec::new(),
            events: VecDeque::new(),
            keys: Index::default(),
            delay_keys: Index::default(),
            flow_ids: Index::default(),
            hasher: hasher.clone(),
            lane_ids: Index::default(),
            bay_ids: HashMap::with_hasher(hasher),
            most_alone: config.waiting_for_one(),
            sweep_at: 1024,
            config,
        };
        for target in core.config.targets.clone() {
            core.push_target(target);
        }
        Ok(core)
    }

    /// Hands in a job. It is admitted, to be leased in its turn; or it is refused and handed back, with the
    /// reason and, where coming back helps, when.
    ///
    /// # Errors
    /// The refusal.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub fn submit(&mut self, now: Time, job: Job<P>) -> Result<Ticket, Refused<P>> {
        let now = self.tick(now);
        self.admit(now, job)
    }

    /// The one job that should run now, and where; `None` when nothing may.
    ///
    /// Call it until it says `None`, and again after every other call and at [`wake_at`](Self::wake_at).
    pub fn next(&mut self, now: Time) -> Option<Lease<P>> {
        let now = self.tick(now);
        self.choose(now)
    }

    /// Moves time on without asking for a job: what is due happens, and events tell of it.
    pub fn advance(&mut self, now: Time) {
        self.tick(now);
    }

    /// Takes a job back if it has not begun; one that runs is left alone.
    pub fn withdraw(&mut self, now: Time, ticket: Ticket) -> Cancelled<P> {
        match self.entry(ticket).map(|entry| entry.state) {
            Some(State::Running { .. }) => Cancelled::Running,
            _ => self.cancel(now, ticket),
        }
    }

    /// Takes a job back. One that runs goes on until its lease is finished; its handler is for the driver to
    /// signal.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) -> Cancelled<P> {
        let now = self.tick(now);
        let Some(state) = self.entry(ticket).map(|entry| entry.state) else {
            return Cancelled::Ended;
        };
        match state {
            State::Running { .. } => {
                self.jobs[ticket.slot].cancelled = true;
                Cancelled::Running
            }
            State::Waiting | State::Delayed => {
                let job = self.end_unleased(now, ticket.slot);
                self.classes[job.class.index()].stats.ended.cancelled += 1;
                Cancelled::Removed(job)
            }
        }
    }

    /// The next thing that happened to a job or target outside the caller's own calls.
    pub fn poll_event(&mut self) -> Option<Event<P>> {
        self.events.pop_front()
    }

    /// When time alone will change the answer of [`next`](Self::next) or bring an event. Later than the time of the last
    /// call, or the next call changes something; early by a little at worst, after cancellations.
    #[must_use]
    pub fn wake_at(&self) -> Option<Time> {
        let timer = self.wheel.next_at();
        match self.gate_at {
            Some(gate) if !self.paused && self.waiting > 0 => {
                Some(timer.map_or(gate, |timer| timer.min(gate)))
            }
            _ => timer,
        }
    }

    /// The live job with that key.
    #[must_use]
    pub fn find(&self, key: Key) -> Option<Ticket> {
        let has = |slot| self.jobs[slot].key == key;
        let slot = self.keys.find(key.spread(), has)?;
        Some(self.ticket(slot))
    }

    fn entry(&self, ticket: Ticket) -> Option<&Entry<P>> {
        self.jobs
            .look(ticket.slot)
            .filter(|entry| entry.serial == ticket.serial)
    }

    fn ticket(&self, slot: u32) -> Ticket {
        Ticket {
            slot,
            serial: self.jobs[slot].serial,
        }
    }

    #[inline]
    fn shares_bound(&self) -> bool {
        matches!(self.config.bound, Bound::Shared(_))
    }
}

/// The classes that have aging, as bits.
fn aging(config: &Config) -> u64 {
    let has = |(class, config): (usize, &ClassConfig)| u64::from(config.aging.is_some()) << class;
    config.classes.iter().enumerate().map(has).sum()
}
