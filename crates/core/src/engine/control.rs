//! Pausing, draining, and new settings for a core at work.
//!
//! Nothing here throws an admitted job out. A new configuration is checked whole before anything
//! changes; then lanes that it may rank or block differently are put back into the order and tried
//! again. Order matters in [`reconfigure`](Core::reconfigure): jobs whose section changes must
//! leave their lanes under the settings under which they entered.

use super::Core;
use crate::config::{Config, ConfigError, OnSuspend, TargetConfig};
use crate::event::{Event, Unservable};
use crate::id::{GroupId, JobId, TargetId};
use crate::jobs::JobState;
use crate::lanes::LaneState;
use crate::targets::{Disabled, TargetState};
use crate::time::Time;

impl<P> Core<P> {
    /// Leases nothing until [`resume`](Self::resume). Admission goes on.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Ends a pause.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Admits nothing from now on, and hands back all jobs that wait or are delayed, as
    /// [`Event::Returned`]. Running jobs may finish.
    ///
    /// ```
    /// use headworks_core::{Config, Core, Event, Job, Outcome, Time, Verdict};
    ///
    /// let mut core = Core::new(Config::default(), Time::ZERO)?;
    /// core.submit(Time::ZERO, Job::new("runs")).expect("room");
    /// core.submit(Time::ZERO, Job::new("waits")).expect("room");
    /// let lease = core.next(Time::ZERO).expect("nothing is limited");
    /// core.drain(Time::ZERO);
    /// assert!(matches!(core.poll_event(), Some(Event::Returned { job, .. }) if job.payload == "waits"));
    /// assert!(core.submit(Time::ZERO, Job::new("late")).is_err());
    /// core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
    /// assert_eq!(core.running(), 0);
    /// # Ok::<(), headworks_core::ConfigError>(())
    /// ```
    pub fn drain(&mut self, now: Time) {
        let now = self.tick(now);
        self.draining = true;
        // In the order of arrival, so that a driver that keeps the jobs can submit them again as
        // they came.
        for job in self.jobs.unleased() {
            let returned = |ticket, job| Event::Returned { ticket, job };
            self.end_with_event(now, job, |ended| &mut ended.returned, returned);
        }
    }

    /// Applies new settings. No admitted job is thrown out: a smaller bound stops admission until
    /// there is room. Only a job that can no longer fit under a limit fails at once.
    ///
    /// ```
    /// use headworks_core::{Bound, Config, Core, Job, Reason, Time};
    ///
    /// let mut core = Core::new(Config::default(), Time::ZERO)?;
    /// for n in 0..5 {
    ///     core.submit(Time::ZERO, Job::new(n)).expect("room");
    /// }
    /// let mut smaller = core.config().clone();
    /// smaller.bound = Bound::PerClass(2);
    /// core.reconfigure(Time::ZERO, smaller)?;
    /// assert_eq!(core.waiting(), 5, "all that were admitted stay");
    /// let refused = core.submit(Time::ZERO, Job::new(5)).expect_err("no room any more");
    /// assert_eq!(refused.reason, Reason::Full);
    /// # Ok::<(), headworks_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// The first setting that cannot work, or cannot be changed in a running core; then nothing has
    /// changed.
    pub fn reconfigure(&mut self, now: Time, mut config: Config) -> Result<(), ConfigError> {
        config.check()?;
        let (had, wanted) = (self.classes.len(), config.classes.len());
        if wanted < had {
            return Err(ConfigError::FewerClasses { had, wanted });
        }
        if config.targets.is_empty() {
            config.targets.push(TargetConfig::default());
        }
        let (had, wanted) = (self.targets.len(), config.targets.len());
        if wanted < had {
            return Err(ConfigError::FewerTargets { had, wanted });
        }
        let now = self.tick(now);
        let domain = |target: &TargetConfig| target.domain;
        let known = self.config.targets.iter().map(domain);
        let moves = !known.eq(config.targets.iter().map(domain).take(had));
        // Their sections are other ones afterwards.
        // A lane belongs to the domain of its targets, so its jobs leave under the old domains and
        // enter under the new ones.
        let moved = if moves {
            self.jobs.waiting()
        } else {
            Vec::new()
        };
        for job in &moved {
            self.leave_lane(now, *job);
        }
        self.config = config;
        let limits = self.local.limits_of_all(self.config.limits);
        self.gate.reconfigure(limits, now);
        self.forecast.set_most(self.config.bookings);
        self.apply_classes();
        self.apply_flows(now);
        self.apply_target_limits(now);
        for job in moved {
            self.enter_lane(now, job);
        }
        // States before the order: lanes of targets that were just disabled must not be put back
        // into it.
        self.apply_target_states(now);
        self.reopen_everything();
        self.refit(now);
        Ok(())
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn apply_classes(&mut self) {
        self.classes.reconfigure(&self.config);
        self.apply_class_weights();
        let (domains, classes) = (self.classes.domains(), self.classes.len());
        self.blocked.set_sections(domains, classes);
    }

    fn apply_flows(&mut self, now: Time) {
        for flow in self.flows.iter_mut() {
            let config = self.config.flow(flow.name());
            let limits = self.local.limits_of_flow(flow.name(), config.limits);
            flow.gate.reconfigure(limits, now);
            flow.set_service_weight(self.local.flow_weight(flow.name(), config.weight));
            self.occupancy.reweigh(&mut flow.holder, config.weight);
        }
        let flows = &self.flows;
        for class in self.classes.iter_mut() {
            class.reweigh(|flow| (flows[flow].weight(), flows[flow].service_weight()));
        }
    }

    fn apply_target_limits(&mut self, now: Time) {
        for index in 0..self.config.targets.len() {
            let config = self.target_in_force(index);
            if index >= self.targets.len() {
                self.targets.add(config, now);
            } else {
                self.targets[TargetId(index as u32)].reconfigure(config, now);
            }
        }
    }

    fn apply_target_states(&mut self, now: Time) {
        let reason = Disabled::Configured;
        let configured = TargetState::Disabled { reason };
        for target in self.targets.ids() {
            if !self.config.targets[target.index()].enabled {
                self.change_target(now, target, configured);
            } else if self.targets[target].state() == configured {
                self.change_target(now, target, TargetState::Active);
            }
        }
    }

    /// Puts every lane back into its queue and ranks all anew: any gate and any order may have
    /// changed.
    fn reopen_everything(&mut self) {
        for target in self.targets.ids() {
            self.unreserve(target);
        }
        for group in self.targets.groups() {
            self.blocked.set_open(group, false);
        }
        for flow in self.flows.ids() {
            self.open_flow(flow);
        }
        for lane in self.lanes.with_jobs() {
            if self.lanes[lane].state == LaneState::Blocked {
                self.unblock_lane(lane);
            }
            let key = self.lanes[lane].key;
            self.head_changed(lane, &key);
        }
    }

    /// Fails jobs that no longer fit under a limit, and moves those that fit fewer or more targets
    /// than before.
    fn refit(&mut self, now: Time) {
        for job in self.jobs.unleased() {
            let entry = &self.jobs[job];
            let (cost, targets, group) = (entry.cost, entry.targets, entry.group);
            let fits = self.gate.fits(cost) && self.flows[entry.flow].gate.fits(cost);
            let named = match entry.was_sent_elsewhere() {
                true => Some(group),
                false => self.targets.group_of(targets),
            };
            let named = named.filter(|_| fits);
            match named.and_then(|named| self.targets.that_fit(named, cost, now)) {
                None => self.fail_unleased(now, job, Unservable::TooLarge),
                Some(same) if same == group => {}
                Some(other) => self.move_to(now, job, other),
            }
        }
    }

    /// Has a job served by another group.
    fn move_to(&mut self, now: Time, job: JobId, group: GroupId) {
        match self.jobs[job].state {
            JobState::Waiting(_) => self.leave_lane(now, job),
            JobState::Delayed { due, suspended } => {
                self.leave_delay(job);
                self.jobs[job].state = JobState::Arriving;
                self.set_group(job, group);
                self.enter_delay(job, due, suspended);
                // It may have waited for a target that it no longer needs.
                if suspended && self.targets.usable_at(group).is_none() {
                    self.release(now, job);
                }
                return;
            }
            JobState::Arriving | JobState::Running(_) => {
                unreachable!("only unleased jobs are moved")
            }
        }
        self.set_group(job, group);
        match (self.targets.usable_at(group), self.config.on_suspend) {
            (Some(Time::MAX), _) => self.fail_unleased(now, job, Unservable::NoTarget),
            (Some(_), OnSuspend::End) => self.fail_unleased(now, job, Unservable::Suspended),
            (Some(until), OnSuspend::Delay) => self.suspend(job, until),
            _ => self.enter_lane(now, job),
        }
    }
}
