//! Targets: their sets, and what their health means for the jobs that wait for them.
//!
//! A target owns its state ([`targets`](crate::targets)); the consequences for jobs are drawn here,
//! in one pass over the jobs that are affected. A group is retained while its jobs end: the last of
//! them must not take the group away under the loop. State changes only go through `change_target`,
//! which ends reservations, sets the timer for the end of a suspension, and tells of it.

use super::Core;
use super::settle::Leased;
use crate::config::{ConfigError, MAX_SET, OnSuspend, TargetConfig};
use crate::event::{Event, Unservable};
use crate::id::{GroupId, JobId, SetRef, TargetId, TargetSet};
use crate::job::Verdict;
use crate::targets::{Target, TargetState};
use crate::time::Time;

impl<P> Core<P> {
    /// The set of these targets, for [`Job::targets`](crate::Job::targets). The same targets always
    /// give the same set.
    ///
    /// # Errors
    /// If it is empty, too large, or names a target that does not exist.
    pub fn targets(&mut self, targets: &[TargetId]) -> Result<TargetSet, ConfigError> {
        let unknown = |target: &&TargetId| target.index() >= self.targets.len();
        if let Some(unknown) = targets.iter().find(unknown) {
            return Err(ConfigError::UnknownTarget(unknown.index()));
        }
        let mut ids = targets.to_vec();
        ids.sort_unstable();
        ids.dedup();
        match *ids {
            [] => Err(ConfigError::EmptySet),
            [one] => Ok(TargetSet(SetRef::One(one.0))),
            _ if ids.len() > MAX_SET => Err(ConfigError::LargeSet(ids.len())),
            _ => Ok(TargetSet(SetRef::Many(
                self.targets.register(&ids, self.now),
            ))),
        }
    }

    /// The state of a target.
    #[must_use]
    pub fn target_state(&self, target: TargetId) -> Option<TargetState> {
        self.targets.get(target).map(Target::state)
    }

    /// Puts a target into a state: an operator's decision, a probe's result, a roll-back.
    pub fn set_target(&mut self, now: Time, target: TargetId, state: TargetState) {
        let now = self.tick(now);
        if target.index() < self.targets.len() {
            let state = match state {
                TargetState::Suspended { until } if until <= now => TargetState::Probation,
                state => state,
            };
            self.targets[target].forgive();
            self.change_target(now, target, state);
        }
    }

    /// Adds a target to a core at work, with the next number in order. It is part of
    /// [`Core::config`] from then on: a later [`reconfigure`](Core::reconfigure) must name it.
    ///
    /// ```
    /// use headworks_core::{Config, Core, Job, TargetConfig, Time};
    ///
    /// let mut core = Core::new(Config::default(), Time::ZERO)?;
    /// let host = core.add_target(Time::ZERO, TargetConfig::default())?;
    /// core.submit(Time::ZERO, Job::new("fetch").targets(host)).expect("there is room");
    /// assert_eq!(core.next(Time::ZERO).expect("nothing is limited").target, host);
    /// # Ok::<(), headworks_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If one of its settings cannot work; then nothing has changed.
    pub fn add_target(&mut self, now: Time, config: TargetConfig) -> Result<TargetId, ConfigError> {
        config.check(self.targets.len())?;
        let now = self.tick(now);
        self.config.targets.push(config);
        let config = self.target_in_force(self.targets.len());
        Ok(self.targets.add(config, now))
    }

    /// Applies an attempt's verdict on its target.
    pub(super) fn judge(&mut self, now: Time, leased: &Leased, verdict: Verdict) {
        let target = &mut self.targets[leased.target];
        if let Some(state) = target.judge(now, leased.probing, verdict) {
            self.change_target(now, leased.target, state);
        }
    }

    /// A target's timer: its suspension is over, or a bucket has refilled.
    pub(super) fn target_due(&mut self, now: Time, target: TargetId) {
        match self.targets[target].state() {
            TargetState::Suspended { until } if until <= now => {
                self.change_target(now, target, TargetState::Probation);
            }
            TargetState::Suspended { until } => self.arm_target(target, until),
            _ => self.open_target(target),
        }
    }

    pub(super) fn change_target(&mut self, now: Time, target: TargetId, state: TargetState) {
        let before = self.targets[target].set_state(state);
        if before == state {
            return;
        }
        self.events
            .push_back(Event::TargetChanged { target, state });
        self.unreserve(target);
        if let TargetState::Suspended { until } = state {
            // The one timer of the target is for the end of the suspension; an earlier one of
            // before is not.
            if let Some((_, timer)) = self.targets[target].timer.take() {
                self.timers.cancel(timer);
            }
            self.arm_target(target, until);
        }
        for group in self.targets[target].groups().to_vec() {
            if !state.is_usable() {
                self.group_lost_target(now, group);
            } else if !before.is_usable() {
                self.group_gained_target(now, group);
            }
        }
        if state.is_usable() {
            self.open_target(target);
        }
    }

    /// A target of the group is usable again.
    fn group_gained_target(&mut self, now: Time, group: GroupId) {
        // A job that ends here may have been the last of a group that goes with it.
        self.targets.retain(group);
        self.targets.group_mut(group).usable_since = now;
        for lane in self.lanes.in_group(group).to_vec() {
            self.update_age(lane);
        }
        self.release_suspended(now, group);
        self.release_group(group);
    }

    /// A target of the group is no longer usable: if it was the last, its jobs end, are delayed or
    /// stay.
    fn group_lost_target(&mut self, now: Time, group: GroupId) {
        let (reason, until) = match (self.targets.usable_at(group), self.config.on_suspend) {
            (None, _) => return,
            (Some(Time::MAX), _) => (Unservable::NoTarget, None),
            (Some(_), OnSuspend::Keep) => return,
            (Some(until), OnSuspend::Delay) => (Unservable::Suspended, Some(until)),
            (Some(_), OnSuspend::End) => (Unservable::Suspended, None),
        };
        self.targets.retain(group);
        for job in self.waiting_in_group(group) {
            match until {
                Some(until) => {
                    self.leave_lane(now, job);
                    self.suspend(job, until);
                }
                None => self.fail_unleased(now, job, reason),
            }
        }
        self.release_group(group);
    }

    /// The jobs that wait in a group, in the order of arrival.
    fn waiting_in_group(&self, group: GroupId) -> Vec<JobId> {
        let lanes = self.lanes.in_group(group).iter();
        let mut jobs: Vec<JobId> = lanes.flat_map(|lane| self.lanes.jobs(*lane)).collect();
        jobs.sort_unstable_by_key(|job| self.jobs[*job].seq());
        jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bound, ClassConfig, Config, Limits};
    use crate::event::Reason;
    use crate::id::{Class, Flow};
    use crate::job::Job;
    use crate::table::visits;
    use crate::targets::Disabled;
    use std::time::Duration;

    fn host(concurrent: u32) -> TargetConfig {
        TargetConfig {
            limits: Limits {
                concurrent: Some(concurrent),
                ..Limits::default()
            },
            ..TargetConfig::default()
        }
    }

    #[test]
    fn a_target_added_at_work_keeps_its_own_limits_and_survives_a_reload() {
        let config = Config {
            targets: vec![host(1)],
            ..Config::default()
        };
        let mut core = Core::new(config, Time::ZERO).unwrap();
        let added = core.add_target(Time::from_secs(1), host(2)).unwrap();
        assert_eq!((added, added.index()), (TargetId::new(1), 1));
        for n in 0..4 {
            core.submit(Time::from_secs(1), Job::new(n).targets(added))
                .unwrap();
        }
        let granted = std::iter::from_fn(|| core.next(Time::from_secs(1)));
        assert_eq!(
            granted.map(|lease| lease.target).collect::<Vec<_>>(),
            [added; 2]
        );
        let config = core.config().clone();
        assert_eq!(config.targets, [host(1), host(2)]);
        assert_eq!(core.reconfigure(Time::from_secs(2), config), Ok(()));
    }

    #[test]
    fn a_target_that_cannot_work_is_not_added() {
        let mut core = Core::<()>::new(Config::default(), Time::ZERO).unwrap();
        let refused = core.add_target(Time::ZERO, host(0));
        assert_eq!(refused, Err(ConfigError::Concurrent("target 1".into())));
        assert_eq!(core.config().targets.len(), 1);
    }

    #[test]
    fn more_targets_mean_fewer_places_for_each() {
        let config = Config {
            bound: Bound::Shared(10),
            ..Config::default()
        };
        let mut core = Core::new(config, Time::ZERO).unwrap();
        for _ in 0..4 {
            core.add_target(Time::ZERO, host(1)).unwrap();
        }
        let job = || Job::new(()).targets(TargetId::new(4));
        let answers: Vec<_> = (0..5)
            .map(|_| core.submit(Time::ZERO, job()).map_err(|no| no.reason))
            .collect();
        assert!(answers[..4].iter().all(Result::is_ok));
        assert_eq!(answers[4], Err(Reason::TargetFull));
    }

    const TARGET: TargetId = TargetId::new(0);

    /// A core whose only target has one waiting job for each of that many flows, in two classes of
    /// which one ages.
    fn waiting_flows(flows: u64, on_suspend: OnSuspend) -> Core<u64> {
        let config = Config {
            bound: Bound::Shared(100_000),
            delayed_bound: 100_000,
            max_waiting: Some(100_000),
            classes: vec![
                ClassConfig::weight(2),
                ClassConfig {
                    aging: Some(Duration::from_secs(1)),
                    ..ClassConfig::weight(1)
                },
            ],
            targets: vec![host(1)],
            on_suspend,
            ..Config::default()
        };
        let mut core = Core::new(config, Time::ZERO).unwrap();
        for flow in 0..flows {
            let class = Class((flow % 2) as u8);
            let job = Job::new(flow).flow(Flow(flow)).class(class);
            core.submit(Time::ZERO, job).unwrap();
        }
        // One runs, so that the lanes of the others are blocked.
        assert!(core.next(Time::ZERO).is_some() && core.next(Time::ZERO).is_none());
        core
    }

    /// Eight times as many flows may cost eight times as much, and half of that more for sorting.
    /// It took 10.6 s with 80,000 flows when each job was looked for from the start.
    fn assert_linear(on_suspend: OnSuspend, change: impl Fn(&mut Core<u64>)) {
        let visits = |flows| {
            let mut core = waiting_flows(flows, on_suspend);
            visits::during(|| change(&mut core))
        };
        let (few, many) = (visits(1000), visits(8000));
        assert!(few >= 1000, "{few}: each job is looked at");
        assert!(many <= 12 * few, "{few} visits, and {many} for eight times");
    }

    fn suspend(core: &mut Core<u64>) {
        let until = Time::from_secs(60);
        core.set_target(Time::ZERO, TARGET, TargetState::Suspended { until });
    }

    #[test]
    fn disabling_a_target_takes_time_linear_in_its_flows() {
        assert_linear(OnSuspend::Keep, |core| {
            let reason = Disabled::Operator;
            core.set_target(Time::ZERO, TARGET, TargetState::Disabled { reason });
            assert_eq!(core.waiting(), 0);
        });
    }

    #[test]
    fn suspending_a_target_takes_time_linear_in_the_flows_that_it_ends() {
        assert_linear(OnSuspend::End, |core| {
            suspend(core);
            assert_eq!((core.waiting(), core.delayed()), (0, 0));
        });
    }

    #[test]
    fn suspending_a_target_takes_time_linear_in_the_flows_that_it_delays() {
        assert_linear(OnSuspend::Delay, |core| {
            suspend(core);
            assert!(core.waiting() == 0 && core.delayed() > 0);
        });
    }

    #[test]
    fn lifting_a_suspension_takes_time_linear_in_the_flows_that_it_releases() {
        assert_linear(OnSuspend::Delay, |core| {
            suspend(core);
            core.set_target(Time::ZERO, TARGET, TargetState::Active);
            assert!(core.waiting() > 0 && core.delayed() == 0);
        });
    }
}
