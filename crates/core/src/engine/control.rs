//! Pausing, draining, and new settings for a core at work.

use super::Core;
use super::parts::{ClassState, Holders, NIL, Place, State};
use super::tags::Pace;
use crate::config::{Config, ConfigError, OnSuspend};
use crate::event::{Event, Unservable};
use crate::heap::{Heap, NOWHERE};
use crate::target::{Disabled, TargetState};
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

    /// Admits nothing from now on, and hands back whatever waits or is delayed, as [`Event::Returned`]. What runs may finish.
    pub fn drain(&mut self, now: Time) {
        let now = self.tick(now);
        self.draining = true;
        for slot in self.unleased() {
            let ticket = self.ticket(slot);
            let job = self.end_unleased(now, slot);
            self.classes[job.class.index()].stats.ended.returned += 1;
            self.events.push_back(Event::Returned { ticket, job });
        }
    }

    /// Takes new settings. Nothing admitted is thrown out: a smaller bound stops admission until there is room. Only a job
    /// that can no longer fit under a limit fails at once.
    ///
    /// # Errors
    /// The first setting that cannot work, or cannot be changed in a running core; then nothing has changed.
    pub fn reconfigure(&mut self, now: Time, mut config: Config) -> Result<(), ConfigError> {
        config.check()?;
        let had = self.classes.len();
        if config.classes.len() < had {
            return Err(ConfigError::FewerClasses {
                had,
                wanted: config.classes.len(),
            });
        }
        if config.targets.is_empty() {
            config.targets.push(crate::config::TargetConfig::default());
        }
        if config.targets.len() < self.targets.len() {
            return Err(ConfigError::FewerTargets {
                had: self.targets.len(),
                wanted: config.targets.len(),
            });
        }
        let now = self.tick(now);
        self.most_alone = config.waiting_for_one();
        self.aging = super::aging(&config);
        self.config = config;
        self.gate.reconfigure(self.config.limits, now);
        self.forecast.set_most(self.config.bookings);
        self.apply_classes();
        self.apply_flows(now);
        self.recount_holders();
        self.apply_targets(now);
        self.reopen_everything();
        self.refit(now);
        Ok(())
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn apply_classes(&mut self) {
        for (index, class) in self.config.classes.iter().enumerate() {
            match self.classes.get_mut(index) {
                Some(state) => {
                    state.config = *class;
                    state.pace = Pace::of(class.weight);
                    state.forecast.set_most(self.config.bookings);
                }
                None => self
                    .classes
                    .push(ClassState::new(*class, self.config.bookings)),
            }
        }
        self.tags.resize(self.classes.len(), 0);
        self.resting.widen(self.classes.len());
        for (_, flow) in self.flows.iter_mut() {
            flow.queues.resize(self.classes.len(), NIL);
        }
    }

    fn apply_flows(&mut self, now: Time) {
        for (_, flow) in self.flows.iter_mut() {
            let config = self.config.flow(flow.id);
            flow.weight = config.weight;
            flow.pace = Pace::of(config.weight);
            flow.gate.reconfigure(config.limits, now);
        }
    }

    fn apply_targets(&mut self, now: Time) {
        for index in 0..self.config.targets.len() {
            let config = self.config.targets[index];
            let Some(target) = self.targets.get_mut(index) else {
                self.push_target(config);
                continue;
            };
            target.seldom.config = config;
            target.gate.reconfigure(config.limits, now);
            let configured = TargetState::Disabled {
                reason: Disabled::Configured,
            };
            let (state, id) = (target.state, index as u32);
            if !config.enabled {
                self.change_target(now, id, configured);
            } else if state == configured {
                self.change_target(now, id, TargetState::Active);
            }
        }
    }

    /// Puts every lane back into its queue and ranks all anew: any gate and any order may have changed.
    fn reopen_everything(&mut self) {
        for target in 0..self.targets.len() as u32 {
            self.unsave(target);
        }
        for bay in 0..self.bays.len() as u32 {
            self.close_bay(bay);
        }
        for flow in 0..self.flows.end() {
            if self.flows.get(flow).is_some() {
                self.open_flow(flow);
            }
        }
        for class in &mut self.classes {
            class.ages = Heap::default();
        }
        for spot in &mut self.lane_spots {
            spot.age_at = NOWHERE;
        }
        for lane in 0..self.lanes.end() {
            if let Some(place) = self.lanes.get(lane).map(|lane| lane.place) {
                if matches!(place, Place::Behind | Place::Ahead) {
                    self.promote(lane);
                }
                self.head_changed(lane);
            }
        }
    }

    /// Counts the holders' weights anew, and forgets their order: both may have changed.
    fn recount_holders(&mut self) {
        self.holders = Holders::default();
        for class in &mut self.classes {
            class.holders = Holders::default();
        }
        for (_, queue) in self.queues.iter_mut() {
            queue.held_at = NOWHERE;
            if queue.waiting > 0 {
                let weight = self.flows[queue.flow].weight;
                self.classes[queue.class.index()].holders.weights += u64::from(weight);
            }
        }
        for (_, flow) in self.flows.iter_mut() {
            flow.held_at = NOWHERE;
            if flow.waiting > 0 {
                self.holders.weights += u64::from(flow.weight);
            }
        }
    }

    /// Fails jobs that no longer fit under a limit, and moves those that fit fewer or more targets than before.
    fn refit(&mut self, now: Time) {
        for slot in self.unleased() {
            let entry = &self.jobs[slot];
            let (cost, targets, bay, state) = (entry.cost, entry.targets, entry.bay, entry.state);
            let fits = self.gate.fits(cost) && self.flows[entry.flow].gate.fits(cost);
            let prepaid = entry.prepaid;
            let whole = if prepaid {
                Some(bay)
            } else {
                self.bay_of(targets)
            };
            let fitting = whole
                .and_then(|bay| self.bay_that_fits(bay, cost))
                .filter(|_| fits);
            match fitting {
                None => self.fail_unleased(now, slot, Unservable::TooLarge),
                Some(same) if same == bay => {}
                Some(other) if state == State::Waiting => self.move_to(now, slot, other),
                Some(other) => self.jobs[slot].bay = other,
            }
        }
    }

    /// Moves a waiting job to another bay, if somebody there will serve it.
    fn move_to(&mut self, now: Time, slot: u32, bay: u32) {
        match (self.usable_at(now, bay), self.config.on_suspend) {
            (Some(Time::MAX), _) => self.fail_unleased(now, slot, Unservable::NoTarget),
            (Some(_), OnSuspend::End) => self.fail_unleased(now, slot, Unservable::Suspended),
            (until, on_suspend) => {
                self.dequeue(now, slot);
                self.jobs[slot].bay = bay;
                match until.filter(|_| on_suspend == OnSuspend::Delay) {
                    Some(until) => self.delay(slot, until),
                    None => self.enqueue_first(slot),
                }
            }
        }
    }

    fn unleased(&self) -> Vec<u32> {
        let mut slots: Vec<(u64, u32)> = self
            .jobs
            .iter()
            .filter(|(_, entry)| !matches!(entry.state, State::Running { .. }))
            .map(|(slot, entry)| (entry.seq, slot))
            .collect();
        slots.sort_unstable();
        slots.into_iter().map(|(_, slot)| slot).collect()
    }
}
