//! Random walks over all operations of a core, from a seed.
//!
//! Each seed has its own policy, classes, flows, target sets, caps, rates, rounds, reloads,
//! cancellations, lost leases, and a clock that sometimes jumps and sometimes goes back. The core
//! is [`Audited`]: a walk succeeds, or returns the guarantee that was violated.

mod choices;
mod local;
mod sides;

use crate::audit::{Audited, Coverage, JobNumber, Violation};
use choices::Choices;
use headworks_core::{
    Bound, Class, ClassConfig, Config, Cost, Disabled, Domain, Fault, Flow, FlowConfig, Job, Key,
    Lease, Limits, OnSuspend, Outcome, Policy, Rate, TargetConfig, TargetId, TargetSet,
    TargetState, Ticket, Time, Verdict,
};
use sides::Sides;
use std::time::Duration;

/// Walks `steps` steps from a seed and returns the coverage.
///
/// # Errors
/// The guarantee that was violated.
pub fn walk(seed: u64, steps: u32) -> Result<Coverage, Violation> {
    Walk::new(seed, Choices::seeded(seed)).walk(steps)
}

/// Walks while there are bytes to choose by. A fuzzer reaches walks this way that no seed takes.
///
/// ```
/// use headworks_sim::chaos;
///
/// let bytes: Vec<u8> = (0..=255).collect();
/// let coverage = chaos::walk_from_bytes(&bytes).unwrap();
/// assert!(coverage.iter().count() > 0);
/// ```
///
/// # Errors
/// The guarantee that was violated.
pub fn walk_from_bytes(bytes: &[u8]) -> Result<Coverage, Violation> {
    Walk::new(0, Choices::read(bytes)).walk(u32::MAX)
}

/// A walk in which almost every job is of a flow that was not seen before.
///
/// # Errors
/// The guarantee that was violated.
pub fn churn(seed: u64, steps: u32) -> Result<Coverage, Violation> {
    let mut walk = Walk::new(seed, Choices::seeded(seed));
    walk.flows = MANY_FLOWS;
    for _ in 0..steps {
        walk.step()?;
        walk.serve_newcomers()?;
    }
    walk.end()
}

/// The same walk, with every call and result printed to stderr.
///
/// # Errors
/// The guarantee that was violated.
pub fn replay(seed: u64, steps: u32) -> Result<Coverage, Violation> {
    let mut walk = Walk::new(seed, Choices::seeded(seed));
    eprintln!("{:#?}", walk.config);
    walk.core.enable_trace();
    walk.walk(steps)
}

/// Many more than the core remembers before it looks for those without jobs.
const MANY_FLOWS: u64 = 20_000;

struct Walk {
    rng: Choices,
    core: Audited,
    config: Config,
    sets: Vec<TargetSet>,
    now: Time,
    numbers: JobNumber,
    leases: Vec<Lease<JobNumber>>,
    lost: Vec<Lease<JobNumber>>,
    tickets: Vec<Ticket>,
    refused: Vec<Job<JobNumber>>,
    /// The two sides of a tree, walked in rounds.
    sides: Sides,
    /// Whether estimates are wrong in this walk.
    wrong_estimates: bool,
    /// The number of flows: a few that compete, or hundreds that come and go.
    flows: u64,
}

impl Walk {
    fn new(seed: u64, mut rng: Choices) -> Self {
        let config = config(&mut rng, seed);
        let mut core = Audited::new(config.clone(), Time::ZERO).expect("made to be right");
        let sets = sets(&mut rng, &mut core, config.targets.len());
        let wrong_estimates = rng.below(2) == 0;
        let flows = if rng.below(4) == 0 { 300 } else { 4 };
        let sides = Sides::new(&mut rng);
        Walk {
            rng,
            core,
            config,
            sets,
            now: Time::ZERO,
            numbers: 0,
            leases: Vec::new(),
            lost: Vec::new(),
            tickets: Vec::new(),
            refused: Vec::new(),
            sides,
            wrong_estimates,
            flows,
        }
    }

    fn walk(mut self, steps: u32) -> Result<Coverage, Violation> {
        for _ in 0..steps {
            if self.rng.is_spent() {
                break;
            }
            self.step()?;
        }
        self.end()
    }

    /// Takes one step and applies its consequences to the nodes among the jobs.
    fn step(&mut self) -> Result<(), Violation> {
        self.act()?;
        for (number, how) in self.core.take_ended() {
            self.sides
                .ended(self.now, number, how == "done", &mut self.rng)?;
        }
        for note in std::mem::take(&mut self.sides.notes) {
            self.core.note(note);
        }
        Ok(())
    }

    fn act(&mut self) -> Result<(), Violation> {
        match self.rng.below(100) {
            0..34 => self.submit(),
            34..58 => self.lease(),
            58..80 => self.finish(),
            80..91 => self.wait(),
            91..94 => self.cancel(),
            94..95 => self.lose_worker(),
            95..96 => self.change_target(),
            96..97 if self.rng.below(2) == 0 => self.set_limits(),
            96..97 => self.reload(),
            97..98 => self.return_with_a_booking(),
            98..99 => {
                self.core.pause();
                Ok(())
            }
            _ => {
                self.core.resume();
                Ok(())
            }
        }
    }

    fn submit(&mut self) -> Result<(), Violation> {
        for _ in 0..=self.rng.below(3) {
            let job = self.job();
            if self.rng.below(3) == 0 && !self.sides.next(self.now, job.payload)? {
                continue;
            }
            self.submit_job(job)?;
        }
        Ok(())
    }

    fn submit_job(&mut self, job: Job<JobNumber>) -> Result<(), Violation> {
        let answer = match self.rng.below(8) {
            0 => self.core.submit_without_shedding(self.now, job)?,
            _ => self.core.submit(self.now, job)?,
        };
        match answer {
            Ok(ticket) => self.tickets.push(ticket),
            Err(refused) => {
                let mut job = refused.job;
                self.sides
                    .ended(self.now, job.payload, false, &mut self.rng)?;
                job.booking = refused.booking;
                self.refused.push(job);
                if self.refused.len() > 8 {
                    self.refused.remove(0);
                }
            }
        }
        Ok(())
    }

    /// Time passes and a target serves. Two more jobs come, and as many that wait are done.
    fn serve_newcomers(&mut self) -> Result<(), Violation> {
        self.now += millis(200);
        // A walk that is paused or without targets for long would see few flows.
        self.core.resume();
        let target = TargetId::new(self.rng.below(self.config.targets.len() as u64) as u32);
        self.core
            .set_target(self.now, target, TargetState::Active)?;
        for _ in 0..2 {
            let job = self.job();
            self.submit_job(job)?;
            if let Some(lease) = self.core.next(self.now)? {
                self.core
                    .finish(self.now, lease, Outcome::DONE, Verdict::Fine)?;
            }
        }
        Ok(())
    }

    fn job(&mut self) -> Job<JobNumber> {
        self.numbers += 1;
        let rng = &mut self.rng;
        let classes = self.config.classes.len() as u64;
        // Now and then a class that does not exist.
        let one_too_many = u64::from(rng.below(50) == 0);
        let mut job = Job::new(self.numbers)
            .class(Class(rng.below(classes + one_too_many) as u8))
            .flow(Flow(rng.below(self.flows)))
            .cost(Cost(if rng.below(8) == 0 {
                rng.below(400)
            } else {
                1 + rng.below(20)
            }))
            .targets(self.sets[rng.below(self.sets.len() as u64) as usize]);
        if rng.below(4) == 0 {
            // Few keys, so that duplicates are frequent.
            job = job.key(Key(u128::from(rng.below(12))));
        }
        if rng.below(4) == 0 {
            job = job.delay_key(Key(u128::from(rng.below(4))));
        }
        if rng.below(6) == 0 {
            job = job.start_at(self.now + millis(rng.below(4000)));
        }
        if rng.below(5) == 0 {
            job = job.expire_at(self.now + millis(rng.below(6000)));
        }
        if rng.below(5) == 0 {
            job = job.attempts(1 + rng.below(4) as u32);
        }
        job
    }

    fn lease(&mut self) -> Result<(), Violation> {
        for _ in 0..=self.rng.below(6) {
            match self.core.next(self.now)? {
                Some(lease) => self.leases.push(lease),
                None => break,
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Violation> {
        // A worker that was given up comes back with a lease that must not count.
        if self.rng.below(20) == 0 && !self.lost.is_empty() {
            let lease = self.lost.swap_remove(0);
            self.core
                .finish(self.now, lease, Outcome::DONE, Verdict::Fine)?;
        }
        if self.leases.is_empty() {
            return Ok(());
        }
        let index = self.rng.below(self.leases.len() as u64) as usize;
        let lease = self.leases.swap_remove(index);
        let outcome = self.outcome(&lease);
        let verdict = self.verdict();
        self.core.finish(self.now, lease, outcome, verdict)?;
        Ok(())
    }

    fn outcome(&mut self, lease: &Lease<JobNumber>) -> Outcome {
        let rng = &mut self.rng;
        let fault = if rng.below(3) == 0 {
            Fault::Overload
        } else {
            Fault::Temporary
        };
        match rng.below(16) {
            0..2 => Outcome::Retry {
                fault,
                random: rng.next_u64(),
            },
            2 => Outcome::RetryAt {
                fault,
                at: Time::from_nanos(
                    (self.now + millis(rng.below(3000)))
                        .as_nanos()
                        .saturating_sub(500_000_000),
                ),
            },
            3..5 => Outcome::Elsewhere,
            5 => Outcome::Failed,
            6 if rng.below(2) == 0 => Outcome::Dropped,
            6 => Outcome::Unused,
            7..11 if self.wrong_estimates => Outcome::Done {
                cost: Some(Cost(rng.below(2 * lease.cost.0 + 2))),
            },
            _ => Outcome::DONE,
        }
    }

    fn verdict(&mut self) -> Verdict {
        match self.rng.below(40) {
            0..4 => Verdict::Fault,
            4 => Verdict::Overload {
                until: self.now + millis(self.rng.below(5000)),
            },
            5 if self.rng.below(4) == 0 => Verdict::Gone,
            6 => Verdict::Unknown,
            _ => Verdict::Fine,
        }
    }

    /// Lets time pass: a little, until just before or exactly at the wake-up time of the core, by a
    /// jump, or backwards.
    fn wait(&mut self) -> Result<(), Violation> {
        match self.rng.below(10) {
            0..4 => self.now += millis(self.rng.below(300)),
            4..8 => return self.wait_for_wake(),
            8 => self.now += millis(self.rng.below(60_000)),
            _ => {
                self.now = Time::from_nanos(
                    self.now
                        .as_nanos()
                        .saturating_sub(self.rng.below(2_000_000_000)),
                );
            }
        }
        Ok(())
    }

    /// Checks that nothing changes before the wake-up time.
    fn wait_for_wake(&mut self) -> Result<(), Violation> {
        while let Some(lease) = self.core.next(self.now)? {
            self.leases.push(lease);
        }
        self.core.take_events();
        let Some(wake) = self.core.wake_at().filter(|wake| *wake > self.now) else {
            return Ok(());
        };
        if self.rng.below(2) == 0 {
            // A wake-up that is too late shows as work that could be done before it.
            let just_before = Time::from_nanos(wake.as_nanos() - 1);
            let granted = self.core.next(just_before)?;
            let events = self.core.take_events();
            if granted.is_some() || !events.is_empty() {
                return Err(Violation {
                    at: just_before,
                    what: format!("woken at {wake}, but before that came {granted:?} {events:?}"),
                });
            }
        }
        self.now = wake;
        Ok(())
    }

    fn cancel(&mut self) -> Result<(), Violation> {
        if self.tickets.is_empty() {
            return Ok(());
        }
        let ticket = self.tickets[self.rng.below(self.tickets.len() as u64) as usize];
        self.core.cancel(self.now, ticket)
    }

    /// Loses a worker with its lease; the lease may be returned later.
    fn lose_worker(&mut self) -> Result<(), Violation> {
        if let Some(lease) = self.leases.pop() {
            self.core.reclaim(self.now, lease.ticket)?;
            self.lost.push(lease);
        }
        Ok(())
    }

    fn change_target(&mut self) -> Result<(), Violation> {
        let target = TargetId::new(self.rng.below(self.config.targets.len() as u64) as u32);
        let state = match self.rng.below(5) {
            0 => TargetState::Disabled {
                reason: Disabled::Operator,
            },
            1 => TargetState::Suspended {
                until: self.now + millis(1 + self.rng.below(4000)),
            },
            2 => TargetState::Probation,
            _ => TargetState::Active,
        };
        self.core.set_target(self.now, target, state)
    }

    fn reload(&mut self) -> Result<(), Violation> {
        let seed = self.rng.next_u64();
        let mut new = config(&mut self.rng, seed);
        while new.classes.len() < self.config.classes.len() {
            new.classes.push(ClassConfig::weight(1));
        }
        new.targets
            .resize(self.config.targets.len(), TargetConfig::default());
        new.on_suspend = self.config.on_suspend;
        if self.core.reconfigure(self.now, new.clone())?.is_ok() {
            self.config = new;
        }
        Ok(())
    }

    fn set_limits(&mut self) -> Result<(), Violation> {
        let local = local::limits(&mut self.rng, &self.config);
        self.core.set_limits(self.now, local)
    }

    fn return_with_a_booking(&mut self) -> Result<(), Violation> {
        if self.refused.is_empty() {
            return Ok(());
        }
        let mut job = self.refused.remove(0);
        self.numbers += 1;
        job.payload = self.numbers;
        self.submit_job(job)
    }

    /// Drains, returns every lease, and checks that nothing is left.
    fn end(mut self) -> Result<Coverage, Violation> {
        self.core.drain(self.now)?;
        let job = self.job();
        self.submit_job(job)?;
        while let Some(lease) = self.leases.pop() {
            let outcome = self.outcome(&lease);
            self.core.finish(self.now, lease, outcome, Verdict::Fine)?;
        }
        self.core.audit_end()?;
        Ok(self.core.coverage().clone())
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn sets(rng: &mut Choices, core: &mut Audited, targets: usize) -> Vec<TargetSet> {
    let mut sets = Vec::new();
    for target in 0..targets as u32 {
        sets.push(core.targets(&[TargetId::new(target)]).expect("it exists"));
    }
    for _ in 0..rng.below(4) {
        let some: Vec<TargetId> = (0..targets as u32)
            .filter(|_| rng.below(2) == 0)
            .map(TargetId::new)
            .collect();
        sets.extend(core.targets(&some).ok());
    }
    sets
}

fn limits(rng: &mut Choices) -> Limits {
    let rate = |rng: &mut Choices, least: u64, most: u64| {
        (rng.below(4) == 0).then(|| {
            let rate = Rate::per_second((least + rng.below(most)) as f64 / 2.0);
            if rng.below(2) == 0 {
                rate.with_burst(Cost(1 + rng.below(most)))
            } else {
                rate
            }
        })
    };
    Limits {
        concurrent: (rng.below(2) == 0).then(|| 1 + rng.below(6) as u32),
        requests: rate(rng, 1, 40),
        cost: rate(rng, 10, 400),
        max_cost: (rng.below(8) == 0).then(|| Cost(20 + rng.below(300))),
    }
}

fn config(rng: &mut Choices, seed: u64) -> Config {
    let classes = 1 + rng.below(5) as usize;
    let places = 3 + rng.below(20) as usize;
    let shared = rng.below(2) == 0;
    let aging = (rng.below(3) == 0).then(|| millis(200 + rng.below(1000)));
    let mut config = Config {
        policy: Policy::ALL[rng.below(Policy::ALL.len() as u64) as usize],
        bound: if shared {
            Bound::Shared(places)
        } else {
            Bound::PerClass(places)
        },
        delayed_bound: 2 + rng.below(10) as usize,
        bookings: rng.below(2) as usize * 4,
        limits: limits(rng),
        default_flow: FlowConfig {
            weight: 1,
            limits: limits(rng),
        },
        max_waiting: (rng.below(4) != 0).then_some(1000),
        on_suspend: [OnSuspend::Keep, OnSuspend::Delay, OnSuspend::End][rng.below(3) as usize],
        refuse_unreachable: rng.below(4) == 0,
        postpone_by: millis(rng.below(3) * 250),
        seed,
        ..Config::default()
    };
    config.classes = (0..classes)
        .map(|_| ClassConfig {
            aging,
            ..ClassConfig::weight(1 + rng.below(8) as u32)
        })
        .collect();
    if rng.below(4) == 0 && classes > 1 {
        config.classes[0].displaces = Some(Class(classes as u8 - 1));
    }
    config.flows.insert(
        Flow(1),
        FlowConfig {
            weight: 1 + rng.below(5) as u32,
            limits: limits(rng),
        },
    );
    let domains = 1 + rng.below(3);
    for _ in 0..1 + rng.below(4) {
        let limits = limits(rng);
        config.targets.push(TargetConfig {
            weight: 1 + rng.below(3) as u32,
            limits,
            fault_threshold: 3,
            suspend_for: millis(800),
            enabled: rng.below(16) != 0,
            domain: Domain(rng.below(domains) as u16),
        });
    }
    config
}
