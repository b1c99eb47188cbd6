//! The promises of the design, each checked against the books.

use super::books::{Books, Place, Record};
use super::meter::Block;
use super::{Number, Violation};
use headworks_core::{
    Bound, Cancelled, Class, Flow, Job, Lease, OnSuspend, Policy, Reason, TargetId, TargetState,
    Ticket, Time,
};
use std::time::Duration;

/// Why a job cannot go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    Everything(Block),
    Flow(Block),
    Targets(Option<Block>),
}

impl Books {
    /// An admitted job had every right to be.
    pub(super) fn admitted(
        &mut self,
        ticket: Ticket,
        job: &Job<Number>,
        shed: Option<Number>,
        before: usize,
    ) -> Result<(), Violation> {
        self.due(self.now);
        self.require(!self.draining, || "admitted while draining".into())?;
        self.require(job.class.index_in(&self.config.classes), || {
            "admitted into a class that does not exist".into()
        })?;
        self.require(!self.is_live(job.key), || {
            format!("job {} is a duplicate", job.payload)
        })?;
        self.require(job.expire_at.is_none_or(|at| at > self.now), || {
            "admitted after its time".into()
        })?;
        let full = self.held(job.class).count() >= self.config.bound.places();
        let delayed = self
            .jobs
            .values()
            .filter(|record| record.place == Place::Delayed)
            .count();
        self.enter(ticket, job);
        let record = &self.jobs[&job.payload];
        let fits = !record.allowed.is_empty()
            && self.gate.fits(job.cost)
            && self.flows[&job.flow].fits(job.cost);
        self.require(fits, || format!("job {} can never fit", job.payload))?;
        if record.place == Place::Delayed {
            return self.require(delayed < self.config.delayed_bound, || {
                "admitted beyond the bound of the delayed".into()
            });
        }
        self.require(!full, || {
            format!("admitted beyond the bound ({before} waited)")
        })?;
        if job.booking.is_some() {
            self.coverage.note("admitted with a booking");
        }
        if shed.is_some() {
            self.coverage.note("admitted by shedding");
        }
        Ok(())
    }

    /// A refusal's reason holds.
    pub(super) fn justifies(&mut self, job: &Job<Number>, reason: Reason) -> bool {
        let allowed = self.fitting(job.targets, job.cost);
        let usable = self.usable_at(&allowed);
        let flow_fits = self.flow_meter(job.flow).fits(job.cost);
        match reason {
            Reason::Draining => self.draining,
            Reason::UnknownClass => !job.class.index_in(&self.config.classes),
            Reason::Expired => job.expire_at.is_some_and(|at| at <= self.now),
            Reason::Duplicate => self.is_live(job.key),
            Reason::TooLarge => !self.gate.fits(job.cost) || !flow_fits || allowed.is_empty(),
            Reason::NoTarget => !self.sets.contains_key(&job.targets) || usable == Some(Time::MAX),
            Reason::Suspended => usable.is_some() && self.config.on_suspend == OnSuspend::End,
            Reason::DelayedFull => {
                self.jobs
                    .values()
                    .filter(|record| record.place == Place::Delayed)
                    .count()
                    >= self.config.delayed_bound
            }
            Reason::Merged => self.jobs.values().any(|other| {
                other.place == Place::Delayed
                    && job.delay_key.is_some()
                    && other.delay_key == job.delay_key
            }),
            Reason::TargetFull => {
                self.waiting()
                    .filter(|(_, record)| record.allowed == allowed)
                    .count()
                    >= self.most_alone()
                    && allowed.len() == 1
            }
            Reason::Hopeless => {
                self.config.refuse_hopeless
                    && job.expire_at.is_some()
                    && self.held(job.class).count() > 0
            }
            Reason::Full => self.is_full_for(job.class, job.flow),
            _ => false,
        }
    }

    /// Nobody who deserves a place is refused one that somebody holds undeserved.
    fn is_full_for(&self, class: Class, flow: Flow) -> bool {
        let places = self.config.bound.places();
        let taken = self.held(class).count();
        if taken < places {
            return self.booked > 0;
        }
        taken > places || !self.deserves(class, flow) || self.undeserving(class, flow).is_none()
    }

    fn holds(&self, class: Class, flow: Flow) -> u64 {
        self.held(class)
            .filter(|(_, record)| record.flow == flow)
            .count() as u64
    }

    fn deserves(&self, class: Class, flow: Flow) -> bool {
        let mut flows: Vec<Flow> = self.held(class).map(|(_, record)| record.flow).collect();
        flows.push(flow);
        flows.sort_unstable();
        flows.dedup();
        let weights: u64 = flows.iter().map(|flow| self.flow_weight(*flow)).sum();
        self.holds(class, flow) * weights
            < self.config.bound.places() as u64 * self.flow_weight(flow)
    }

    /// A flow that holds more for its weight than this one would with one more.
    fn undeserving(&self, class: Class, flow: Flow) -> Option<Flow> {
        let mine = ((self.holds(class, flow) + 1) << 20) / self.flow_weight(flow);
        self.held(class)
            .map(|(_, record)| record.flow)
            .find(|other| (self.holds(class, *other) << 20) / self.flow_weight(*other) > mine)
    }

    /// Only who holds more than an arrival that deserves a place loses one, or who is less urgent than one that displaces.
    pub(super) fn shed(
        &mut self,
        job: &Job<Number>,
        arrival: Option<&Job<Number>>,
    ) -> Result<(), Violation> {
        let Some(arrival) = arrival else {
            return self.require(false, || "shed without an arrival".into());
        };
        self.due(self.now);
        let (class, flow) = (arrival.class, arrival.flow);
        let displaces = matches!(self.config.bound, Bound::Shared(_))
            && self.config.classes[usize::from(class.0)]
                .displaces
                .is_some_and(|from| job.class >= from);
        let allowed = self.fitting(arrival.targets, arrival.cost);
        let alone = |record: &Record| record.allowed == allowed;
        let waiting = self.waiting().filter(|(_, record)| alone(record)).count();
        if allowed.len() == 1 && waiting >= self.most_alone() {
            let victim = &self.jobs[&job.payload];
            self.require(alone(victim), || {
                "shed from another target than the full one".into()
            })?;
            let holds = |flow: Flow| {
                let mine = self
                    .held(class)
                    .filter(|(_, record)| alone(record) && record.flow == flow);
                mine.count() as u64
            };
            let more = (holds(job.flow) << 20) / self.flow_weight(job.flow)
                > ((holds(flow) + 1) << 20) / self.flow_weight(flow);
            self.coverage.note("shed for a full target");
            return self.require(more || displaces, || {
                format!("job {} was shed for a flow that holds as much", job.payload)
            });
        }
        let full = self.held(class).count() >= self.config.bound.places();
        self.require(full, || "shed though there was room".into())?;
        if displaces && !(self.deserves(class, flow) && self.undeserving(class, flow).is_some()) {
            self.coverage.note("displaced");
            return Ok(());
        }
        let most = |flow: Flow| (self.holds(class, flow) << 20) / self.flow_weight(flow);
        let greatest = self.held(class).map(|(_, record)| most(record.flow)).max();
        self.require(self.deserves(class, flow), || {
            format!(
                "job {} was shed for a flow that holds its share",
                job.payload
            )
        })?;
        self.require(greatest == Some(most(job.flow)), || {
            format!("job {} was shed, but another flow holds more", job.payload)
        })?;
        let newer = self.held(class).any(|(_, record)| {
            record.flow == job.flow && record.joined > self.jobs[&job.payload].joined
        });
        self.require(!newer, || {
            format!("job {} was shed, but its flow has a newer one", job.payload)
        })
    }

    pub(super) fn is_current(
        &self,
        number: Number,
        ticket: Ticket,
        attempt: u32,
        target: TargetId,
    ) -> bool {
        self.jobs.get(&number).is_some_and(|record| {
            record.ticket == ticket
                && record.place == Place::Running
                && record.used == attempt
                && record.target == target.index() as u32
        })
    }

    /// A lease breaks no limit, order or state.
    pub(super) fn granted(&mut self, lease: &Lease<Number>) -> Result<(), Violation> {
        self.due(self.now);
        let number = lease.payload;
        self.require(!self.paused, || "granted while paused".into())?;
        let Some(record) = self.jobs.get(&number).cloned() else {
            return self.require(false, || {
                format!("job {number} was leased, but does not live")
            });
        };
        self.require(record.place == Place::Waiting, || {
            format!("job {number} was leased while {:?}", record.place)
        })?;
        let same = record.ticket == lease.ticket
            && record.class == lease.class
            && record.flow == lease.flow
            && record.cost == lease.cost;
        self.require(same, || {
            format!("the lease of job {number} tells something else of it")
        })?;
        self.require(lease.attempt == record.used + 1, || {
            format!(
                "job {number}: attempt {} after {}",
                lease.attempt, record.used
            )
        })?;
        self.may_go_to(&record, lease.target)?;
        self.in_order(number, &record, lease.aged)?;
        if lease.aged {
            self.coverage.note("aged");
        }
        self.take(number, lease.target);
        Ok(())
    }

    fn may_go_to(&mut self, record: &Record, target: TargetId) -> Result<(), Violation> {
        self.require(record.allowed.contains(&(target.index() as u32)), || {
            format!("sent to target {}, which may not serve it", target.index())
        })?;
        let now = self.now;
        let book = &self.targets[target.index()];
        let open = match book.state {
            TargetState::Active => true,
            TargetState::Probation => !book.probe,
            _ => false,
        };
        self.require(open, || {
            format!(
                "sent to target {}, which is {:?}",
                target.index(),
                book.state
            )
        })?;
        let block = book.meter.block(now, record.cost, false);
        self.require(block.is_none(), || {
            format!("target {} is shut: {block:?}", target.index())
        })?;
        let block = self.gate.block(now, record.cost, record.prepaid);
        self.require(block.is_none(), || format!("everything is shut: {block:?}"))?;
        let block = self
            .flow_meter(record.flow)
            .block(now, record.cost, record.prepaid);
        self.require(block.is_none(), || format!("its flow is shut: {block:?}"))
    }

    fn take(&mut self, number: Number, target: TargetId) {
        let now = self.now;
        let record = self.jobs.get_mut(&number).expect("a leased job lives");
        record.place = Place::Running;
        record.used += 1;
        record.grants += 1;
        record.target = target.index() as u32;
        let (cost, flow, prepaid) = (record.cost, record.flow, record.prepaid);
        let book = &mut self.targets[target.index()];
        book.meter.enter(now, cost, true);
        if book.state == TargetState::Probation {
            book.probe = true;
            self.jobs
                .get_mut(&number)
                .expect("a leased job lives")
                .probing = true;
        }
        self.gate.enter(now, cost, !prepaid);
        self.flow_meter(flow).enter(now, cost, !prepaid);
    }

    /// The lease respects its lane, its flow and the policy.
    fn in_order(&self, number: Number, record: &Record, aged: bool) -> Result<(), Violation> {
        for (other, waiting) in self.waiting().filter(|(other, _)| **other != number) {
            let older = waiting.joined < record.joined;
            let same_queue = waiting.class == record.class && waiting.flow == record.flow;
            if same_queue && older && waiting.allowed == record.allowed {
                return self.require(false, || {
                    format!("job {number} overtook job {other} of its lane")
                });
            }
            if aged || self.draws_on_a_bucket(waiting) || self.obstacle(waiting).is_some() {
                continue;
            }
            if same_queue && older {
                return self.require(false, || {
                    format!("job {number} overtook job {other} of its flow, whose gates are open")
                });
            }
            let inverted = match self.config.policy {
                Policy::Strict => waiting.class < record.class,
                Policy::Hybrid => waiting.class == Class(0) && record.class != Class(0),
                Policy::Fifo => older,
                _ => false,
            };
            if inverted {
                return self.require(false, || {
                    format!(
                        "job {number} ({}) went before job {other} ({})",
                        record.class, waiting.class
                    )
                });
            }
        }
        Ok(())
    }

    /// Whether a cost bucket could be saved for another job that this one would draw on.
    fn draws_on_a_bucket(&self, record: &Record) -> bool {
        self.gate.limits.cost.is_some()
            || self
                .flows
                .get(&record.flow)
                .is_some_and(|meter| meter.limits.cost.is_some())
            || record
                .allowed
                .iter()
                .any(|target| self.targets[*target as usize].meter.limits.cost.is_some())
    }

    fn obstacle(&self, record: &Record) -> Option<Obstacle> {
        // What opened less than a microsecond ago may be a matter of rounding.
        let now = self.now - Duration::from_micros(1);
        if let Some(block) = self.gate.block(now, record.cost, record.prepaid) {
            return Some(Obstacle::Everything(block));
        }
        if let Some(block) = self
            .flows
            .get(&record.flow)
            .and_then(|meter| meter.block(now, record.cost, record.prepaid))
        {
            return Some(Obstacle::Flow(block));
        }
        let mut found = None;
        for target in &record.allowed {
            let book = &self.targets[*target as usize];
            match book.state {
                TargetState::Active => {}
                TargetState::Probation if !book.probe => {}
                _ => continue,
            }
            match book.meter.block(now, record.cost, false) {
                None => return None,
                some => found = some,
            }
        }
        Some(Obstacle::Targets(found))
    }

    /// Nothing was granted: nothing could have been, and time will not change that without a word.
    pub(super) fn nothing_granted(&mut self, wake: Option<Time>) -> Result<(), Violation> {
        self.due(self.now);
        if self.paused {
            self.coverage.note("paused");
            return Ok(());
        }
        let mut notes = Vec::new();
        for (number, record) in self.waiting() {
            match self.obstacle(record) {
                Some(obstacle) => notes.push(format!("shut {obstacle:?}")),
                None if !self.draws_on_a_bucket(record) => {
                    return self.require(false, || {
                        format!("job {number} waits though nothing stops it")
                    });
                }
                None => {
                    let saved = self.waiting().any(|(other, waiting)| {
                        other != number && self.saves_from(waiting, record)
                    });
                    self.require(saved, || {
                        format!("job {number} waits though nothing stops it and nothing is saved")
                    })?;
                    notes.push("saved".into());
                }
            }
        }
        if wake.is_none() {
            let mut later = self.clone_for_later();
            later.now += Duration::from_secs(100 * 365 * 86_400);
            for (number, record) in later.waiting() {
                let stuck = later.obstacle(record).is_some();
                self.require(stuck, || {
                    format!("job {number} could go later, but nobody will wake")
                })?;
            }
        }
        for note in notes {
            self.coverage.note(note);
        }
        Ok(())
    }

    /// Whether `waiting` is short of a bucket that `record` draws on.
    fn saves_from(&self, waiting: &Record, record: &Record) -> bool {
        let short = |meter: &super::meter::Meter| {
            meter.is_short(self.now - Duration::from_micros(1), waiting.cost)
        };
        short(&self.gate)
            || (waiting.flow == record.flow && self.flows.get(&record.flow).is_some_and(short))
            || record.allowed.iter().any(|target| {
                waiting.allowed.contains(target) && short(&self.targets[*target as usize].meter)
            })
    }

    /// The books as they would be if only time passed: suspensions over, nothing finished.
    fn clone_for_later(&self) -> Books {
        let mut later = Books::new(self.config.clone(), self.now);
        later.jobs = self.jobs.clone();
        later.gate = self.gate.clone();
        later.flows = self.flows.clone();
        later.targets = self.targets.clone();
        for target in &mut later.targets {
            if matches!(target.state, TargetState::Suspended { .. }) {
                target.state = TargetState::Probation;
            }
        }
        later
    }

    /// A job that was due took a place only if there was one.
    fn due_within_the_bound(&self) -> Result<(), Violation> {
        let sent_back = |record: &Record| record.prepaid && record.moved == self.calls;
        if self.reloaded_in == self.calls || self.jobs.values().any(sent_back) {
            // It was due under the bound before the reload; and one that was sent elsewhere keeps its place, even where
            // another has taken it.
            return Ok(());
        }
        for (number, record) in self
            .waiting()
            .filter(|(_, record)| record.joined == 2 * self.calls)
        {
            let held = self.held(record.class).count();
            self.require(held <= self.config.bound.places(), || {
                format!("job {number} was due and took a place that was not there")
            })?;
        }
        Ok(())
    }

    /// What is due has happened: nothing waits past its time, nothing is delayed past its due.
    pub(super) fn nothing_overdue(&self) -> Result<(), Violation> {
        self.due_within_the_bound()?;
        let late = self.jobs.iter().find(|(_, record)| {
            record.place != Place::Running
                && record.moved < self.calls
                && record.expire_at.is_some_and(|at| at <= self.now)
        });
        self.require(late.is_none(), || format!("{late:?} should have expired"))?;
        if self.config.on_suspend == OnSuspend::End {
            let dead = self
                .waiting()
                .find(|(_, record)| self.usable_at(&record.allowed).is_some() && !record.prepaid);
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
        let count = |place: Place| {
            self.jobs
                .values()
                .filter(|record| record.place == place)
                .count() as u64
        };
        let known = (
            count(Place::Waiting),
            count(Place::Delayed),
            count(Place::Running),
        );
        self.require(known == (waiting, delayed, running), || {
            format!(
                "waiting, delayed, running: the core says {:?}, the books {known:?}",
                (waiting, delayed, running)
            )
        })
    }

    pub(super) fn cancelled(
        &mut self,
        ticket: Ticket,
        answer: &Cancelled<Number>,
    ) -> Result<(), Violation> {
        self.due(self.now);
        let place = self.place(ticket);
        let right = match answer {
            Cancelled::Removed(job) => {
                matches!(place, Some(Place::Waiting | Place::Delayed))
                    && self.number(ticket) == Some(job.payload)
            }
            Cancelled::Running => place == Some(Place::Running),
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
            .find(|(_, record)| record.place != Place::Running);
        self.require(kept.is_none(), || format!("{kept:?} was kept by a drain"))
    }

    fn is_live(&self, key: Option<headworks_core::Key>) -> bool {
        key.is_some() && self.jobs.values().any(|record| record.key == key)
    }

    fn most_alone(&self) -> usize {
        let bound = match self.config.bound {
            Bound::Shared(places) => places,
            Bound::PerClass(places) => places * self.config.classes.len(),
        };
        self.config.max_waiting.unwrap_or_else(|| {
            (bound / 10)
                .max(2 * bound / self.config.targets.len().max(1))
                .max(1)
        })
    }
}

trait InClasses {
    fn index_in<T>(self, classes: &[T]) -> bool;
}

impl InClasses for Class {
    fn index_in<T>(self, classes: &[T]) -> bool {
        usize::from(self.0) < classes.len()
    }
}
