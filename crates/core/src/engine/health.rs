//! Targets: their sets, and how their health decides who may wait for them.

use super::Core;
use super::parts::Bay;
use crate::config::{ConfigError, MAX_SET, OnSuspend, TargetConfig};
use crate::event::{Event, Unservable};
use crate::id::{Cost, SetRef, TargetId, TargetSet};
use crate::job::Verdict;
use crate::target::{Disabled, Target, TargetState};
use crate::time::Time;

impl<P> Core<P> {
    /// The set of these targets, for [`Job::targets`](crate::Job::targets). The same targets always give the same set.
    ///
    /// # Errors
    /// If it is empty, too large, or names a target that does not exist.
    pub fn targets(&mut self, targets: &[TargetId]) -> Result<TargetSet, ConfigError> {
        if let Some(unknown) = targets
            .iter()
            .find(|target| target.index() >= self.targets.len())
        {
            return Err(ConfigError::UnknownTarget(unknown.index()));
        }
        let mut ids: Vec<u32> = targets.iter().map(|target| target.0).collect();
        ids.sort_unstable();
        ids.dedup();
        match *ids {
            [] => Err(ConfigError::EmptySet),
            [one] => Ok(TargetSet(SetRef::One(one))),
            _ if ids.len() > MAX_SET => Err(ConfigError::LargeSet(ids.len())),
            _ => Ok(TargetSet(SetRef::Many(self.bay(&ids)))),
        }
    }

    /// The state of a target.
    #[must_use]
    pub fn target_state(&self, target: TargetId) -> Option<TargetState> {
        self.targets.get(target.index()).map(|target| target.state)
    }

    /// Puts a target into a state: an operator's hand, a probe's result, a roll-back.
    pub fn set_target(&mut self, now: Time, target: TargetId, state: TargetState) {
        let now = self.tick(now);
        if target.index() < self.targets.len() {
            let state = match state {
                TargetState::Suspended { until } if until <= now => TargetState::Probation,
                state => state,
            };
            self.targets[target.index()].faults = 0;
            self.change_target(now, target.0, state);
        }
    }

    /// Adds a target to a core at work, with the next number in order. It is part of [`Core::config`] from then on: a
    /// later [`reconfigure`](Core::reconfigure) must name it.
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
        let id = self.targets.len() as u32;
        config.check(id as usize)?;
        self.tick(now);
        self.config.targets.push(config);
        self.most_alone = self.config.waiting_for_one();
        self.push_target(config);
        Ok(TargetId(id))
    }

    pub(super) fn push_target(&mut self, config: TargetConfig) {
        let id = self.targets.len() as u32;
        let bay = self.new_bay(&[id]);
        self.targets.push(Target::new(config, bay, self.now));
    }

    /// The bay of a sorted set of targets, made if there is none.
    fn bay(&mut self, ids: &[u32]) -> u32 {
        if let [one] = *ids {
            return self.targets[one as usize].bay;
        }
        if let Some(bay) = self.bay_ids.get(ids) {
            return *bay;
        }
        let bay = self.new_bay(ids);
        self.bay_ids.insert(ids.into(), bay);
        for id in ids {
            self.targets[*id as usize].seldom.bays.push(bay);
        }
        bay
    }

    fn new_bay(&mut self, ids: &[u32]) -> u32 {
        self.bays.push(Bay {
            targets: ids.into(),
            lanes: Vec::new(),
            parked: Vec::new(),
            parked_classes: 0,
            open: false,
            spare: Vec::new(),
            usable_since: self.now,
        });
        self.bays.len() as u32 - 1
    }

    /// The targets of a bay that could ever serve a job of that cost.
    pub(super) fn bay_that_fits(&mut self, bay: u32, cost: Cost) -> Option<u32> {
        let targets = &self.bays[bay as usize].targets;
        if targets
            .iter()
            .all(|target| self.targets[*target as usize].gate.fits(cost))
        {
            return Some(bay);
        }
        let fit: Vec<u32> = targets
            .iter()
            .copied()
            .filter(|target| self.targets[*target as usize].gate.fits(cost))
            .collect();
        (!fit.is_empty()).then(|| self.bay(&fit))
    }

    pub(super) fn bay_without(&mut self, bay: u32, target: u32) -> Option<u32> {
        let rest: Vec<u32> = self.bays[bay as usize]
            .targets
            .iter()
            .copied()
            .filter(|other| *other != target)
            .collect();
        (!rest.is_empty()).then(|| self.bay(&rest))
    }

    /// What an attempt tells of its target.
    pub(super) fn judge(&mut self, now: Time, slot: u32, target: u32, verdict: Verdict) {
        let probing = std::mem::take(&mut self.jobs[slot].probing);
        let state = &mut self.targets[target as usize];
        if probing {
            state.seldom.probe = false;
        }
        let deciding = probing && state.state == TargetState::Probation;
        match verdict {
            Verdict::Unknown => {}
            Verdict::Fine => {
                state.faults = 0;
                if deciding {
                    self.change_target(now, target, TargetState::Active);
                }
            }
            Verdict::Fault => {
                state.faults += 1;
                let threshold = state.seldom.config.fault_threshold;
                let enough = threshold > 0 && state.faults >= threshold;
                if deciding || (enough && state.state == TargetState::Active) {
                    state.faults = 0;
                    let until = now + state.seldom.config.suspend_for;
                    self.change_target(now, target, TargetState::Suspended { until });
                }
            }
            Verdict::Overload { until } => match state.state {
                TargetState::Disabled { .. } => {}
                TargetState::Suspended { until: known } if known >= until => {}
                _ if until <= now => {}
                _ => self.change_target(now, target, TargetState::Suspended { until }),
            },
            Verdict::Gone => self.change_target(
                now,
                target,
                TargetState::Disabled {
                    reason: Disabled::Gone,
                },
            ),
        }
    }

    /// A target's timer: its suspension is over, or a bucket has refilled.
    pub(super) fn target_due(&mut self, now: Time, target: u32) {
        match self.targets[target as usize].state {
            TargetState::Suspended { until } if until <= now => {
                self.change_target(now, target, TargetState::Probation);
            }
            TargetState::Suspended { until } => self.arm_target(target, until),
            _ => self.open_target(target),
        }
    }

    pub(super) fn change_target(&mut self, now: Time, target: u32, state: TargetState) {
        let before = std::mem::replace(&mut self.targets[target as usize].state, state);
        if before == state {
            return;
        }
        self.events.push_back(Event::TargetChanged {
            target: TargetId(target),
            state,
        });
        self.unsave(target);
        if let TargetState::Suspended { until } = state {
            self.arm_target(target, until);
        }
        for index in 0..self.targets[target as usize].seldom.bays.len() {
            let bay = self.targets[target as usize].seldom.bays[index];
            if state.is_usable() {
                if !before.is_usable() {
                    self.bays[bay as usize].usable_since = now;
                    self.ages_changed(bay);
                }
                continue;
            }
            match self.usable_at(now, bay) {
                None => {}
                Some(Time::MAX) => self.fail_bay(now, bay, Unservable::NoTarget),
                Some(until) => match self.config.on_suspend {
                    OnSuspend::Keep => {}
                    OnSuspend::Delay => self.delay_bay(now, bay, until),
                    OnSuspend::End => self.fail_bay(now, bay, Unservable::Suspended),
                },
            }
        }
        if state.is_usable() {
            self.open_target(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bound, Config, Limits};
    use crate::event::Reason;
    use crate::job::Job;

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
}
