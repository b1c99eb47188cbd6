//! Limits and weights of one node of a fleet, applied without rebuilding the configuration.
//!
//! Shares change several times per second while jobs run, so only what differs from the call before
//! is touched. The configuration stays as it was: a reload applies both again, first the new
//! configuration, then the local limits over it.

use super::Core;
use crate::config::{FlowConfig, TargetConfig};
use crate::id::{Class, Flow, FlowId, QueueId, Section, TargetId};
use crate::lanes::LaneState;
use crate::local_limits::LocalLimits;
use crate::table::Id;
use crate::time::Time;

impl<P> Core<P> {
    /// Replaces the limits and weights in force. What `local` does not name is as configured.
    ///
    /// A lower limit holds from now on: jobs that run go on, and no job is granted until fewer run
    /// than may. A higher one grants nothing by itself: buckets keep their levels. Costs time for
    /// what differs from the call before, not for what waits.
    ///
    /// ```
    /// use headworks_core::{Config, Core, Job, Limits, LocalLimits, LocalShare, Rate, Time};
    ///
    /// let limits = Limits { requests: Some(Rate::per_second(100.0)), ..Limits::default() };
    /// let mut core = Core::new(Config { limits, ..Config::default() }, Time::ZERO)?;
    /// core.submit(Time::ZERO, Job::new("chat")).expect("there is room");
    ///
    /// let share = |micros, burst| LocalLimits {
    ///     all: LocalShare { requests: Some(Rate::share(micros, burst)), ..LocalShare::default() },
    ///     ..LocalLimits::default()
    /// };
    /// core.set_limits(Time::ZERO, share(0, 0)); // shut: nothing is granted, nothing waited for
    /// assert!(core.next(Time::ZERO).is_none() && core.wake_at().is_none());
    /// core.set_limits(Time::ZERO, share(10_000_000, 1_000_000)); // ten per second, from empty
    /// assert!(core.next(Time::ZERO).is_none());
    /// assert_eq!(core.wake_at(), Some(Time::from_millis(100)));
    /// # Ok::<(), headworks_core::ConfigError>(())
    /// ```
    pub fn set_limits(&mut self, now: Time, local: LocalLimits) {
        let now = self.tick(now);
        let before = std::mem::replace(&mut self.local, local);
        let reweighs = before.flow_weights != self.local.flow_weights
            || before.class_weights != self.local.class_weights;
        if reweighs {
            // A reservation holds by the order of the policy, which may be another one now.
            for target in self.targets.ids() {
                self.unreserve(target);
            }
            self.apply_class_weights();
        }
        if before.all != self.local.all {
            let limits = self.local.limits_of_all(self.config.limits);
            self.gate.reconfigure(limits, now);
            // The next selection finds out when this gate opens.
            self.gate_opens_at = None;
        }
        // The usual change names a few flows; only a change for all others touches every flow.
        if before.other_flows == self.local.other_flows {
            for name in self.local.changed_flows(&before) {
                if let Some(flow) = self.flows.find(name) {
                    self.apply_flow(now, flow);
                }
            }
        } else {
            for flow in self.flows.ids() {
                self.apply_flow(now, flow);
            }
        }
        for target in self.local.changed_targets(&before) {
            if target.index() < self.targets.len() {
                let config = self.target_in_force(target.index());
                self.targets[target].reconfigure(config, now);
                self.open_target(target);
            }
        }
    }

    /// Whether the local limits ended before now, so that nothing may be granted.
    pub(super) fn limits_have_ended(&self) -> bool {
        self.local.until.is_some_and(|until| until <= self.now)
    }

    /// The limits and weights that replace the configured ones.
    #[must_use]
    pub fn local_limits(&self) -> &LocalLimits {
        &self.local
    }

    pub(super) fn flow_in_force(&self, flow: Flow) -> FlowConfig {
        let FlowConfig { weight, limits } = self.config.flow(flow);
        let limits = self.local.limits_of_flow(flow, limits);
        FlowConfig { weight, limits }
    }

    pub(super) fn target_in_force(&self, index: usize) -> TargetConfig {
        let config = self.config.targets[index];
        let limits = self
            .local
            .limits_of_target(TargetId(index as u32), config.limits);
        TargetConfig { limits, ..config }
    }

    pub(super) fn apply_class_weights(&mut self) {
        let (local, classes) = (&self.local, &self.config.classes);
        let weight = |class: Class| {
            let configured = classes.get(class.index()).map_or(1, |config| config.weight);
            local.class_weight(class, configured)
        };
        self.classes.reweigh(weight);
    }

    /// Gives a flow its limits and its weight, and has its jobs tried again.
    fn apply_flow(&mut self, now: Time, flow: FlowId) {
        let name = self.flows[flow].name();
        let FlowConfig { weight, limits } = self.flow_in_force(name);
        let service = self.local.flow_weight(name, weight);
        // Before the gate changes: a reservation stands for "only cost is missing", which may not
        // hold under the new limits.
        self.reconsider_reservations(flow);
        self.flows[flow].gate.reconfigure(limits, now);
        if self.flows[flow].set_service_weight(service) {
            for (section, queue) in self.flows[flow].queues().clone() {
                self.classes[section].reweigh_queue(queue, service);
                self.rerank_blocked(section, queue);
                let blocked = self.flows[flow].is_blocked();
                self.classes.requeue(section, queue, blocked);
            }
        }
        self.open_flow(flow);
    }

    /// Ranks the blocked lanes of a queue anew after its tag fell: a stored rank may be too early,
    /// never too late.
    pub(super) fn rerank_blocked(&mut self, section: Section, queue: QueueId) {
        for index in 0..self.classes[section].queue(queue).lanes().len() {
            let lane = self.classes[section].queue(queue).lanes()[index];
            if self.lanes[lane].state == LaneState::Blocked {
                let (group, rank) = (self.lanes[lane].key.group, self.rank(lane));
                self.blocked.rerank(lane, group, section, rank);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Core, Job, LocalLimits, Outcome, Time, Verdict};

    /// A process that was stopped looks at its clock before it grants.
    #[test]
    fn nothing_is_granted_once_the_local_limits_have_ended() {
        let mut core = Core::new(Config::default(), Time::ZERO).expect("it is valid");
        let until = |seconds| LocalLimits {
            until: Some(Time::from_secs(seconds)),
            ..LocalLimits::default()
        };
        core.set_limits(Time::ZERO, until(3));
        for job in 0..3 {
            core.submit(Time::ZERO, Job::new(job)).expect("room");
        }
        let lease = core.next(Time::from_millis(2_999)).expect("they hold");
        let late = Time::from_secs(3);
        core.finish(late, lease, Outcome::DONE, Verdict::Fine);
        assert!(core.next(late).is_none());
        assert!(
            core.wake_at().is_none_or(|at| at > late),
            "there is nothing to wait for"
        );
        core.set_limits(late, until(4));
        assert!(core.next(late).is_some(), "others were set");
        assert!(core.next(Time::from_secs(9)).is_none());
        core.set_limits(Time::from_secs(9), LocalLimits::default());
        assert!(core.next(Time::from_secs(9)).is_some(), "without an end");
    }
}
