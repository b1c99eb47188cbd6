//! Checks of admission: admitted, refused and shed jobs.

use super::model::{JobRecord, JobState, Model, Section};
use super::{JobNumber, Violation};
use headworks_core::{
    Bound, Class, Flow, Job, LONGEST, OnSuspend, Policy, Reason, Refused, Ticket, Time,
};
use std::collections::BTreeMap;
use std::time::Duration;

impl Model {
    /// Checks that an admitted job was entitled to admission.
    pub(super) fn admitted(
        &mut self,
        ticket: Ticket,
        job: &Job<JobNumber>,
        shed: Option<JobNumber>,
        before: usize,
    ) -> Result<(), Violation> {
        self.process_due(self.now);
        self.require(!self.draining, || "admitted while draining".into())?;
        self.require(job.class.is_valid_in(&self.config.classes), || {
            "admitted into a class that does not exist".into()
        })?;
        self.require(!self.is_live(job.key), || {
            format!("job {} is a duplicate", job.payload)
        })?;
        self.require(job.expire_at.is_none_or(|at| at > self.now), || {
            "admitted after its expiry".into()
        })?;
        let section = self.section(job.class, &self.fitting(job.targets, job.cost));
        // Counted before the job enters: it is not among those that fill the bound.
        let full = self.held(section).count() >= self.config.bound.places();
        let delayed = self
            .jobs
            .values()
            .filter(|record| record.place == JobState::Delayed)
            .count();
        self.enter(ticket, job);
        let record = &self.jobs[&job.payload];
        let fits = !record.allowed.is_empty()
            && self.gate.fits(job.cost)
            && self.flows[&job.flow].fits(job.cost);
        self.require(fits, || format!("job {} can never fit", job.payload))?;
        if record.place == JobState::Delayed {
            return self.require(delayed < self.config.delayed_bound, || {
                "admitted beyond the bound of the delayed".into()
            });
        }
        self.require(!full, || {
            format!("admitted beyond the bound ({before} waited)")
        })?;
        if let Some(booking) = job.booking {
            self.used_booking(section, booking);
        }
        if shed.is_some() {
            self.coverage.note("admitted by shedding");
        }
        Ok(())
    }

    /// Checks that a refusal and its retry hint are justified.
    pub(super) fn refused(
        &mut self,
        job: &Job<JobNumber>,
        refused: &Refused<JobNumber>,
        shed: Option<JobNumber>,
        sheds: bool,
    ) -> Result<(), Violation> {
        self.process_due(self.now);
        self.coverage.note(format!("refused {}", refused.reason));
        self.require(shed.is_none(), || {
            "a job was shed for an arrival that was refused".into()
        })?;
        self.require(refused.job.payload == job.payload, || {
            "another job was handed back".into()
        })?;
        let justified = self.justifies(job, refused.reason, sheds);
        self.require(justified, || {
            format!("refused as {} without cause: {job:?}", refused.reason)
        })?;
        if refused.reason == Reason::Full {
            self.require(refused.retry_after.is_some(), || {
                "refused as full without a retry hint".into()
            })?;
        }
        let least = self.min_retry(job, refused.reason).min(LONGEST);
        let told = refused
            .retry_after
            // The core counts in whole nanoseconds, this model in floating point.
            .map(|after| after + Duration::from_micros(1));
        self.require(told.is_none_or(|told| told >= least), || {
            format!(
                "refused as {}: retry in {:?}, but not before {least:?}",
                refused.reason, refused.retry_after
            )
        })?;
        // A hint of zero is no hint: a client that obeys it comes back into the same refusal.
        let hints = matches!(
            refused.reason,
            Reason::Full | Reason::TargetFull | Reason::DeadlineUnreachable
        );
        let hinted = refused
            .retry_after
            .is_some_and(|after| after > Duration::ZERO);
        self.require(!hints || hinted, || {
            format!("refused as {} without a time to wait", refused.reason)
        })?;
        // A caller that only tries does not return for a booking, and the place would be kept for
        // nobody.
        self.require(sheds || refused.booking.is_none(), || {
            "a place was booked for a caller that must not shed".into()
        })?;
        let section = self.section(job.class, &self.fitting(job.targets, job.cost));
        if refused.reason == Reason::Full && sheds {
            self.check_booking(job, section, refused)?;
        }
        if let Some(booking) = refused.booking {
            if refused.booking == job.booking {
                self.coverage.note("kept its turn");
            }
            self.book(section, job.flow, booking, refused.retry_after);
        }
        Ok(())
    }

    /// Whether the reason of a refusal holds, for a submission that may shed others or not.
    fn justifies(&mut self, job: &Job<JobNumber>, reason: Reason, sheds: bool) -> bool {
        let allowed = self.fitting(job.targets, job.cost);
        let section = self.section(job.class, &allowed);
        let usable = self.usable_at(&allowed);
        // A refused job leaves no flow behind, and no bucket that begins to fill.
        let most = self.flow_limits(job.flow).max_cost;
        let flow_fits = most.is_none_or(|most| job.cost <= most);
        match reason {
            Reason::Draining => self.draining,
            Reason::UnknownClass => !job.class.is_valid_in(&self.config.classes),
            Reason::Expired => job.expire_at.is_some_and(|at| at <= self.now),
            Reason::Duplicate => self.is_live(job.key),
            Reason::TooLarge => !self.gate.fits(job.cost) || !flow_fits || allowed.is_empty(),
            Reason::NoTarget => !self.sets.contains_key(&job.targets) || usable == Some(Time::MAX),
            Reason::Suspended => usable.is_some_and(|usable| {
                let unreachable = job.expire_at.is_some_and(|at| at <= usable);
                self.config.on_suspend == OnSuspend::End
                    || (self.config.refuse_unreachable && unreachable)
            }),
            Reason::DelayedFull => {
                self.jobs
                    .values()
                    .filter(|record| record.place == JobState::Delayed)
                    .count()
                    >= self.config.delayed_bound
            }
            Reason::Merged => self.jobs.values().any(|other| {
                other.place == JobState::Delayed
                    && job.delay_key.is_some()
                    && other.delay_key == job.delay_key
            }),
            Reason::TargetFull => {
                let waiting = self.waiting();
                let alone = waiting.filter(|(_, record)| record.allowed == allowed);
                let full = allowed.len() == 1 && alone.count() >= self.single_target_bound();
                full && !(sheds && self.is_under_share_at_target(job, &allowed))
            }
            // How long a job waits is the core's estimate. With nobody ahead there is nothing to
            // estimate.
            Reason::DeadlineUnreachable => {
                self.config.refuse_unreachable
                    && job.expire_at.is_some()
                    && self.jobs_ahead(job) > 0
            }
            Reason::Full if !sheds => {
                let free = self.free_places(section);
                free <= self.most_kept(section, job.flow)
            }
            Reason::Full => self.is_full_for(section, job),
            _ => false,
        }
    }

    /// The number of jobs under the same bound that could go before an arrival. Classes that the
    /// policy serves after it do not count.
    fn jobs_ahead(&self, job: &Job<JobNumber>) -> usize {
        let strictly_after = |class: Class| match self.config.policy {
            Policy::Strict => class > job.class,
            Policy::Hybrid => job.class == Class(0) && class > job.class,
            Policy::Fifo | Policy::Wfq => false,
        };
        let section = self.section(job.class, &self.fitting(job.targets, job.cost));
        let ahead = self.held(section);
        ahead
            .filter(|(_, record)| !strictly_after(record.class))
            .count()
    }

    /// The shortest valid retry hint. A hint must not be shorter than a wait that can be computed:
    /// no place becomes free before something is granted.
    fn min_retry(&self, job: &Job<JobNumber>, reason: Reason) -> Duration {
        let everything = self.gate.least_wait(self.now);
        let allowed = self.fitting(job.targets, job.cost);
        let section = self.section(job.class, &allowed);
        let suspended = self.usable_at(&allowed).filter(|at| *at < Time::MAX);
        let suspended = suspended.map_or(Duration::ZERO, |at| at.since(self.now));
        match (reason, &allowed[..]) {
            (Reason::Full, _) if self.held(section).count() >= self.config.bound.places() => {
                everything
            }
            (Reason::TargetFull, [target]) => {
                let target = self.targets[*target as usize].meter.least_wait(self.now);
                everything.max(target).max(suspended)
            }
            (Reason::Suspended, _) => suspended,
            _ => Duration::ZERO,
        }
    }

    /// Whether the queue is full for this flow: the free places are booked, or it may take none
    /// from another flow.
    fn is_full_for(&self, section: Section, job: &Job<JobNumber>) -> bool {
        let (places, flow) = (self.config.bound.places(), job.flow);
        let taken = self.held(section).count();
        // Places are free, so only bookings can be in the way.
        if taken < places {
            return self.free_places(section) <= self.most_kept(section, flow);
        }
        taken > places
            || !self.is_under_share(section, flow)
            || self.flow_over_share(section, flow).is_none()
            || self.waits_for_bookings(section, job)
    }

    /// Whether an arrival is entitled to the place of a job that waits for the same target: its
    /// flow holds less than its share there, and another lane holds more for its weight.
    fn is_under_share_at_target(&self, job: &Job<JobNumber>, allowed: &[u32]) -> bool {
        let section = self.section(job.class, allowed);
        if self.held(section).count() > self.config.bound.places() {
            return false;
        }
        let mut lanes: BTreeMap<(Class, Flow), u64> = BTreeMap::new();
        for (_, record) in self.held(section) {
            if record.allowed == allowed {
                *lanes.entry((record.class, record.flow)).or_default() += 1;
            }
        }
        let mine = lanes.iter().filter(|((_, flow), _)| *flow == job.flow);
        let mine: u64 = mine.map(|(_, held)| held).sum();
        let weight = self.flow_weight(job.flow);
        let newcomer = if mine == 0 { weight } else { 0 };
        let weights = lanes.keys().map(|(_, flow)| self.flow_weight(*flow));
        let weights = weights.sum::<u64>() + newcomer;
        // With the arrival's own place: equal burdens must not shed each other in turn.
        let after = ((mine + 1) << 20) / weight;
        mine * weights < self.single_target_bound() as u64 * weight
            && (lanes.iter())
                .any(|((_, flow), held)| (held << 20) / self.flow_weight(*flow) > after)
    }

    fn free_places(&self, section: Section) -> u64 {
        let taken = self.held(section).count();
        self.config.bound.places().saturating_sub(taken) as u64
    }

    fn holds(&self, section: Section, flow: Flow) -> u64 {
        self.held(section)
            .filter(|(_, record)| record.flow == flow)
            .count() as u64
    }

    fn is_under_share(&self, section: Section, flow: Flow) -> bool {
        let mut flows: Vec<Flow> = self.held(section).map(|(_, record)| record.flow).collect();
        flows.push(flow);
        flows.sort_unstable();
        flows.dedup();
        let weights: u64 = flows.iter().map(|flow| self.flow_weight(*flow)).sum();
        self.holds(section, flow) * weights
            < self.config.bound.places() as u64 * self.flow_weight(flow)
    }

    /// A flow that holds more for its weight than this one would with one more job.
    fn flow_over_share(&self, section: Section, flow: Flow) -> Option<Flow> {
        let mine = ((self.holds(section, flow) + 1) << 20) / self.flow_weight(flow);
        self.held(section)
            .map(|(_, record)| record.flow)
            .find(|other| (self.holds(section, *other) << 20) / self.flow_weight(*other) > mine)
    }

    /// Checks a shed job. Only a flow that holds more than an entitled arrival loses a place, or a
    /// class less urgent than one that displaces it.
    pub(super) fn shed(
        &mut self,
        job: &Job<JobNumber>,
        arrival: Option<&Job<JobNumber>>,
    ) -> Result<(), Violation> {
        let Some(arrival) = arrival else {
            return self.require(false, || "shed without an arrival".into());
        };
        self.process_due(self.now);
        let (class, flow) = (arrival.class, arrival.flow);
        let displaces = matches!(self.config.bound, Bound::Shared(_))
            && self.config.classes[usize::from(class.0)]
                .displaces
                .is_some_and(|from| job.class >= from);
        let allowed = self.fitting(arrival.targets, arrival.cost);
        let section = self.section(class, &allowed);
        let alone = |record: &JobRecord| record.allowed == allowed;
        let waiting = self.waiting().filter(|(_, record)| alone(record)).count();
        if allowed.len() == 1 && waiting >= self.single_target_bound() {
            let victim = &self.jobs[&job.payload];
            self.require(alone(victim), || {
                "shed from another target than the full one".into()
            })?;
            let holds = |flow: Flow| {
                let mine = self
                    .held(section)
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
        let full = self.held(section).count() >= self.config.bound.places();
        self.require(full, || "shed though there was room".into())?;
        if displaces
            && (!self.is_under_share(section, flow)
                || self.flow_over_share(section, flow).is_none()
                || self.waits_for_bookings(section, arrival))
        {
            self.coverage.note("displaced");
            return Ok(());
        }
        let most = |flow: Flow| (self.holds(section, flow) << 20) / self.flow_weight(flow);
        let greatest = self
            .held(section)
            .map(|(_, record)| most(record.flow))
            .max();
        self.require(self.is_under_share(section, flow), || {
            format!(
                "job {} was shed for a flow that holds its share",
                job.payload
            )
        })?;
        self.require(greatest == Some(most(job.flow)), || {
            format!("job {} was shed, but another flow holds more", job.payload)
        })?;
        // The newest waited least; any other victim would lose more.
        let newer = self.held(section).any(|(_, record)| {
            record.flow == job.flow && record.joined > self.jobs[&job.payload].joined
        });
        self.require(!newer, || {
            format!("job {} was shed, but its flow has a newer one", job.payload)
        })
    }

    fn is_live(&self, key: Option<headworks_core::Key>) -> bool {
        key.is_some() && self.jobs.values().any(|record| record.key == key)
    }

    fn single_target_bound(&self) -> usize {
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
    fn is_valid_in<T>(&self, classes: &[T]) -> bool;
}

impl InClasses for Class {
    fn is_valid_in<T>(&self, classes: &[T]) -> bool {
        usize::from(self.0) < classes.len()
    }
}
