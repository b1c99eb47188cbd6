//! The auditor's books: every job, gate and target, as the calls and answers tell of them.

use super::meter::Meter;
use super::{Coverage, Number, Violation};
use headworks_core::{
    Bound, Class, Config, Cost, Event, Fault, Flow, Job, Key, OnSuspend, Outcome, Settled,
    TargetId, TargetSet, TargetState, Ticket, Time, Verdict, View,
};
use std::collections::BTreeMap;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Delayed,
    Waiting,
    Running,
}

/// What the books know of a live job.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) ticket: Ticket,
    pub(super) place: Place,
    pub(super) class: Class,
    pub(super) flow: Flow,
    pub(super) cost: Cost,
    pub(super) named: TargetSet,
    /// The targets it may go to, in order.
    pub(super) allowed: Vec<u32>,
    pub(super) key: Option<Key>,
    pub(super) delay_key: Option<Key>,
    pub(super) due: Time,
    pub(super) expire_at: Option<Time>,
    /// When it took its place in line, in calls; what joined in the same call is not compared.
    pub(super) joined: u64,
    /// The call in which it last came to its place: what was due even then happens in the next.
    pub(super) moved: u64,
    pub(super) attempts: u32,
    pub(super) used: u32,
    pub(super) grants: u32,
    pub(super) target: u32,
    pub(super) prepaid: bool,
    pub(super) cancelled: bool,
    pub(super) probing: bool,
}

#[derive(Clone, Debug)]
pub(super) struct TargetBook {
    pub(super) state: TargetState,
    pub(super) meter: Meter,
    pub(super) probe: bool,
}

#[derive(Debug)]
pub(super) struct Books {
    pub(super) config: Config,
    pub(super) now: Time,
    pub(super) calls: u64,
    pub(super) jobs: BTreeMap<Number, Record>,
    pub(super) gate: Meter,
    pub(super) flows: BTreeMap<Flow, Meter>,
    pub(super) targets: Vec<TargetBook>,
    pub(super) sets: BTreeMap<TargetSet, Vec<u32>>,
    pub(super) paused: bool,
    pub(super) draining: bool,
    pub(super) booked: u64,
    /// The call of the last reload.
    pub(super) reloaded_in: u64,
    pub(super) coverage: Coverage,
    admitted: u64,
    ended: BTreeMap<&'static str, u64>,
    pub(super) just_ended: Vec<(Number, &'static str)>,
}

impl Books {
    pub(super) fn new(config: Config, now: Time) -> Self {
        let targets = config.targets.iter().map(|target| TargetBook {
            state: if target.enabled {
                TargetState::Active
            } else {
                TargetState::Disabled {
                    reason: headworks_core::Disabled::Configured,
                }
            },
            meter: Meter::new(target.limits, now),
            probe: false,
        });
        Books {
            targets: targets.collect(),
            gate: Meter::new(config.limits, now),
            config,
            now,
            calls: 0,
            jobs: BTreeMap::new(),
            flows: BTreeMap::new(),
            sets: BTreeMap::new(),
            paused: false,
            draining: false,
            booked: 0,
            reloaded_in: 0,
            coverage: Coverage::default(),
            admitted: 0,
            ended: BTreeMap::new(),
            just_ended: Vec::new(),
        }
    }

    pub(super) fn require(
        &self,
        holds: bool,
        what: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if holds {
            Ok(())
        } else {
            Err(Violation {
                at: self.now,
                what: what(),
            })
        }
    }

    /// A call begins: time moves on, and the jobs waiting then are counted.
    pub(super) fn begin(&mut self, now: Time) -> usize {
        if now < self.now {
            self.coverage.note("clock went back");
        }
        self.now = self.now.max(now);
        self.calls += 1;
        self.waiting().count()
    }

    pub(super) fn name_set(&mut self, set: TargetSet, targets: &[TargetId]) {
        let mut ids: Vec<u32> = targets.iter().map(|target| target.index() as u32).collect();
        ids.sort_unstable();
        ids.dedup();
        self.sets.insert(set, ids);
    }

    /// The targets of a set that could ever serve that cost.
    pub(super) fn fitting(&self, set: TargetSet, cost: Cost) -> Vec<u32> {
        let fits = |target: &u32| {
            self.targets
                .get(*target as usize)
                .is_some_and(|target| target.meter.fits(cost))
        };
        self.sets
            .get(&set)
            .into_iter()
            .flatten()
            .copied()
            .filter(fits)
            .collect()
    }

    pub(super) fn flow_meter(&mut self, flow: Flow) -> &mut Meter {
        let limits = self
            .config
            .flows
            .get(&flow)
            .unwrap_or(&self.config.default_flow)
            .limits;
        let now = self.now;
        self.flows
            .entry(flow)
            .or_insert_with(|| Meter::new(limits, now))
    }

    pub(super) fn flow_weight(&self, flow: Flow) -> u64 {
        u64::from(
            self.config
                .flows
                .get(&flow)
                .unwrap_or(&self.config.default_flow)
                .weight,
        )
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Number, &Record)> {
        self.jobs
            .iter()
            .filter(|(_, record)| record.place == Place::Waiting)
    }

    /// Jobs that hold places of the bound that a class is under.
    pub(super) fn held(&self, class: Class) -> impl Iterator<Item = (&Number, &Record)> {
        let shared = matches!(self.config.bound, Bound::Shared(_));
        self.waiting()
            .filter(move |(_, record)| shared || record.class == class)
    }

    pub(super) fn number(&self, ticket: Ticket) -> Option<Number> {
        self.jobs
            .iter()
            .find(|(_, record)| record.ticket == ticket)
            .map(|(number, _)| *number)
    }

    pub(super) fn place(&self, ticket: Ticket) -> Option<Place> {
        self.number(ticket).map(|number| self.jobs[&number].place)
    }

    pub(super) fn target_state(&self, target: TargetId) -> TargetState {
        self.targets[target.index()].state
    }

    /// When a set's first target is usable: `None` if one is, the end of time if all are disabled.
    pub(super) fn usable_at(&self, targets: &[u32]) -> Option<Time> {
        let at = |target: &u32| match self.targets[*target as usize].state {
            TargetState::Suspended { until } => until,
            TargetState::Disabled { .. } => Time::MAX,
            _ => Time::ZERO,
        };
        targets.iter().map(at).min().filter(|at| *at > Time::ZERO)
    }

    pub(super) fn enter(&mut self, ticket: Ticket, job: &Job<Number>) {
        let allowed = self.fitting(job.targets, job.cost);
        let mut due = job.start_at.filter(|at| *at > self.now);
        if self.config.on_suspend == OnSuspend::Delay {
            due = due.max(self.usable_at(&allowed));
        }
        self.flow_meter(job.flow);
        self.admitted += 1;
        self.jobs.insert(
            job.payload,
            Record {
                ticket,
                place: if due.is_some() {
                    Place::Delayed
                } else {
                    Place::Waiting
                },
                class: job.class,
                flow: job.flow,
                cost: job.cost,
                named: job.targets,
                allowed,
                key: job.key,
                delay_key: job.delay_key,
                due: due.unwrap_or(self.now),
                expire_at: job.expire_at,
                joined: 2 * self.calls + 1,
                moved: self.calls,
                attempts: job.attempts.unwrap_or(self.config.attempts).max(1),
                used: 0,
                grants: 0,
                target: 0,
                prepaid: false,
                cancelled: false,
                probing: false,
            },
        );
    }

    /// A lease is given back: its job leaves the gates.
    pub(super) fn left(&mut self, number: Number, outcome: &Outcome) {
        let now = self.now;
        let Record {
            flow,
            cost,
            target,
            probing,
            ..
        } = self.jobs[&number].clone();
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
        let actual = match outcome {
            Outcome::Done { cost } => *cost,
            Outcome::Unused => Some(Cost(0)),
            _ => None,
        };
        match (outcome, actual) {
            (_, Some(actual)) => {
                let more = actual.0 as f64 - cost.0 as f64;
                self.flow_meter(flow);
                for meter in [
                    &mut self.gate,
                    self.flows.get_mut(&flow).expect("just made"),
                    &mut self.targets[target].meter,
                ] {
                    meter.add_cost(now, -more);
                }
            }
            (Outcome::Elsewhere, None) => self.targets[target].meter.add_cost(now, cost.0 as f64),
            _ => {}
        }
    }

    pub(super) fn settled(
        &mut self,
        number: Number,
        target: TargetId,
        current: bool,
        outcome: &Outcome,
        verdict: Verdict,
        settled: &Settled<Number>,
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
        let spent = record.used >= record.attempts;
        let unfit = self.fitting(record.named, record.cost).is_empty()
            || !self.gate.fits(record.cost)
            || !self.flow_meter(record.flow).fits(record.cost);
        let name = match (outcome, settled) {
            (Outcome::Done { .. }, Settled::Done(_)) => "done",
            (Outcome::Failed | Outcome::Dropped, Settled::Failed(_)) if !record.cancelled => {
                "failed"
            }
            (Outcome::Unused, Settled::Cancelled(_)) => "cancelled",
            (_, Settled::Cancelled(_))
                if record.cancelled && !matches!(outcome, Outcome::Done { .. }) =>
            {
                "cancelled"
            }
            (_, Settled::Returned(_)) if self.draining && !record.cancelled => "returned",
            (
                Outcome::Retry {
                    fault: Fault::Temporary,
                    ..
                }
                | Outcome::RetryAt {
                    fault: Fault::Temporary,
                    ..
                },
                Settled::Failed(_),
            ) if spent => "failed",
            (Outcome::Retry { .. } | Outcome::RetryAt { .. }, Settled::Failed(_)) if unfit => {
                "failed"
            }
            (Outcome::Retry { .. } | Outcome::RetryAt { .. }, Settled::Merged(_)) => {
                let taken = self.jobs.values().any(|other| {
                    other.place == Place::Delayed
                        && record.delay_key.is_some()
                        && other.delay_key == record.delay_key
                });
                self.require(taken, || format!("job {number} merged with nobody"))?;
                "merged"
            }
            (
                Outcome::Retry { fault, .. } | Outcome::RetryAt { fault, .. },
                Settled::Delayed(at),
            ) => {
                self.coverage.note(format!("retried {fault:?}"));
                self.require(*fault == Fault::Overload || !spent, || {
                    format!("job {number} was tried too often")
                })?;
                let allowed = self.fitting(record.named, record.cost);
                let moved = self.calls;
                let record = self
                    .jobs
                    .get_mut(&number)
                    .expect("a current lease has a job");
                record.place = Place::Delayed;
                record.moved = moved;
                record.due = *at;
                record.used -= u32::from(*fault == Fault::Overload);
                record.prepaid = false;
                record.allowed = allowed;
                return Ok(());
            }
            (Outcome::Elsewhere, Settled::Elsewhere) => {
                self.coverage.note("elsewhere");
                let moved = self.calls;
                let record = self
                    .jobs
                    .get_mut(&number)
                    .expect("a current lease has a job");
                record.place = Place::Waiting;
                record.moved = moved;
                record.used -= 1;
                record.prepaid = true;
                record
                    .allowed
                    .retain(|other| *other != target.index() as u32);
                let (cost, targets) = (record.cost, &self.targets);
                record
                    .allowed
                    .retain(|other| targets[*other as usize].meter.fits(cost));
                let empty = record.allowed.is_empty();
                return self.require(!empty, || {
                    format!("job {number} was sent elsewhere, but there is nowhere else")
                });
            }
            (Outcome::Elsewhere, Settled::Failed(_)) => {
                let rest: Vec<u32> = record
                    .allowed
                    .iter()
                    .copied()
                    .filter(|other| *other != target.index() as u32)
                    .filter(|other| self.targets[*other as usize].meter.fits(record.cost))
                    .collect();
                let nowhere = rest.is_empty()
                    || self.usable_at(&rest).is_some_and(|at| {
                        at == Time::MAX || self.config.on_suspend == OnSuspend::End
                    });
                self.require(nowhere, || {
                    format!("job {number} failed, but could have gone elsewhere")
                })?;
                "failed"
            }
            _ => {
                return self.require(false, || {
                    format!("job {number}: {outcome:?} settled as {settled:?}")
                });
            }
        };
        self.ended(record.ticket, name)
    }

    pub(super) fn event(&mut self, event: &Event<Number>) -> Result<(), Violation> {
        match event {
            Event::Expired { ticket, job } => {
                self.require(job.expire_at.is_some_and(|at| at <= self.now), || {
                    format!("job {} expired too early", job.payload)
                })?;
                self.ended(*ticket, "expired")
            }
            Event::Shed {
                ticket, booking, ..
            } => {
                self.booked += u64::from(booking.is_some());
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
            Event::PutOff { ticket, until } => {
                self.coverage.note("put off");
                let number = self.number(*ticket);
                let record = number.and_then(|number| self.jobs.get_mut(&number));
                let Some(record) = record
                    .filter(|record| record.place == Place::Delayed && record.due <= self.now)
                else {
                    return self.require(false, || "a job was put off that was not due".into());
                };
                record.due = *until;
                Ok(())
            }
            Event::TargetChanged { target, state } => self.target_changed(*target, *state),
            _ => self.require(false, || format!("unknown event {event:?}")),
        }
    }

    fn target_changed(&mut self, target: TargetId, state: TargetState) -> Result<(), Violation> {
        self.coverage.note(format!("target {state}"));
        while self.targets.len() <= target.index() {
            let config = self.config.targets[self.targets.len()];
            self.targets.push(TargetBook {
                state: TargetState::Active,
                meter: Meter::new(config.limits, self.now),
                probe: false,
            });
        }
        if !state.is_usable() {
            // No timer does this: what was due had its turn before.
            self.due(self.now);
        }
        self.targets[target.index()].state = state;
        // Jobs that wait for suspended targets alone are delayed without an event of their own.
        if self.config.on_suspend == OnSuspend::Delay && !state.is_usable() {
            let moved: Vec<(Number, Time)> = self
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
                record.place = Place::Delayed;
                record.moved = self.calls;
                record.due = due;
            }
        }
        Ok(())
    }

    /// Delayed jobs whose time has come, and of which no event said otherwise, wait now.
    pub(super) fn due(&mut self, now: Time) {
        let (now, calls) = (self.now.max(now), self.calls);
        for record in self.jobs.values_mut() {
            if record.place == Place::Delayed && record.due <= now && record.moved < calls {
                record.place = Place::Waiting;
                record.joined = 2 * calls;
                record.moved = calls;
            }
        }
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

    pub(super) fn reconfigured(&mut self, config: Config) {
        self.coverage.note("reconfigured");
        self.reloaded_in = self.calls;
        let now = self.now;
        self.config = config;
        self.gate.reconfigure(self.config.limits, now);
        for (flow, meter) in &mut self.flows {
            meter.reconfigure(
                self.config
                    .flows
                    .get(flow)
                    .unwrap_or(&self.config.default_flow)
                    .limits,
                now,
            );
        }
        for (index, config) in self.config.targets.iter().enumerate() {
            match self.targets.get_mut(index) {
                Some(target) => target.meter.reconfigure(config.limits, now),
                None => self.targets.push(TargetBook {
                    state: TargetState::Active,
                    meter: Meter::new(config.limits, now),
                    probe: false,
                }),
            }
        }
    }

    /// After the targets took their new settings, jobs are allowed where they fit now.
    pub(super) fn refitted(&mut self) {
        let fitting: Vec<(Number, Vec<u32>)> = self
            .jobs
            .iter()
            .filter(|(_, record)| record.place != Place::Running)
            .map(|(number, record)| (*number, self.still_allowed(record)))
            .collect();
        for (number, allowed) in fitting {
            let until = self.usable_at(&allowed).filter(|at| *at < Time::MAX);
            let calls = self.calls;
            let record = self.jobs.get_mut(&number).expect("just seen");
            let moved = record.place == Place::Waiting && record.allowed != allowed;
            record.allowed = allowed;
            if let Some(until) =
                until.filter(|_| moved && self.config.on_suspend == OnSuspend::Delay)
            {
                record.place = Place::Delayed;
                record.due = until;
                record.moved = calls;
            }
        }
    }

    /// The targets a job may go to under new limits; one that was sent elsewhere gets none back.
    fn still_allowed(&self, record: &Record) -> Vec<u32> {
        let mut allowed = self.fitting(record.named, record.cost);
        if record.prepaid {
            allowed.retain(|target| record.allowed.contains(target));
        }
        allowed
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

    /// The core's statistics against the books.
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
