//! What is known of delayed jobs besides their entries, and the delay keys: one job waits for each.

use super::Core;
use super::parts::{Later, State};
use crate::id::Key;
use crate::time::Time;

impl<P> Core<P> {
    /// What is known of a job that is delayed or has a delay key.
    #[inline]
    pub(super) fn later(&mut self, slot: u32) -> &mut Later {
        if self.later.len() <= slot as usize {
            self.later
                .resize(self.jobs.end() as usize, Later::default());
        }
        &mut self.later[slot as usize]
    }

    /// Counts a job that is in no lane as delayed. It has its delay key.
    pub(super) fn become_delayed(&mut self, slot: u32, due: Time) {
        let entry = &mut self.jobs[slot];
        entry.state = State::Delayed;
        self.delayed += 1;
        self.flows[entry.flow].delayed += 1;
        self.later(slot).due = due;
        self.arm_job(slot);
    }

    pub(super) fn is_delayed(&self, key: Key) -> bool {
        let has = |slot: u32| self.later[slot as usize].delay_key == key;
        self.delay_keys.find(key.spread(), has).is_some()
    }

    /// Takes the job's delay key; `false` if another has it.
    pub(super) fn hold_delay_key(&mut self, slot: u32) -> bool {
        if !self.jobs[slot].has_delay_key {
            return true;
        }
        let key = self.later[slot as usize].delay_key;
        if self.is_delayed(key) {
            return false;
        }
        self.jobs[slot].holds_delay_key = true;
        let later = &self.later;
        let hash = |slot: u32| later[slot as usize].delay_key.spread();
        self.delay_keys.insert(key.spread(), slot, hash);
        true
    }

    #[inline]
    pub(super) fn release_delay_key(&mut self, slot: u32) {
        if std::mem::take(&mut self.jobs[slot].holds_delay_key) {
            let key = self.later[slot as usize].delay_key;
            self.delay_keys.remove(key.spread(), slot);
        }
    }
}
