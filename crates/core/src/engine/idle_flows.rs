//! Flows come with their first job, and are forgotten when nothing is left to know of them.
//!
//! A flow without jobs is looked for only when the table has doubled, so that forgetting costs each
//! arrival a constant. Debt outlives the flow; see [`IdleTags`](crate::fair_queue::IdleTags).

use super::Core;
use crate::id::{Flow, FlowId};
use crate::time::Time;

impl<P> Core<P> {
    pub(super) fn add_flow(&mut self, now: Time, name: Flow) -> FlowId {
        // Before the new flow is made, so that it is not among those that are looked at.
        if self.flows.wants_sweep() {
            self.sweep_flows(now);
        }
        let config = self.flow_in_force(name);
        let weight = self.local.flow_weight(name, config.weight);
        self.flows.insert(name, config, weight, now)
    }

    /// Forgets flows that have no jobs and whose rates are full. Their debt is remembered.
    fn sweep_flows(&mut self, now: Time) {
        for flow in self.flows.ids() {
            let state = &mut self.flows[flow];
            if !state.is_idle(now) {
                continue;
            }
            if let Some(timer) = state.timer.take() {
                self.timers.cancel(timer);
            }
            let (name, queues) = (state.name(), state.queues().clone());
            for (section, queue) in queues {
                // Out of the order first: a queue that is removed must not be found by a selection.
                self.classes.requeue(section, queue, true);
                let queue = self.classes[section].remove_queue(queue, name);
                for lane in queue.lanes() {
                    self.lanes.remove(*lane);
                }
            }
            self.occupancy.forget(flow);
            self.flows.remove(flow);
        }
        self.flows.swept();
    }
}
