//! Targets: their limits, their health, and the groups that jobs name.
//!
//! A group is a set of targets, any of which may serve a job. Groups that an application registered
//! and those of single targets stay for good. A group that only came about because a target refused
//! a job or is too small for it lives as long as a job names it.

use crate::config::TargetConfig;
use crate::drain_rate::DrainRate;
use crate::gate::{Gate, Pass};
use crate::id::{Cost, Domain, GroupId, LaneId, SetRef, TargetId, TargetSet};
use crate::job::Verdict;
use crate::list::List;
use crate::table::{Table, indexed};
use crate::time::Time;
use crate::wheel::TimerId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::fmt;
use std::time::Duration;

/// A target's health.
///
/// ```
/// use headworks_core::{Config, Core, Job, Outcome, TargetId, TargetState, Time, Verdict};
///
/// let mut core = Core::new(Config::default(), Time::ZERO)?;
/// let host = TargetId::new(0);
/// let until = Time::from_secs(30);
/// core.set_target(Time::ZERO, host, TargetState::Suspended { until });
/// core.submit(Time::ZERO, Job::new("page")).expect("it may wait");
/// assert!(core.next(Time::ZERO).is_none());
///
/// // After the suspension one job goes as a probe; if it goes well, the target is active again.
/// let probe = core.next(until).expect("the probe");
/// assert_eq!(core.target_state(host), Some(TargetState::Probation));
/// core.finish(until, probe, Outcome::DONE, Verdict::Fine);
/// assert_eq!(core.target_state(host), Some(TargetState::Active));
/// # Ok::<(), headworks_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetState {
    /// It serves.
    Active,
    /// It gets no job until then.
    Suspended {
        /// When a probe may go.
        until: Time,
    },
    /// One job at a time, the probe, may go; how it fares decides.
    Probation,
    /// It takes no part.
    Disabled {
        /// Why.
        reason: Disabled,
    },
}

impl TargetState {
    /// The word for it in metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TargetState::Active => "active",
            TargetState::Suspended { .. } => "suspended",
            TargetState::Probation => "probation",
            TargetState::Disabled { .. } => "disabled",
        }
    }

    /// Whether it serves jobs: it is active or in probation.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, TargetState::Active | TargetState::Probation)
    }
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a target is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Disabled {
    /// The far side is gone or will never serve us.
    Gone,
    /// The configuration says so.
    Configured,
    /// Somebody switched it off.
    Operator,
}

/// One target.
#[derive(Debug)]
pub(crate) struct Target {
    state: TargetState,
    config: TargetConfig,
    pub(crate) gate: Gate,
    faults: u32,
    granted: u64,
    /// Whether a job probes it, while on probation.
    probed: bool,
    /// The lane for whose head its cost bucket is reserved.
    pub(crate) reserved_for: Option<LaneId>,
    /// Jobs waiting that only it can serve.
    waiting: u64,
    /// How fast those are served.
    drain: DrainRate,
    /// The group of this target alone.
    own_group: GroupId,
    /// Every group that it is part of.
    groups: Vec<GroupId>,
    /// When it is looked at again, and the timer for that.
    pub(crate) timer: Option<(Time, TimerId)>,
}

impl Target {
    pub(crate) fn state(&self) -> TargetState {
        self.state
    }

    pub(crate) fn faults(&self) -> u32 {
        self.faults
    }

    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    pub(crate) fn groups(&self) -> &[GroupId] {
        &self.groups
    }

    pub(crate) fn reconfigure(&mut self, config: TargetConfig, now: Time) {
        self.config = config;
        self.gate.reconfigure(config.limits, now);
    }

    /// Whether it would serve a job, whatever its cost. A reservation is the caller's to consider.
    #[inline(always)]
    pub(crate) fn pass_any(&mut self, now: Time) -> Pass {
        match self.state {
            TargetState::Suspended { until } => Pass::Shut(Some(until)),
            TargetState::Disabled { .. } => Pass::Shut(None),
            TargetState::Probation if self.probed => Pass::Shut(None),
            TargetState::Active | TargetState::Probation => self.gate.pass_any(now),
        }
    }

    /// Whether it would serve a job of that cost.
    #[inline(always)]
    pub(crate) fn pass(&mut self, now: Time, cost: Cost) -> Pass {
        match self.pass_any(now) {
            Pass::Open => self.gate.pass_cost(now, cost),
            shut => shut,
        }
    }

    /// Jobs waiting that only it can serve.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// A job that only it can serve waits.
    #[inline]
    pub(crate) fn count_arrival(&mut self) {
        self.waiting += 1;
    }

    /// A job that only it can serve waits no longer. Only a grant says how fast they are served.
    #[inline]
    pub(crate) fn count_leave(&mut self, now: Time, granted: bool) {
        self.waiting -= 1;
        if granted {
            self.drain.grant(now, self.waiting);
        } else if self.waiting == 0 {
            self.drain.emptied();
        }
    }

    /// When it is expected to serve the next job, and not before its rates allow it.
    pub(crate) fn next_grant(&mut self, now: Time) -> Duration {
        let rate = self.gate.granted_at(now, 1).since(now);
        self.drain.next_grant(now).max(rate)
    }

    /// How busy it is for its weight: the least busy target of a group serves next.
    pub(crate) fn load(&self) -> (u64, u64) {
        let weight = u64::from(self.config.weight);
        let running = u64::from(self.gate.running());
        // By what runs there now, then by what it had so far: with equal load the targets take
        // turns.
        ((running << 20) / weight, (self.granted << 20) / weight)
    }

    /// Serves a job. Says whether the job probes it.
    pub(crate) fn grant(&mut self, now: Time, cost: Cost) -> bool {
        self.gate.enter(now, cost);
        self.granted += 1;
        let probe = self.state == TargetState::Probation;
        self.probed |= probe;
        probe
    }

    /// Puts it into another state. Says which it was in.
    pub(crate) fn set_state(&mut self, state: TargetState) -> TargetState {
        std::mem::replace(&mut self.state, state)
    }

    pub(crate) fn forgive(&mut self) {
        self.faults = 0;
    }

    /// Takes an attempt's verdict. Returns the state that this puts the target into, if it is
    /// another one.
    pub(crate) fn judge(
        &mut self,
        now: Time,
        probe: bool,
        verdict: Verdict,
    ) -> Option<TargetState> {
        // The probe is over with any verdict; if it told nothing, the next job is the next probe.
        if probe {
            self.probed = false;
        }
        let deciding = probe && self.state == TargetState::Probation;
        match verdict {
            Verdict::Unknown => None,
            Verdict::Fine => {
                self.faults = 0;
                deciding.then_some(TargetState::Active)
            }
            Verdict::Fault => {
                self.faults = self.faults.saturating_add(1);
                let threshold = self.config.fault_threshold;
                let enough = threshold > 0 && self.faults >= threshold;
                // One failed probe is enough: the target was given its second chance.
                let suspends = deciding || (enough && self.state == TargetState::Active);
                if !suspends {
                    return None;
                }
                self.faults = 0;
                let until = now + self.config.suspend_for;
                Some(TargetState::Suspended { until })
            }
            Verdict::Overload { until } => match self.state {
                TargetState::Disabled { .. } => None,
                // A shorter pause never replaces a longer one: answers of calls that ran together
                // come in any order.
                TargetState::Suspended { until: known } if known >= until => None,
                _ => (until > now).then_some(TargetState::Suspended { until }),
            },
            Verdict::Gone => {
                let reason = Disabled::Gone;
                Some(TargetState::Disabled { reason })
            }
        }
    }
}

/// A set of targets.
#[derive(Debug)]
pub(crate) struct TargetGroup {
    /// In order, each once.
    targets: SmallVec<[TargetId; 2]>,
    /// Live jobs that name it.
    jobs: u64,
    /// Of a single target, or registered by the application: it stays without jobs.
    permanent: bool,
    /// Since when at least one of its targets is usable: time before that does not count for aging.
    pub(crate) usable_since: Time,
    /// Jobs that are delayed until one of its targets is usable again.
    pub(crate) suspended: List,
}

impl TargetGroup {
    pub(crate) fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// Whether the group is removed when the last job that names it has ended.
    pub(crate) fn is_transient(&self) -> bool {
        !self.permanent
    }

    pub(crate) fn sole_target(&self) -> Option<TargetId> {
        match self.targets[..] {
            [target] => Some(target),
            _ => None,
        }
    }
}

/// The end of a suspension without an end: the end of time itself means that all targets are
/// disabled.
const LATEST: Time = Time::from_nanos(u64::MAX - 1);

/// All targets and groups.
#[derive(Debug)]
pub(crate) struct Targets {
    targets: Vec<Target>,
    groups: Table<GroupId, TargetGroup>,
    by_targets: HashMap<SmallVec<[TargetId; 2]>, GroupId, FixedState>,
}

impl Targets {
    pub(crate) fn new(hasher: FixedState) -> Self {
        Targets {
            targets: Vec::new(),
            groups: Table::default(),
            by_targets: HashMap::with_hasher(hasher),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TargetId> + use<> {
        (0..self.targets.len() as u32).map(TargetId)
    }

    pub(crate) fn get(&self, target: TargetId) -> Option<&Target> {
        self.targets.get(target.index())
    }

    pub(crate) fn add(&mut self, config: TargetConfig, now: Time) -> TargetId {
        let id = TargetId(self.targets.len() as u32);
        let own_group = self.groups.insert(TargetGroup {
            targets: SmallVec::from_slice(&[id]),
            jobs: 0,
            permanent: true,
            usable_since: now,
            suspended: List::default(),
        });
        let reason = Disabled::Configured;
        self.targets.push(Target {
            state: match config.enabled {
                true => TargetState::Active,
                false => TargetState::Disabled { reason },
            },
            gate: Gate::new(config.limits, now),
            config,
            faults: 0,
            granted: 0,
            probed: false,
            reserved_for: None,
            waiting: 0,
            drain: DrainRate::default(),
            own_group,
            groups: vec![own_group],
            timer: None,
        });
        id
    }

    /// The group of a set that a job names.
    pub(crate) fn group_of(&self, set: TargetSet) -> Option<GroupId> {
        match set.0 {
            SetRef::One(target) => self
                .targets
                .get(target as usize)
                .map(|target| target.own_group),
            SetRef::Many(group) => self.groups.get(group).map(|_| group),
        }
    }

    /// The domain of a group's targets.
    #[inline]
    pub(crate) fn domain(&self, group: GroupId) -> Domain {
        let first = self.groups[group].targets[0];
        self.targets[first.index()].config.domain
    }

    pub(crate) fn group(&self, group: GroupId) -> &TargetGroup {
        &self.groups[group]
    }

    pub(crate) fn group_mut(&mut self, group: GroupId) -> &mut TargetGroup {
        &mut self.groups[group]
    }

    pub(crate) fn groups(&self) -> Vec<GroupId> {
        self.groups.ids()
    }

    /// The group of these targets for an application, which keeps it for good. They are sorted,
    /// each once.
    pub(crate) fn register(&mut self, targets: &[TargetId], now: Time) -> GroupId {
        let group = self.intern(targets, now);
        self.groups[group].permanent = true;
        group
    }

    /// Finds or makes the group of these targets.
    fn intern(&mut self, targets: &[TargetId], now: Time) -> GroupId {
        if let [target] = targets {
            return self[*target].own_group;
        }
        if let Some(group) = self.by_targets.get(targets) {
            return *group;
        }
        let targets: SmallVec<[TargetId; 2]> = targets.into();
        let group = self.groups.insert(TargetGroup {
            targets: targets.clone(),
            jobs: 0,
            permanent: false,
            usable_since: now,
            suspended: List::default(),
        });
        for target in &targets {
            self.targets[target.index()].groups.push(group);
        }
        self.by_targets.insert(targets, group);
        group
    }

    /// Those targets of a group that could ever serve a job of that cost, as a group.
    #[inline(always)]
    pub(crate) fn that_fit(&mut self, group: GroupId, cost: Cost, now: Time) -> Option<GroupId> {
        let fits = |target: &TargetId| self.targets[target.index()].gate.fits(cost);
        let targets = &self.groups[group].targets;
        // Nearly always so, and then no group has to be looked up.
        if targets.iter().all(fits) {
            return Some(group);
        }
        let fitting: SmallVec<[TargetId; 2]> = targets.iter().copied().filter(fits).collect();
        (!fitting.is_empty()).then(|| self.intern(&fitting, now))
    }

    /// A group without one of its targets.
    pub(crate) fn without(
        &mut self,
        group: GroupId,
        target: TargetId,
        now: Time,
    ) -> Option<GroupId> {
        let targets = self.groups[group].targets.iter().copied();
        let rest: SmallVec<[TargetId; 2]> = targets.filter(|other| *other != target).collect();
        (!rest.is_empty()).then(|| self.intern(&rest, now))
    }

    /// One more job may be served by a group.
    pub(crate) fn retain(&mut self, group: GroupId) {
        self.groups[group].jobs += 1;
    }

    /// One job less may be served by a group.
    pub(crate) fn release(&mut self, group: GroupId) {
        self.groups[group].jobs -= 1;
    }

    /// Whether nothing refers to a group. Then it has no lanes either.
    pub(crate) fn is_unused(&self, group: GroupId) -> bool {
        let group = &self.groups[group];
        group.jobs == 0 && !group.permanent
    }

    /// Drops an unused group.
    pub(crate) fn remove_group(&mut self, id: GroupId) {
        let group = self.groups.remove(id);
        self.by_targets.remove(&group.targets);
        for target in &group.targets {
            let groups = &mut self.targets[target.index()].groups;
            groups.retain(|other| *other != id);
        }
    }

    /// When the first of a group's targets is usable: `None` if one is, the end of time if all are
    /// disabled.
    #[inline(always)]
    pub(crate) fn usable_at(&self, group: GroupId) -> Option<Time> {
        let mut first = Time::MAX;
        for target in &self.groups[group].targets {
            match self.targets[target.index()].state {
                TargetState::Active | TargetState::Probation => return None,
                TargetState::Suspended { until } => first = first.min(until.min(LATEST)),
                TargetState::Disabled { .. } => {}
            }
        }
        Some(first)
    }
}

indexed!(Targets[target: TargetId] -> Target = targets[target.index()]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;

    const ZERO: TargetId = TargetId(0);

    /// Four targets, the last of which serves no job that costs more than 10.
    fn four() -> Targets {
        let mut targets = Targets::new(FixedState::default());
        for index in 0..4 {
            let max_cost = (index == 3).then_some(Cost(10));
            let limits = Limits {
                max_cost,
                ..Limits::default()
            };
            let config = TargetConfig {
                limits,
                ..TargetConfig::default()
            };
            targets.add(config, Time::ZERO);
        }
        targets
    }

    #[test]
    fn a_group_that_only_jobs_name_goes_with_the_last_of_them() {
        let mut targets = four();
        let all: Vec<TargetId> = targets.ids().collect();
        let whole = targets.register(&all, Time::ZERO);
        let rest = targets.without(whole, ZERO, Time::ZERO).expect("three");
        assert_eq!(targets.without(whole, ZERO, Time::ZERO), Some(rest));
        targets.retain(rest);
        targets.retain(rest);
        targets.release(rest);
        assert!(!targets.is_unused(rest), "one job names it");
        targets.release(rest);
        assert!(targets.is_unused(rest) && !targets.is_unused(whole));
        targets.remove_group(rest);
        assert_eq!(targets.groups().len(), 5, "one per target, and the whole");
        assert_eq!(targets[TargetId(1)].groups().len(), 2);
    }

    #[test]
    fn a_group_that_is_asked_for_stays() {
        let mut targets = four();
        let pair = [TargetId(1), TargetId(2)];
        let group = targets.intern(&pair, Time::ZERO);
        assert!(targets.group(group).is_transient());
        assert_eq!(targets.register(&pair, Time::ZERO), group);
        assert!(!targets.is_unused(group));
    }

    #[test]
    fn a_large_job_goes_to_those_that_can_serve_it() {
        let mut targets = four();
        let pair = targets.register(&[TargetId(2), TargetId(3)], Time::ZERO);
        assert_eq!(targets.that_fit(pair, Cost(10), Time::ZERO), Some(pair));
        let fitting = targets.that_fit(pair, Cost(11), Time::ZERO);
        assert_eq!(fitting, Some(targets[TargetId(2)].own_group));
        let small = targets[TargetId(3)].own_group;
        assert_eq!(targets.that_fit(small, Cost(11), Time::ZERO), None);
    }

    #[test]
    fn a_group_is_usable_when_the_first_of_its_targets_is() {
        let mut targets = four();
        let pair = targets.register(&[TargetId(0), TargetId(1)], Time::ZERO);
        assert_eq!(targets.usable_at(pair), None);
        for (target, until) in [(0, 9), (1, 5)] {
            let until = Time::from_secs(until);
            targets[TargetId(target)].set_state(TargetState::Suspended { until });
        }
        assert_eq!(targets.usable_at(pair), Some(Time::from_secs(5)));
        for target in 0..2 {
            let reason = Disabled::Operator;
            targets[TargetId(target)].set_state(TargetState::Disabled { reason });
        }
        assert_eq!(targets.usable_at(pair), Some(Time::MAX));
    }

    #[test]
    fn a_target_on_probation_serves_one_job_at_a_time() {
        let mut targets = four();
        let target = &mut targets[ZERO];
        target.set_state(TargetState::Probation);
        assert!(target.grant(Time::ZERO, Cost(1)), "it is the probe");
        assert_eq!(target.pass_any(Time::ZERO), Pass::Shut(None));
        assert_eq!(target.judge(Time::ZERO, true, Verdict::Unknown), None);
        assert_eq!(target.pass_any(Time::ZERO), Pass::Open, "it told nothing");
        let fault = target.judge(Time::ZERO, true, Verdict::Fault);
        let until = Time::ZERO + Duration::from_secs(30);
        assert_eq!(fault, Some(TargetState::Suspended { until }));
        let fine = target.judge(Time::ZERO, true, Verdict::Fine);
        assert_eq!(fine, Some(TargetState::Active));
    }
}
