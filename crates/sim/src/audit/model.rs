//! The auditor's model of every job, gate and target, derived from calls and results only.

use super::booked_places::BookedPlace;
use super::meter::Meter;
use super::{Coverage, JobNumber, Violation};
use headworks_core::{
    Bound, Class, Config, Cost, Domain, Flow, Job, Key, LocalLimits, OnSuspend, TargetId,
    TargetSet, TargetState, Ticket, Time,
};
use std::collections::{BTreeMap, BTreeSet};

/// A class in one domain.
pub(super) type Section = (Class, Domain);

/// The state of a live job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    Delayed,
    Waiting,
    Running,
}

/// The model of a live job.
#[derive(Clone, Debug)]
pub(super) struct JobRecord {
    pub(super) ticket: Ticket,
    pub(super) place: JobState,
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
    /// When it joined the queue, counted in calls. Jobs that joined in the same call are not
    /// compared.
    pub(super) joined: u64,
    /// The call in which its state last changed; a transition that is due even then happens in the
    /// next.
    pub(super) moved: u64,
    pub(super) attempts: u32,
    pub(super) used: u32,
    pub(super) grants: u32,
    pub(super) target: u32,
    /// Whether a target refused it, so that it waits for the others.
    pub(super) sent_elsewhere: bool,
    /// Whether it is delayed until a suspension ends.
    pub(super) suspended: bool,
    pub(super) start_at: Option<Time>,
    pub(super) cancelled: bool,
    pub(super) probing: bool,
}

#[derive(Clone, Debug)]
pub(super) struct TargetModel {
    pub(super) state: TargetState,
    pub(super) meter: Meter,
    pub(super) probe: bool,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) config: Config,
    pub(super) local: LocalLimits,
    /// The cost granted so far, by class.
    pub(super) granted_cost: BTreeMap<Class, u64>,
    pub(super) now: Time,
    pub(super) calls: u64,
    pub(super) jobs: BTreeMap<JobNumber, JobRecord>,
    pub(super) gate: Meter,
    pub(super) flows: BTreeMap<Flow, Meter>,
    pub(super) targets: Vec<TargetModel>,
    pub(super) sets: BTreeMap<TargetSet, Vec<u32>>,
    pub(super) paused: bool,
    pub(super) draining: bool,
    pub(super) booked: Vec<BookedPlace>,
    /// The flows that were charged in each section: only they can be in debt.
    pub(super) charged_flows: BTreeSet<(Section, Flow)>,
    /// The most flows at once that had jobs or used limits.
    pub(super) most_flows_in_use: usize,
    /// The flows that the core remembered after the call before, and those with a state.
    pub(super) remembered_flows: usize,
    pub(super) flows_with_state: usize,
    /// The call of the last reload.
    pub(super) reloaded_in: u64,
    pub(super) coverage: Coverage,
    pub(super) admitted: u64,
    pub(super) ended: BTreeMap<&'static str, u64>,
    pub(super) just_ended: Vec<(JobNumber, &'static str)>,
}

impl Model {
    pub(super) fn new(config: Config, now: Time) -> Self {
        let targets = config.targets.iter().map(|target| TargetModel {
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
        Model {
            targets: targets.collect(),
            gate: Meter::new(config.limits, now),
            config,
            local: LocalLimits::default(),
            granted_cost: BTreeMap::new(),
            now,
            calls: 0,
            jobs: BTreeMap::new(),
            flows: BTreeMap::new(),
            sets: BTreeMap::new(),
            paused: false,
            draining: false,
            booked: Vec::new(),
            charged_flows: BTreeSet::new(),
            most_flows_in_use: 0,
            remembered_flows: 0,
            flows_with_state: 0,
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

    /// Begins a call: advances time and returns the number of waiting jobs.
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
        let limits = self.flow_limits(flow);
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

    pub(super) fn waiting(&self) -> impl Iterator<Item = (&JobNumber, &JobRecord)> {
        self.jobs
            .iter()
            .filter(|(_, record)| record.place == JobState::Waiting)
    }

    /// The section of a job that these targets may serve.
    pub(super) fn section(&self, class: Class, allowed: &[u32]) -> Section {
        let domain = |target: &u32| self.config.targets[*target as usize].domain;
        (class, allowed.first().map(domain).unwrap_or_default())
    }

    pub(super) fn section_of(&self, record: &JobRecord) -> Section {
        self.section(record.class, &record.allowed)
    }

    /// The jobs that hold places of the bound that applies to a section.
    pub(super) fn held(&self, section: Section) -> impl Iterator<Item = (&JobNumber, &JobRecord)> {
        let shared = matches!(self.config.bound, Bound::Shared(_));
        self.waiting()
            .filter(move |(_, record)| shared || self.section_of(record) == section)
    }

    pub(super) fn number(&self, ticket: Ticket) -> Option<JobNumber> {
        self.jobs
            .iter()
            .find(|(_, record)| record.ticket == ticket)
            .map(|(number, _)| *number)
    }

    pub(super) fn place(&self, ticket: Ticket) -> Option<JobState> {
        self.number(ticket).map(|number| self.jobs[&number].place)
    }

    pub(super) fn target_state(&self, target: TargetId) -> TargetState {
        self.targets[target.index()].state
    }

    /// When the first target of a set is usable: `None` if one is now, `Time::MAX` if all are
    /// disabled.
    pub(super) fn usable_at(&self, targets: &[u32]) -> Option<Time> {
        let at = |target: &u32| match self.targets[*target as usize].state {
            TargetState::Suspended { until } => until,
            TargetState::Disabled { .. } => Time::MAX,
            _ => Time::ZERO,
        };
        targets.iter().map(at).min().filter(|at| *at > Time::ZERO)
    }

    pub(super) fn enter(&mut self, ticket: Ticket, job: &Job<JobNumber>) {
        let allowed = self.fitting(job.targets, job.cost);
        let mut due = job.start_at.filter(|at| *at > self.now);
        let mut suspended = false;
        if self.config.on_suspend == OnSuspend::Delay {
            let usable = self.usable_at(&allowed);
            suspended = usable.is_some() && usable >= due;
            due = due.max(usable);
        }
        self.flow_meter(job.flow);
        self.admitted += 1;
        self.jobs.insert(
            job.payload,
            JobRecord {
                ticket,
                place: if due.is_some() {
                    JobState::Delayed
                } else {
                    JobState::Waiting
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
                sent_elsewhere: false,
                suspended,
                start_at: job.start_at,
                cancelled: false,
                probing: false,
            },
        );
    }
}
